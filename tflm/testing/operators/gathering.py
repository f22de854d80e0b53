"""Models of operators that take slices at indices, or put one there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from tflm.kernels import REGISTRATIONS
from tflm.schema import ELEMENT_TYPES, quantized
from tflm.testing.drawing import FLOAT32, INT8, INT32, INT64, LARGE_SHAPE, Draw, OperatorCase, scales, shapes
from tflm.testing.operators.declared import DrawnOperator, large, strategy

LOOKUPS = [*((type, type) for type in REGISTRATIONS["EMBEDDING_LOOKUP"].types), (INT8, FLOAT32)]


def _indices(draw: Draw, model: DrawnOperator, sizes: int | Sequence[int], shape: tuple[int, ...]) -> None:
    """Indices from 0 to below `sizes`, which broadcast with `shape`: a constant, or others in each invoke."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    arrays = [rng.integers(0, np.asarray(sizes, np.int64), shape).astype(np.int32) for _ in model.invocations]
    if draw(st.booleans()):
        model.constant(arrays[0])
    else:
        model.input(INT32, arrays)


@strategy("GATHER", invokes=2)
def gather(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Along any dimension, with dimensions of batches before it."""
    shape = draw(shapes(1, 5, 4))
    axis = draw(st.integers(0, len(shape) - 1))
    batch_dims = draw(st.integers(0, axis))
    indices = (*shape[:batch_dims], *draw(shapes(0, 2, 4)))
    (model.operand if draw(st.integers(0, 3)) else model.weights)(shape)
    _indices(draw, model, shape[axis], indices)
    counted_back = draw(st.sampled_from([0, len(indices)])) if batch_dims < len(indices) else 0
    return model.result(
        axis=axis - draw(st.sampled_from([0, len(shape)])),
        batch_dims=batch_dims - counted_back,
    )


@strategy("GATHER_ND", invokes=2)
def gather_nd(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Indices of one number and more."""
    shape = draw(shapes(1, 6, 4))
    length = draw(st.integers(1, min(len(shape), 5)))
    positions = draw(shapes(0, 2, 4))
    model.operand(shape)
    _indices(draw, model, shape[:length], (*positions, length))
    return model.result(shapes=[(*positions, *shape[length:])])


@strategy("EMBEDDING_LOOKUP", kinds=LOOKUPS, invokes=2)
def embedding_lookup(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Floats, integers, and integers that become floats."""
    shape, count = draw(shapes(2, 4, 5)), draw(st.integers(1, 6))
    _indices(draw, model, shape[0], (count,))
    parameters = quantized(draw(scales())) if model.type == INT8 else None
    (model.weights if draw(st.integers(0, 3)) else model.operand)(shape, parameters)
    return model.result(None if model.types[1] == FLOAT32 else parameters, shapes=[(count, *shape[1:])])


@strategy("DYNAMIC_UPDATE_SLICE", invokes=2)
def dynamic_update_slice(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Draw an update at any index, often out of range; sometimes the slice is the whole tensor."""
    shape = draw(shapes(1, 6, 4))
    model.operand(shape)
    model.operand([draw(st.integers(1, size)) for size in shape])
    numbers = draw(st.sampled_from([INT32, INT64]))
    limits = np.iinfo(ELEMENT_TYPES[numbers].dtype)
    anywhere = st.integers(-5, 5) | st.integers(0, 3) | st.sampled_from([int(limits.min), int(limits.max)])
    model.numbers([draw(anywhere) for _ in shape], numbers)
    return model.result()


def _fed(*shape: int) -> np.ndarray:
    """Indices and starts that are inputs."""
    return np.random.default_rng(0).integers(0, 16, shape).astype(np.int32)


large("GATHER", (1, 8, 64), _fed(1, 8192), axis=2, batch_dims=1)
large("GATHER_ND", (64, 64, 32), _fed(8192, 2), shapes=[(8192, 32)])
large("EMBEDDING_LOOKUP", _fed(8192), (64, 32), kinds=LOOKUPS, shapes=[(8192, 32)])
large("DYNAMIC_UPDATE_SLICE", LARGE_SHAPE, (1, 63, 63, 30), _fed(4))
