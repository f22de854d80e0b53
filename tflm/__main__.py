"""`python -m tflm` is the `tflm` command."""

from tflm.cli import main

main()
