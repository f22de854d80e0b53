"""Operators of the audio front end and other signal processing, all custom: one module a family."""
