"""Custom operators for audio front ends and other signal processing, one module per family."""
