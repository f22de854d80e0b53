"""Models of operators that move whole tensors: into another shape or order, padded, repeated, rearranged."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tflm.schema import (
    ELEMENT_TYPES,
    BuiltinOperator,
    DepthToSpaceOptions,
    MirrorPadMode,
    MirrorPadOptions,
    ReshapeOptions,
    ShapeOptions,
    SpaceToDepthOptions,
    SqueezeOptions,
    TensorType,
    quantized,
)
from tflm.testing.drawing import (
    FLOAT32,
    INT8,
    INT16,
    INT32,
    INT64,
    LARGE_SHAPE,
    UINT8,
    Draw,
    OperatorCase,
    quantization,
    shapes,
)
from tflm.testing.operators.single_operator import SingleOperator

NUMPY_TYPES = [
    FLOAT32,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    TensorType.UINT32,
    TensorType.UINT64,
    TensorType.BOOL,
    TensorType.FLOAT16,
    TensorType.FLOAT64,
    TensorType.COMPLEX64,
]
"""Types that the wheel takes from numpy. TFLM copies others too."""

PAD_TYPES = [FLOAT32, INT8, INT16, INT32]
SPACE_TYPES = [FLOAT32, INT8]


@st.composite
def reshape(draw: Draw) -> OperatorCase:
    """RESHAPE of any type, with or without the shape as an input, sometimes with a dimension of -1."""
    type = draw(st.sampled_from(NUMPY_TYPES))
    shape = draw(shapes(0, 4))
    target = list(draw(st.permutations([*shape, 1])))
    if draw(st.booleans()):
        target[draw(st.integers(0, len(target) - 1))] = -1
    model = SingleOperator()
    model.drawn(draw, type, shape)
    if draw(st.booleans()):
        model.either(draw, target, INT32)
    y = model.main.tensor("y", target, type)
    model.main.operator(BuiltinOperator.RESHAPE, model.operands, [y], ReshapeOptions(new_shape=tuple(target)))
    # The wheel reads shapes of outputs from the model, where a dimension of -1 stays: give a tensor behind it.
    model.operands = [y]
    return model.case(BuiltinOperator.RESHAPE, [((math.prod(shape),), type, None)])


@st.composite
def expand_dims(draw: Draw) -> OperatorCase:
    """EXPAND_DIMS anywhere."""
    type = draw(st.sampled_from([FLOAT32, INT8, INT16]))
    shape = draw(shapes(0, 5))
    axis = draw(st.integers(0, len(shape)))
    model = SingleOperator()
    model.drawn(draw, type, shape)
    said = axis - draw(st.sampled_from([0, len(shape) + 1]))
    model.constant(np.int32(said) if draw(st.booleans()) else np.array([said], np.int32))
    return model.case(BuiltinOperator.EXPAND_DIMS, [((*shape[:axis], 1, *shape[axis:]), type, None)])


@st.composite
def squeeze(draw: Draw) -> OperatorCase:
    """SQUEEZE of some dimensions of 1, or of all."""
    type = draw(st.sampled_from(NUMPY_TYPES))
    shape = draw(shapes(1, 8, 3))
    rank = len(shape)
    ones = [axis for axis, size in enumerate(shape) if size == 1]
    squeezed = draw(st.lists(st.sampled_from(ones), max_size=8)) if ones and draw(st.booleans()) else []
    result = [size for axis, size in enumerate(shape) if axis not in (squeezed or ones)]
    options = SqueezeOptions(squeeze_dims=tuple(axis - draw(st.sampled_from([0, rank])) for axis in squeezed))
    model = SingleOperator()
    model.drawn(draw, type, shape)
    return model.case(BuiltinOperator.SQUEEZE, [(result, type, None)], options)


def paddings(draw: Draw, limits: tuple[int, ...]) -> list[tuple[int, int]]:
    """Elements before and after each dimension."""
    return [draw(st.tuples(st.integers(0, limit), st.integers(0, limit))) for limit in limits]


def padded(shape: tuple[int, ...], padding: list[tuple[int, int]]) -> tuple[int, ...]:
    """The shape of what is padded."""
    return tuple(before + size + after for size, (before, after) in zip(shape, padding))


@st.composite
def pad(draw: Draw, operator: BuiltinOperator) -> OperatorCase:
    """PAD and PADV2; the value of PADV2 may be an input, or be left out."""
    type = draw(st.sampled_from(PAD_TYPES))
    shape = draw(shapes(1, 5, 4))
    padding = paddings(draw, (3,) * len(shape))
    parameters = quantization(draw, type)
    model = SingleOperator(invokes=2)
    model.drawn(draw, type, shape, parameters)
    model.constant(np.array(padding, np.int32).reshape(draw(st.sampled_from([(-1, 2), (-1,)]))))
    kind = draw(st.sampled_from(["constant", "input", "left out"]))
    if operator == BuiltinOperator.PADV2 and kind == "constant":
        model.constant(np.array(draw(st.integers(-9, 9)), ELEMENT_TYPES[type].dtype), parameters)
    elif operator == BuiltinOperator.PADV2 and kind == "input":
        model.drawn(draw, type, draw(st.sampled_from([(), (1,), (1, 1)])), parameters)
    elif operator == BuiltinOperator.PADV2:
        model.operands.append(-1)
    return model.case(operator, [(padded(shape, padding), type, parameters)])


@st.composite
def mirror_pad(draw: Draw) -> OperatorCase:
    """MIRROR_PAD in both modes, as far as the input reaches; without options it is symmetric."""
    type = draw(st.sampled_from(SPACE_TYPES))
    shape = draw(shapes(1, 4, 4))
    options = draw(st.none() | st.sampled_from(MirrorPadMode).map(lambda mode: MirrorPadOptions(mode=mode)))
    offset = 1 if options is not None and options.mode == MirrorPadMode.REFLECT else 0
    padding = paddings(draw, tuple(size - offset for size in shape))
    model = SingleOperator(invokes=2)
    model.drawn(draw, type, shape)
    model.either(draw, padding, draw(st.sampled_from([INT32, INT64])))
    return model.case(BuiltinOperator.MIRROR_PAD, [(padded(shape, padding), type, None)], options)


@st.composite
def transpose(draw: Draw) -> OperatorCase:
    """TRANSPOSE of up to five dimensions."""
    type = draw(st.sampled_from([FLOAT32, INT8, INT16]))
    shape = draw(shapes(1, 5, 5))
    order = draw(st.permutations(range(len(shape))))
    model = SingleOperator()
    model.drawn(draw, type, shape)
    model.constant(np.array(order, np.int32))
    return model.case(BuiltinOperator.TRANSPOSE, [([shape[axis] for axis in order], type, None)])


@st.composite
def reverse(draw: Draw) -> OperatorCase:
    """REVERSE_V2 along neighbouring dimensions, named in any order; TFLM refuses others."""
    type = draw(st.sampled_from([FLOAT32, INT8, UINT8, INT16, INT32, INT64, TensorType.BOOL]))
    shape = draw(shapes(1, 6, 4))
    first = draw(st.integers(0, len(shape) - 1))
    axes = draw(st.permutations(range(first, draw(st.integers(first + 1, len(shape))))))
    if draw(st.integers(0, 9)) == 0:
        axes = draw(st.lists(st.integers(0, len(shape)), min_size=1, max_size=len(shape)))
    model = SingleOperator(invokes=2)
    model.drawn(draw, type, shape)
    model.either(draw, [axis - draw(st.sampled_from([0, len(shape)])) for axis in axes], INT32)
    return model.case(BuiltinOperator.REVERSE_V2, [(shape, type, None)])


@st.composite
def broadcast_to(draw: Draw) -> OperatorCase:
    """BROADCAST_TO along any dimensions of 1, and new ones."""
    type = draw(st.sampled_from(NUMPY_TYPES))
    result = draw(st.lists(st.integers(2, 4) | st.just(1), min_size=1, max_size=5))
    shape = tuple(draw(st.sampled_from([size, size, 1])) for size in result)[draw(st.sampled_from([0, 0, 1, 2])) :]
    model = SingleOperator(invokes=2)
    model.drawn(draw, type, shape)
    model.constant(np.array(result, draw(st.sampled_from([np.int32, np.int64]))))
    return model.case(BuiltinOperator.BROADCAST_TO, [(result, type, None)])


@st.composite
def broadcast_args(draw: Draw) -> OperatorCase:
    """BROADCAST_ARGS of shapes that match, with ones here and there, of any lengths; of some that do not."""
    type = draw(st.sampled_from([INT32, INT64]))
    result = draw(st.lists(st.integers(-2, 9) | st.just(2**31 - 1), min_size=1, max_size=6))
    model = SingleOperator(invokes=2)
    for _ in range(2):
        thinned = [draw(st.sampled_from([1, size, size])) for size in result][draw(st.integers(0, len(result) - 1)) :]
        if draw(st.integers(0, 19)) == 0:
            thinned[0] = 7
        model.either(draw, thinned, type)
    return model.case(BuiltinOperator.BROADCAST_ARGS, [((draw(st.integers(1, 8)),), type, None)])


@st.composite
def fill(draw: Draw) -> OperatorCase:
    """FILL with a constant or an input."""
    type = draw(st.sampled_from([FLOAT32, INT8, INT32]))
    result = draw(shapes(1, 5))
    model = SingleOperator(invokes=2)
    model.constant(np.array(result, draw(st.sampled_from([np.int8, np.int16, np.int32, np.int64]))))
    if draw(st.booleans()):
        model.drawn(draw, type, ())
    else:
        model.constant(np.array(draw(st.integers(-9, 9)), ELEMENT_TYPES[type].dtype))
    return model.case(BuiltinOperator.FILL, [(result, type, None)])


@st.composite
def shape_of(draw: Draw) -> OperatorCase:
    """SHAPE of any type and rank."""
    type = draw(st.sampled_from(NUMPY_TYPES))
    shape = draw(shapes(0, 6))
    model = SingleOperator()
    model.drawn(draw, type, shape)
    return model.case(BuiltinOperator.SHAPE, [((len(shape),), INT32, None)], ShapeOptions(out_type=INT32))


@st.composite
def space_and_depth(draw: Draw, operator: BuiltinOperator) -> OperatorCase:
    """SPACE_TO_DEPTH and DEPTH_TO_SPACE."""
    type = draw(st.sampled_from(SPACE_TYPES))
    batch, rows, columns, depth = (draw(st.integers(1, 4)) for _ in range(4))
    block = draw(st.integers(1, 3))
    image, deep = (batch, rows * block, columns * block, depth), (batch, rows, columns, depth * block * block)
    model = SingleOperator()
    if operator == BuiltinOperator.SPACE_TO_DEPTH:
        model.drawn(draw, type, image)
        return model.case(operator, [(deep, type, None)], SpaceToDepthOptions(block_size=block))
    model.drawn(draw, type, deep)
    return model.case(operator, [(image, type, None)], DepthToSpaceOptions(block_size=block))


@st.composite
def space_and_batch(draw: Draw, operator: BuiltinOperator) -> OperatorCase:
    """SPACE_TO_BATCH_ND without a border, BATCH_TO_SPACE_ND with one; of images, and of rows.

    TFLM makes the border of SPACE_TO_BATCH_ND of a value that it never sets.
    """
    type = draw(st.sampled_from(SPACE_TYPES))
    spatial = draw(st.integers(1, 2))
    batch, depth = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    counts = [draw(st.integers(1, 4)) for _ in range(spatial)]
    block = [draw(st.integers(1, 3)) for _ in range(spatial)]
    whole = [count * size for count, size in zip(counts, block)]
    border = [(0, 0)] * spatial
    model = SingleOperator(invokes=2)
    batches = (batch * math.prod(block), *counts, depth)
    if operator == BuiltinOperator.SPACE_TO_BATCH_ND:
        model.drawn(draw, type, (batch, *whole, depth))
        result: tuple[int, ...] = batches
    else:
        model.drawn(draw, type, batches)
        before = [draw(st.integers(0, size - 1)) for size in whole]
        border = [(first, draw(st.integers(0, size - first - 1))) for first, size in zip(before, whole)]
        result = (batch, *(size - sum(cropped) for size, cropped in zip(whole, border)), depth)
    model.either(draw, block, INT32)
    model.either(draw, border, INT32)
    return model.case(operator, [(result, type, None)])


@st.composite
def bordered_space_to_batch(draw: Draw) -> OperatorCase:
    """SPACE_TO_BATCH_ND with a border, which BATCH_TO_SPACE_ND crops again: what is left is where it was."""
    type = draw(st.sampled_from(SPACE_TYPES))
    batch, height, width, depth = (draw(st.integers(1, 4)) for _ in range(4))
    block = [draw(st.integers(1, 3)) for _ in range(2)]
    top, left = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    bottom, right = -(height + top) % block[0], -(width + left) % block[1]
    counts = (height + top + bottom) // block[0], (width + left + right) // block[1]
    model = SingleOperator()
    model.drawn(draw, type, (batch, height, width, depth))
    model.either(draw, block, INT32)
    model.either(draw, [(top, bottom), (left, right)], INT32)
    batches = model.main.tensor("batches", (batch * block[0] * block[1], *counts, depth), type)
    model.main.operator(BuiltinOperator.SPACE_TO_BATCH_ND, model.operands, [batches])
    model.operands[0] = batches
    return model.case(BuiltinOperator.BATCH_TO_SPACE_ND, [((batch, height, width, depth), type, None)])


OPERATORS = {
    "RESHAPE": reshape(),
    "EXPAND_DIMS": expand_dims(),
    "SQUEEZE": squeeze(),
    "PAD": pad(BuiltinOperator.PAD),
    "PADV2": pad(BuiltinOperator.PADV2),
    "MIRROR_PAD": mirror_pad(),
    "TRANSPOSE": transpose(),
    "REVERSE_V2": reverse(),
    "BROADCAST_TO": broadcast_to(),
    "BROADCAST_ARGS": broadcast_args(),
    "FILL": fill(),
    "SHAPE": shape_of(),
    "SPACE_TO_DEPTH": space_and_depth(BuiltinOperator.SPACE_TO_DEPTH),
    "DEPTH_TO_SPACE": space_and_depth(BuiltinOperator.DEPTH_TO_SPACE),
    "SPACE_TO_BATCH_ND": space_and_batch(BuiltinOperator.SPACE_TO_BATCH_ND) | bordered_space_to_batch(),
    "BATCH_TO_SPACE_ND": space_and_batch(BuiltinOperator.BATCH_TO_SPACE_ND),
}

LARGE_OPERATORS: dict[str, tuple[list[Any], Any, tuple[int, ...]]] = {
    "RESHAPE": ([], None, (64 * 64 * 32,)),
    "EXPAND_DIMS": ([[0]], None, (1, *LARGE_SHAPE)),
    "SQUEEZE": ([], SqueezeOptions(), (64, 64, 32)),
    "PAD": ([[0, 0, 1, 1, 2, 2, 3, 3]], None, (1, 66, 68, 38)),
    "MIRROR_PAD": ([[(0, 0), (1, 1), (2, 2), (3, 3)]], None, (1, 66, 68, 38)),
    "TRANSPOSE": ([[0, 3, 2, 1]], None, (1, 32, 64, 64)),
    "REVERSE_V2": ([[1, 2]], None, LARGE_SHAPE),
    "BROADCAST_TO": ([[2, 64, 64, 32]], None, (2, 64, 64, 32)),
    "SPACE_TO_DEPTH": ([], SpaceToDepthOptions(block_size=2), (1, 32, 32, 128)),
    "DEPTH_TO_SPACE": ([], DepthToSpaceOptions(block_size=2), (1, 128, 128, 8)),
    "SPACE_TO_BATCH_ND": ([[2, 2], [1, 1, 1, 1]], None, (4, 33, 33, 32)),
    "BATCH_TO_SPACE_ND": ([[1, 1], [1, 1, 1, 1]], None, (1, 62, 62, 32)),
}
"""Constants of int32 that come after the large input, options, and shape of the output."""


def _large(name: str, type: TensorType) -> OperatorCase:
    constants, options, shape = LARGE_OPERATORS[name]
    parameters = quantized(0.5) if type in (INT8, INT16) else None
    model = SingleOperator()
    model.input(type, [np.ones(LARGE_SHAPE, ELEMENT_TYPES[type].dtype)], parameters)
    for numbers in constants:
        model.constant(np.array(numbers, np.int32))
    return model.case(BuiltinOperator[name], [(shape, type, parameters)], options)


def _large_fill() -> OperatorCase:
    model = SingleOperator()
    model.constant(np.array(LARGE_SHAPE, np.int32))
    model.input(FLOAT32, [np.array(2, np.float32)])
    return model.case(BuiltinOperator.FILL, [(LARGE_SHAPE, FLOAT32, None)])


def _large_broadcast_args() -> OperatorCase:
    model = SingleOperator()
    for size in (100_000, 50_000):
        model.input(INT64, [np.full(size, 2, np.int64)])
    return model.case(BuiltinOperator.BROADCAST_ARGS, [((100_000,), INT64, None)])


LARGE: dict[str, Callable[[], OperatorCase]] = {
    f"{name}-{type.name}": partial(_large, name, type) for name in LARGE_OPERATORS for type in SPACE_TYPES
}
LARGE |= {"FILL": _large_fill, "BROADCAST_ARGS": _large_broadcast_args}
