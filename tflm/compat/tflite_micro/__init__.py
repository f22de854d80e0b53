"""The interface of the `tflite-micro` package: import `runtime` from here instead of from there."""
