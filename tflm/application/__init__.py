"""Functions shared by the command and the web page: measuring, comparing, exporting, reporting."""
