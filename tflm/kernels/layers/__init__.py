"""Sums of products: windows, matrix products, convolutions, quantization. May import `arithmetic` and `support`."""
