"""TFLM's arithmetic on plain numbers and arrays: fixed point, rounding, requantization, look-up tables."""
