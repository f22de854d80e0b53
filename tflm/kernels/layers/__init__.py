"""Layers with weights: windows, matrix products, convolutions, their quantization. May import `arithmetic` and
`support`."""
