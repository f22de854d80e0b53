"""The operators, one module a family, named as in TFLM. May import all of the other rooms of `tflm.kernels`."""
