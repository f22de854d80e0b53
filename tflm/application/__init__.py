"""Functions that the command and the web page share: measuring, comparing, exporting, reporting."""
