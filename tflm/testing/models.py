"""Strategies for small models, the inputs of their invokes, and damaged files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from tflm.schema import (
    ELEMENT_TYPES,
    BuiltinOperator,
    FullyConnectedOptions,
    ModelBuilder,
    QuantizationParameters,
    TensorType,
    quantized,
)

INTEGERS = (TensorType.INT8, TensorType.INT16, TensorType.UINT8)
COMMON_TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT16, TensorType.INT32)


class Case(NamedTuple):
    """A model, and its inputs in several invokes.

    Attributes:
        data: the file.
        invocations: the arrays of the inputs, for each invoke.
        description: for reports.
    """

    data: bytes
    invocations: list[list[npt.NDArray[Any]]]
    description: str = ""


def quantizations(type: TensorType) -> st.SearchStrategy[QuantizationParameters | None]:
    """Scales from 2^-8 to 2^2, with a zero point for 8 bits; None for types that are not quantized."""
    if type not in INTEGERS:
        return st.none()
    limits = np.iinfo(ELEMENT_TYPES[type].dtype)
    points = st.just(0) if type == TensorType.INT16 else st.integers(int(limits.min), int(limits.max))
    return st.builds(quantized, st.integers(-8, 2).map(lambda exponent: 2.0**exponent), points)


def elements(type: TensorType, shape: Sequence[int]) -> st.SearchStrategy[npt.NDArray[Any]]:
    """Arrays over the whole range of a type; floats of ordinary size."""
    return st.integers(0, 2**32 - 1).map(lambda seed: _elements(type, shape, seed))


def _elements(type: TensorType, shape: Sequence[int], seed: int) -> npt.NDArray[Any]:
    rng, dtype = np.random.default_rng(seed), ELEMENT_TYPES[type].dtype
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype.kind == "f":
        return (4 * rng.standard_normal(shape)).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)


@st.composite
def single_operator_models(
    draw: st.DrawFn,
    operator: BuiltinOperator | str,
    types: Sequence[TensorType] = COMMON_TYPES,
    inputs: int = 1,
    custom_options: bytes = b"",
) -> Case:
    """Models of one operator with inputs and an output of one shape and type, and a tensor that it does not use."""
    type = draw(st.sampled_from(list(types)))
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    builder = ModelBuilder()
    main = builder.subgraph()
    operands = [main.input(f"x{i}", shape, type, draw(quantizations(type))) for i in range(inputs)]
    unused = main.input("unused", (5,), TensorType.INT8)
    y = main.tensor("y", shape, type, draw(quantizations(type)))
    main.operator(operator, operands, [y], custom_options=custom_options or None)
    main.output(y, unused)
    invocations = [
        [*(draw(elements(type, shape)) for _ in operands), draw(elements(TensorType.INT8, (5,)))] for _ in range(2)
    ]
    return Case(builder.build(), invocations, f"{type.name}, shape {list(shape)}, {inputs} inputs")


@st.composite
def quantized_models(draw: st.DrawFn, max_layers: int = 4) -> Case:
    """Small int8 models of FULLY_CONNECTED, ADD and RELU, some of whose tensors are used again later."""
    builder = ModelBuilder()
    main = builder.subgraph()
    width = draw(st.integers(1, 8))
    int8 = TensorType.INT8
    known = [main.input("x", (1, width), int8, draw(quantizations(int8)))]
    for layer in range(draw(st.integers(1, max_layers))):
        kind = draw(st.sampled_from([BuiltinOperator.RELU, BuiltinOperator.ADD, BuiltinOperator.FULLY_CONNECTED]))
        source = draw(st.sampled_from(known))
        y = main.tensor(f"y{layer}", (1, width), int8, draw(quantizations(int8)))
        if kind == BuiltinOperator.FULLY_CONNECTED:
            weights = main.constant(f"w{layer}", draw(elements(int8, (width, width))), quantized(0.125))
            main.operator(kind, [source, weights, -1], [y], FullyConnectedOptions())
        else:
            other = [draw(st.sampled_from(known))] if kind == BuiltinOperator.ADD else []
            main.operator(kind, [source, *other], [y])
        known.append(y)
    main.output(known[-1])
    return Case(builder.build(), [[draw(elements(int8, (1, width)))]], f"{len(known) - 1} layers of width {width}")


@st.composite
def damaged_files(draw: st.DrawFn, data: bytes) -> bytes:
    """The file with some bytes changed or words replaced by odd ones, or cut off."""
    damaged = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(damaged) - 1, 0)))
        word = draw(st.sampled_from([0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, len(data)]))
        replacement = draw(st.one_of(st.binary(min_size=1, max_size=1), st.just(word.to_bytes(4, "little"))))
        damaged[at : at + len(replacement)] = replacement
    if draw(st.booleans()):
        del damaged[draw(st.integers(0, len(damaged))) :]
    return bytes(damaged)
