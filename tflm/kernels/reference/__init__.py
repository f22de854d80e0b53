"""The operators, one module per family, named as in TFLM. May import all other packages of `tflm.kernels`."""
