"""Devices on a wire: run the model there, compare every tensor, and name the first operator that differs."""

from __future__ import annotations

from tflm.device.device import Device, Facts, connect

__all__ = ["Device", "Facts", "connect"]
