"""Build CMSIS-NN's structures and pointers to tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.c.constants import c_type
from tflm.c.library_calls import Address, LibraryCall, Structure, Value
from tflm.delegates.compiled.bands import work_array
from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier, WideQuantizedMultiplier, reduced_significand
from tflm.kernels.arithmetic.requantization import OutputStage
from tflm.kernels.layers.geometry import Axis
from tflm.memory.tensor import TfLiteEvalTensor

Array = npt.NDArray[Any]

FUNCTIONS = "arm_nnfunctions.h"
SUPPORT_FUNCTIONS = "arm_nnsupportfunctions.h"
SUCCESS = "ARM_CMSIS_NN_SUCCESS"

NO_BUFFER = Structure("cmsis_nn_context", {"buf": Address("", "void *", None), "size": 0})
"""The context for functions that need no scratch memory."""


def checked_call(function: str, *arguments: Value) -> LibraryCall:
    """Return a call of a function that returns a status."""
    return LibraryCall(function, arguments, SUCCESS, (FUNCTIONS,))


def source(name: str, array: Array | None) -> Address:
    """Return a pointer to elements that the function reads; NULL for None."""
    return Address(name, "const void *" if array is None else f"const {c_type(array.dtype)} *", array)


def target(name: str, array: Array) -> Address:
    """Return a pointer to elements that the function writes."""
    return Address(name, f"{c_type(array.dtype)} *", array)


def constants(name: str, values: Any) -> Address:
    """Return a pointer to an int32 table. CMSIS-NN reads some tables through pointers that are not const."""
    return Address(name, "int32_t *", np.array(np.atleast_1d(values), np.int32))


def context(bytes: int) -> Structure:
    """Return the context for a scratch buffer of `size` bytes, which the function writes before it reads it."""
    return buffer(target("scratch", work_array(bytes, np.int8)), bytes) if bytes else NO_BUFFER


def buffer(address: Address, bytes: int) -> Structure:
    """Return a context with this buffer."""
    return Structure("cmsis_nn_context", {"buf": address._replace(c_type="void *"), "size": bytes})


def dims(n: int, h: int = 1, w: int = 1, c: int = 1) -> Structure:
    """Return the dimensions of a tensor."""
    return Structure("cmsis_nn_dims", {"n": n, "h": h, "w": w, "c": c})


def dims_of(tensor: TfLiteEvalTensor) -> Structure:
    """Return the dimensions of an image."""
    return dims(*tensor.dims)


def tile(height: int, width: int) -> Structure:
    """Return a pair of numbers, such as strides."""
    return Structure("cmsis_nn_tile", {"w": width, "h": height})


def activation(lowest: int, highest: int) -> Structure:
    """Return the limits of the output."""
    return Structure("cmsis_nn_activation", {"min": lowest, "max": highest})


def window_fields(rows: Axis, columns: Axis, output: OutputStage) -> dict[str, Value]:
    """Return the fields for windows and limits that the parameters of convolutions and pools share."""
    return {
        "stride": tile(rows.stride, columns.stride),
        "padding": tile(rows.before, columns.before),
        "activation": activation(output.minimum, output.maximum),
    }


def scale(multiplier: QuantizedMultiplier) -> Structure:
    """Return one multiplier for all channels."""
    fields: dict[str, Value] = {"multiplier": int(multiplier.significand), "shift": int(multiplier.shift)}
    return Structure("cmsis_nn_per_tensor_quant_params", fields)


def channel_scales(multiplier: QuantizedMultiplier, channels: int) -> Structure:
    """Return a multiplier for each channel."""
    return Structure("cmsis_nn_per_channel_quant_params", scale_fields(multiplier, channels))


def scale_fields(multiplier: QuantizedMultiplier, channels: int) -> dict[str, Value]:
    """Return the tables of multipliers for all channels."""
    parts: Sequence[Any] = (multiplier.significand, multiplier.shift)
    significands, shifts = (np.broadcast_to(np.asarray(part, np.int64), channels) for part in parts)
    return {"multiplier": constants("multiplier", significands), "shift": constants("shift", shifts)}


LARGEST_ACTIVATION = 1 << 15
"""Largest absolute value of an int16."""

LARGEST_SUM = (1 << 31) - 1
"""Limit of sums with the bias, which some of CMSIS-NN's kernels keep in 32 bits."""

LARGEST_RESULT = 1 << 30
"""Limit of scaled results, which are doubled in 32 bits before they are rounded."""

LARGEST_SHIFT = 14
"""Limit of the multiplier's power of two: kernels shift right by 14 minus this."""


def wide_sums_fit(weights: Array, bias: Array | None, multiplier: QuantizedMultiplier) -> bool:
    """Return whether 64-bit sums and their scaled results fit the bits that CMSIS-NN has for them.

    Args:
        weights: (channels, depth).
        bias: one for each channel.
        multiplier: of the sums, one for all channels or one for each; sums of 32 bits always fit.
    """
    if not isinstance(multiplier, WideQuantizedMultiplier):
        return True
    largest = np.abs(weights.astype(np.int64)).sum(axis=1, dtype=np.int64) * LARGEST_ACTIVATION
    if bias is not None:
        largest += np.abs(bias.astype(np.int64))
    shift = np.asarray(multiplier.shift, np.int64)
    results = np.ldexp(reduced_significand(multiplier.significand) * largest.astype(np.float64), shift - 15)
    return bool(shift.max() <= LARGEST_SHIFT and largest.max() <= LARGEST_SUM and results.max() + 1 < LARGEST_RESULT)
