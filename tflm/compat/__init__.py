"""Other packages' interfaces over this one."""
