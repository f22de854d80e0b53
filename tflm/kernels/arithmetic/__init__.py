"""Numbers as TFLM computes with them: fixed point, rounding, requantizing, look-up tables. Knows no tensors."""
