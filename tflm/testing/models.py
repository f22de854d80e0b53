"""Strategies for small models, the inputs of their invokes, and damaged files."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from tflm.schema import (
    ELEMENT_TYPES,
    AddOptions,
    BuiltinOperator,
    FullyConnectedOptions,
    ModelBuilder,
    QuantizationParameters,
    TensorType,
    quantized,
)
from tflm.testing.drawing import FLOAT32, INT8, INT16, UINT8, values, zero_points

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


@functools.cache
def quantizations(type: TensorType) -> st.SearchStrategy[QuantizationParameters | None]:
    """Scales from 2^-8 to 2^2, with a zero point for 8 bits, often an extreme one; None for types without scales."""
    if type not in (INT8, INT16, UINT8):
        return st.none()
    limits = np.iinfo(ELEMENT_TYPES[type].dtype)
    extremes = st.just(0) if type == INT16 else st.sampled_from([0, int(limits.min), int(limits.max)])
    return st.builds(quantized, st.integers(-8, 2).map(lambda exponent: 2.0**exponent), zero_points(type) | extremes)


@st.composite
def elements(draw: st.DrawFn, type: TensorType, shape: Sequence[int]) -> npt.NDArray[Any]:
    """Arrays over the whole range of a type, with its ends and the numbers around 0; floats up to 2^10 and zeros."""
    array = values(draw, type, tuple(shape))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    special = np.array(_special_elements(array.dtype), array.dtype)
    replaced = rng.random(array.shape) < draw(st.sampled_from([0, 0.25, 1]))
    return np.where(replaced, rng.choice(special, array.shape), array)


def _special_elements(dtype: np.dtype[Any]) -> list[float]:
    """Return elements for which kernels often fail: the ends of a type, and values around 0."""
    if dtype.kind == "b":
        return [0, 1]
    if dtype.kind == "f":
        return [-1000, -6, -1, -0.5, -1e-6, 0, 1e-6, 0.5, 1, 6, 1000]
    limits = np.iinfo(dtype)
    near = range(-3 if dtype.kind == "i" else 0, 4)
    return [limits.min, limits.min + 1, *near, limits.max - 1, limits.max]


SHAPES = st.sampled_from(
    [
        st.tuples(*[st.integers(1, 6)] * 1),
        st.tuples(*[st.integers(1, 6)] * 2),
        st.tuples(*[st.integers(1, 6)] * 3),
        st.tuples(*[st.integers(1, 6)] * 4),
        st.tuples(*[st.integers(1, 3)] * 5),
        st.tuples(st.integers(1, 3), st.sampled_from([15, 16, 17, 31, 33, 64, 100, 257])),
        st.just(()),
    ]
).flatmap(lambda shapes: shapes)
"""Scalars, small shapes, and rows with about as many elements as an unrolled loop processes."""


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
    shape = draw(SHAPES)
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
def graphs(draw: st.DrawFn) -> bytes:
    """Models of one to ten operators, each fed by any tensors before it; several outputs; some with a variable."""
    builder = ModelBuilder()
    main = builder.subgraph()
    type = draw(st.sampled_from([FLOAT32, INT8]))
    parameters = None if type == FLOAT32 else quantized(0.5, 1)
    widths = [draw(st.integers(1, 40))]
    tensors = [main.input("x", (1, widths[0]), type, parameters)]
    if draw(st.booleans()):
        tensors.append(main.tensor("state", (1, widths[0]), type, parameters, is_variable=True))
        widths.append(widths[0])
    for i in range(draw(st.integers(1, 10))):
        chosen = draw(st.integers(0, len(tensors) - 1))
        width = widths[chosen]
        kind = draw(st.sampled_from(["RELU", "RESHAPE", "ADD", "FULLY_CONNECTED"]))
        inputs: list[int] = [tensors[chosen]]
        options: AddOptions | FullyConnectedOptions | None = None
        if kind == "ADD":
            same = [tensor for tensor, other in zip(tensors, widths) if other == width]
            inputs.append(draw(st.sampled_from(same)))
            options = AddOptions()
        elif kind == "FULLY_CONNECTED":
            depth, width = width, draw(st.integers(1, 40))
            weights = np.ones((width, depth), np.float32 if type == FLOAT32 else np.int8)
            scales = None if type == FLOAT32 else quantized([0.01] * draw(st.sampled_from([1, width])))
            inputs += [main.constant(f"w{i}", weights, scales), -1]
            options = FullyConnectedOptions()
        output = main.tensor(f"t{i}", (1, width), type, parameters)
        main.operator(BuiltinOperator[kind], inputs, [output], options)
        tensors.append(output)
        widths.append(width)
    for tensor in sorted({tensors[-1], *draw(st.lists(st.sampled_from(tensors), max_size=3))}):
        main.output(tensor)
    return builder.build()


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
