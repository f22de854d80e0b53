"""Models of operators that take slices at indices, or put one there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tflm.schema import ELEMENT_TYPES, BuiltinOperator, GatherOptions, TensorType, quantized
from tflm.testing.drawing import FLOAT32, INT8, INT16, INT32, INT64, LARGE_SHAPE, Draw, OperatorCase, scales, shapes
from tflm.testing.operators.single_operator import SingleOperator, any_values


def _indices(draw: Draw, model: SingleOperator, sizes: int | Sequence[int], shape: tuple[int, ...]) -> None:
    """Indices from 0 to below `sizes`, which broadcast with `shape`: a constant, or others in each invoke."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    arrays = [rng.integers(0, np.asarray(sizes, np.int64), shape).astype(np.int32) for _ in model.invocations]
    if draw(st.booleans()):
        model.constant(arrays[0])
    else:
        model.input(INT32, arrays)


@st.composite
def gather(draw: Draw) -> OperatorCase:
    """GATHER along any dimension, with dimensions of batches before it; the output's shape in the model may differ."""
    type = draw(st.sampled_from([FLOAT32, INT8]))
    shape = draw(shapes(1, 5, 4))
    axis = draw(st.integers(0, len(shape) - 1))
    batch_dims = draw(st.integers(0, axis))
    indices = (*shape[:batch_dims], *draw(shapes(0, 2, 4)))
    model = SingleOperator(invokes=2)
    if draw(st.integers(0, 3)) == 0:
        model.constant(any_values(draw, type, shape))
    else:
        model.drawn(draw, type, shape)
    _indices(draw, model, shape[axis], indices)
    result = (*shape[:axis], *indices[batch_dims:], *shape[axis + 1 :])
    options = GatherOptions(
        axis=axis - draw(st.sampled_from([0, len(shape)])),
        batch_dims=batch_dims - (draw(st.sampled_from([0, len(indices)])) if batch_dims < len(indices) else 0),
    )
    return model.case(BuiltinOperator.GATHER, [(result, type, None)], options)


@st.composite
def gather_nd(draw: Draw) -> OperatorCase:
    """GATHER_ND with indices of one number and more."""
    type = draw(st.sampled_from([FLOAT32, INT8]))
    shape = draw(shapes(1, 6, 4))
    length = draw(st.integers(1, min(len(shape), 5)))
    positions = draw(shapes(0, 2, 4))
    model = SingleOperator(invokes=2)
    model.drawn(draw, type, shape)
    _indices(draw, model, shape[:length], (*positions, length))
    return model.case(BuiltinOperator.GATHER_ND, [((*positions, *shape[length:]), type, None)])


@st.composite
def embedding_lookup(draw: Draw) -> OperatorCase:
    """EMBEDDING_LOOKUP of floats, of integers, and of integers that become floats."""
    type, result = draw(st.sampled_from([(FLOAT32, FLOAT32), (INT8, INT8), (INT8, FLOAT32)]))
    shape = draw(shapes(2, 4, 5))
    count = draw(st.integers(1, 6))
    model = SingleOperator(invokes=2)
    _indices(draw, model, shape[0], (count,))
    parameters = quantized(draw(scales())) if type == INT8 else None
    if draw(st.integers(0, 3)):
        model.constant(any_values(draw, type, shape), parameters)
    else:
        model.drawn(draw, type, shape, parameters)
    output = ((count, *shape[1:]), result, parameters if result == INT8 else None)
    return model.case(BuiltinOperator.EMBEDDING_LOOKUP, [output])


@st.composite
def dynamic_update_slice(draw: Draw) -> OperatorCase:
    """DYNAMIC_UPDATE_SLICE at any index, many of them out of range; sometimes the slice is the whole tensor."""
    type = draw(st.sampled_from([FLOAT32, INT8, INT16, INT32]))
    shape = draw(shapes(1, 6, 4))
    part = tuple(draw(st.integers(1, size)) for size in shape)
    model = SingleOperator(invokes=2)
    model.drawn(draw, type, shape)
    model.drawn(draw, type, part)
    numbers = draw(st.sampled_from([INT32, INT64]))
    limits = np.iinfo(ELEMENT_TYPES[numbers].dtype)
    anywhere = st.integers(-5, 5) | st.integers(0, 3) | st.sampled_from([int(limits.min), int(limits.max)])
    model.either(draw, [draw(anywhere) for _ in shape], numbers)
    return model.case(BuiltinOperator.DYNAMIC_UPDATE_SLICE, [(shape, type, None)])


OPERATORS = {
    "GATHER": gather(),
    "GATHER_ND": gather_nd(),
    "EMBEDDING_LOOKUP": embedding_lookup(),
    "DYNAMIC_UPDATE_SLICE": dynamic_update_slice(),
}


def _large(name: str, type: TensorType, result: TensorType) -> OperatorCase:
    """Indices and starts that are inputs."""
    model = SingleOperator()
    shape, indices, dims, options = LARGE_OPERATORS[name]
    data = np.ones(shape, ELEMENT_TYPES[type].dtype)
    numbers = np.random.default_rng(0).integers(0, 16, indices).astype(np.int32)
    parameters = quantized(0.5) if type == INT8 else None
    if name == "EMBEDDING_LOOKUP":
        model.input(INT32, [numbers])
        model.input(type, [data], parameters)
    else:
        model.input(type, [data], parameters)
        if name == "DYNAMIC_UPDATE_SLICE":
            model.input(type, [data[:, 1:, :-1, 2:]], parameters)
        model.input(INT32, [numbers])
    return model.case(BuiltinOperator[name], [(dims, result, None if result == FLOAT32 else parameters)], options)


LARGE_OPERATORS: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], Any]] = {
    "GATHER": ((1, 8, 64), (1, 8192), (1, 8, 8192), GatherOptions(axis=2, batch_dims=1)),
    "GATHER_ND": ((64, 64, 32), (8192, 2), (8192, 32), None),
    "EMBEDDING_LOOKUP": ((64, 32), (8192,), (8192, 32), None),
    "DYNAMIC_UPDATE_SLICE": (LARGE_SHAPE, (4,), LARGE_SHAPE, None),
}
"""Shapes of what is indexed, of the indices and of the output; options."""

LARGE = {
    f"{name}-{type.name}": partial(_large, name, type, type) for name in LARGE_OPERATORS for type in (FLOAT32, INT8)
}
LARGE |= {
    f"DYNAMIC_UPDATE_SLICE-{type.name}": partial(_large, "DYNAMIC_UPDATE_SLICE", type, type) for type in (INT16, INT32)
}
LARGE["EMBEDDING_LOOKUP-hybrid"] = partial(_large, "EMBEDDING_LOOKUP", INT8, FLOAT32)
