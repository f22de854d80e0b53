"""CAST: numbers of one type as those of another."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.delegates.compiled.casts import as_float32, as_float64, as_int64
from tflm.delegates.compiled.language import (
    DONE,
    Float32s,
    Int8s,
    Int16s,
    Int32s,
    Kernel,
    Step,
    UInt8s,
    UInt32s,
    kernel,
)
from tflm.delegates.compiled.movement import copy_steps
from tflm.kernels.registration import KernelContext, Node


@kernel
def int8_to_16(x: Int8s, y: Int16s, count: int) -> int:
    """Integers of which y takes as many bits as it has."""
    for i in range(count):
        y[i] = x[i]
    return DONE


int8_to_32 = int8_to_16.variant("int8_to_32", y=Int32s)
uint8_to_16 = int8_to_16.variant("uint8_to_16", x=UInt8s)
uint8_to_32 = int8_to_16.variant("uint8_to_32", x=UInt8s, y=Int32s)
int16_to_8 = int8_to_16.variant("int16_to_8", x=Int16s, y=Int8s)
int16_to_32 = int8_to_16.variant("int16_to_32", x=Int16s, y=Int32s)
int32_to_8 = int8_to_16.variant("int32_to_8", x=Int32s, y=Int8s)
int32_to_16 = int8_to_16.variant("int32_to_16", x=Int32s)


@kernel
def int8_to_float(x: Int8s, y: Float32s, count: int) -> int:
    """The same number."""
    for i in range(count):
        y[i] = as_float32(x[i])
    return DONE


uint8_to_float = int8_to_float.variant("uint8_to_float", x=UInt8s)
int16_to_float = int8_to_float.variant("int16_to_float", x=Int16s)
int32_to_float = int8_to_float.variant("int32_to_float", x=Int32s)
uint32_to_float = int8_to_float.variant("uint32_to_float", x=UInt32s)


@kernel
def int8_to_bool(x: Int8s, y: UInt8s, count: int) -> int:
    """Whether each is another number than 0."""
    for i in range(count):
        y[i] = 1 if x[i] != 0 else 0
    return DONE


int16_to_bool = int8_to_bool.variant("int16_to_bool", x=Int16s)
int32_to_bool = int8_to_bool.variant("int32_to_bool", x=Int32s)
float_to_bool = int8_to_bool.variant("float_to_bool", x=Float32s)


@kernel
def float_to_int8(x: Float32s, y: Int8s, least: float, most: float, count: int) -> int:
    """Floats cut off towards zero, saturated; 0 for what is no number."""
    for i in range(count):
        value = as_float64(x[i])
        value = least if value < least else value
        value = most if value > most else value
        y[i] = as_int64(value if value == value else 0.0)
    return DONE


float_to_int16 = float_to_int8.variant("float_to_int16", y=Int16s)
float_to_int32 = float_to_int8.variant("float_to_int32", y=Int32s)
float_to_uint32 = float_to_int8.variant("float_to_uint32", y=UInt32s)


KERNELS: dict[tuple[str, str], Kernel] = {
    ("int8", "int16"): int8_to_16,
    ("int8", "int32"): int8_to_32,
    ("uint8", "int16"): uint8_to_16,
    ("uint8", "int32"): uint8_to_32,
    ("int16", "int8"): int16_to_8,
    ("int16", "int32"): int16_to_32,
    ("int32", "int8"): int32_to_8,
    ("int32", "int16"): int32_to_16,
    ("int8", "float32"): int8_to_float,
    ("uint8", "float32"): uint8_to_float,
    ("int16", "float32"): int16_to_float,
    ("int32", "float32"): int32_to_float,
    ("uint32", "float32"): uint32_to_float,
    ("int8", "bool"): int8_to_bool,
    ("int16", "bool"): int16_to_bool,
    ("int32", "bool"): int32_to_bool,
    ("float32", "bool"): float_to_bool,
    ("float32", "int8"): float_to_int8,
    ("float32", "int16"): float_to_int16,
    ("float32", "int32"): float_to_int32,
    ("float32", "uint32"): float_to_uint32,
}
"""By types of input and output, where a bool is a byte, and an unsigned integer of 32 bits is a signed one."""

AS = {"bool": "uint8", "uint32": "int32"}


def _bind(context: KernelContext, node: Node) -> list[Step] | None:
    x, y = context.get_eval_input(node, 0).elements, context.get_eval_output(node, 0).elements
    source, target = x.dtype.name, y.dtype.name
    if y.dtype != np.bool_ and "f" not in (x.dtype.kind, y.dtype.kind) and x.itemsize == y.itemsize:
        return copy_steps([(y.reshape(-1), x.reshape(-1).view(y.dtype))])
    if x.dtype == y.dtype:
        return copy_steps([(y.reshape(-1), x.reshape(-1))])
    pairs = itertools.product((source, AS.get(source, source)), (target, AS.get(target, target)))
    cast = next(KERNELS[pair] for pair in pairs if pair in KERNELS)
    limits: dict[str, float] = {}
    if "least" in cast.parameters:
        limits = {"least": float(np.iinfo(y.dtype).min), "most": float(np.iinfo(y.dtype).max)}
    arrays = {name: _as_parameter(cast, name, array) for name, array in (("x", x), ("y", y))}
    return [cast.step(**arrays, **limits, count=y.size)]


def _as_parameter(cast: Kernel, name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return array.view(cast.parameters[name].dtype)


BINDINGS = {"CAST": _bind}
