"""Models of operators that move whole tensors, of pools, of resized images and of L2_NORMALIZATION."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from tflm.schema import ELEMENT_TYPES, BuiltinOperator, MirrorPadMode, Padding, quantized
from tflm.testing.drawing import (
    FLOAT32,
    INT8,
    INT32,
    INT64,
    Draw,
    OperatorCase,
    quantization,
    shapes,
    sizes,
    zero_point_of,
)
from tflm.testing.operators.declared import (
    NUMPY_TYPES,
    OPERATORS,
    WITHOUT_ACTIVATION,
    DrawnOperator,
    options_of,
    strategy,
)


@strategy("RESHAPE")
def reshape(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Draw a RESHAPE with or without the shape as an input, sometimes with a dimension of -1."""
    shape = draw(shapes(0, 4))
    target = list(draw(st.permutations([*shape, 1])))
    if draw(st.booleans()):
        target[draw(st.integers(0, len(target) - 1))] = -1
    model.operand(shape)
    if draw(st.booleans()):
        model.numbers(target)
    y = model.main.tensor("y", target, model.type)
    model.main.operator(BuiltinOperator.RESHAPE, model.operands, [y], options_of("RESHAPE", new_shape=tuple(target)))
    # The wheel reads shapes of outputs from the model, where a dimension of -1 remains: add a tensor after it.
    model.operands = [y]
    return model.result(shapes=[(math.prod(shape),)], options=None)


@strategy("EXPAND_DIMS")
def expand_dims(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Anywhere."""
    shape = draw(shapes(0, 5))
    model.operand(shape)
    said = draw(st.integers(0, len(shape))) - draw(st.sampled_from([0, len(shape) + 1]))
    model.constant(np.int32(said) if draw(st.booleans()) else np.array([said], np.int32))
    return model.result()


@strategy("SQUEEZE")
def squeeze(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Some dimensions of 1, or all."""
    shape = draw(shapes(1, 8, 3))
    ones = [axis for axis, size in enumerate(shape) if size == 1]
    squeezed = draw(st.lists(st.sampled_from(ones), max_size=8)) if ones and draw(st.booleans()) else []
    model.operand(shape)
    return model.result(squeeze_dims=tuple(axis - draw(st.sampled_from([0, len(shape)])) for axis in squeezed))


def paddings(draw: Draw, limits: list[int]) -> list[tuple[int, int]]:
    """Elements before and after each dimension."""
    return [draw(st.tuples(st.integers(0, limit), st.integers(0, limit))) for limit in limits]


@strategy("PAD", "PADV2", invokes=2)
def pad(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """The value of PADV2 may be an input, or be left out."""
    shape, parameters = draw(shapes(1, 5, 4)), quantization(draw, model.type)
    model.operand(shape, parameters)
    padding = np.array(paddings(draw, [3] * len(shape)), np.int32)
    model.constant(padding.reshape(draw(st.sampled_from([(-1, 2), (-1,)]))))
    kind = draw(st.sampled_from(["constant", "input", "left out"])) if model.name == "PADV2" else None
    if kind == "constant":
        model.constant(np.array(draw(st.integers(-9, 9)), ELEMENT_TYPES[model.type].dtype), parameters)
    elif kind == "input":
        model.operand(draw(st.sampled_from([(), (1,), (1, 1)])), parameters)
    elif kind == "left out":
        model.omitted()
    return model.result(parameters)


@strategy("MIRROR_PAD", invokes=2)
def mirror_pad(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Draw both modes, with paddings that the input allows. Without options, the mode is symmetric."""
    shape = draw(shapes(1, 4, 4))
    mode = draw(st.none() | st.sampled_from(MirrorPadMode))
    padding = paddings(draw, [size - (mode == MirrorPadMode.REFLECT) for size in shape])
    model.operand(shape)
    model.numbers(padding, draw(st.sampled_from([INT32, INT64])))
    return model.result(options=None if mode is None else options_of("MIRROR_PAD", mode=mode))


@strategy("TRANSPOSE")
def transpose(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Up to five dimensions."""
    shape = draw(shapes(1, 5, 5))
    model.operand(shape)
    model.constant(np.array(draw(st.permutations(range(len(shape)))), np.int32))
    return model.result()


@strategy("REVERSE_V2", invokes=2)
def reverse(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Along neighbouring dimensions, named in any order; TFLM refuses others."""
    shape = draw(shapes(1, 6, 4))
    first = draw(st.integers(0, len(shape) - 1))
    axes = draw(st.permutations(range(first, draw(st.integers(first + 1, len(shape))))))
    if draw(st.integers(0, 9)) == 0:
        axes = draw(st.lists(st.integers(0, len(shape)), min_size=1, max_size=len(shape)))
    model.operand(shape)
    model.numbers([axis - draw(st.sampled_from([0, len(shape)])) for axis in axes])
    return model.result()


@strategy("BROADCAST_TO", kinds=NUMPY_TYPES, invokes=2)
def broadcast_to(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Draw broadcasts along any dimensions of 1, and along new ones."""
    result = draw(st.lists(st.integers(2, 4) | st.just(1), min_size=1, max_size=5))
    model.operand([draw(st.sampled_from([size, size, 1])) for size in result][draw(st.sampled_from([0, 0, 1, 2])) :])
    model.constant(np.array(result, draw(st.sampled_from([np.int32, np.int64]))))
    return model.result()


@strategy("BROADCAST_ARGS", invokes=2)
def broadcast_args(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Shapes that match, with ones here and there, of any lengths; some that do not."""
    result = draw(st.lists(st.integers(-2, 9) | st.just(2**31 - 1), min_size=1, max_size=6))
    for _ in range(2):
        thinned = [draw(st.sampled_from([1, size, size])) for size in result][draw(st.integers(0, len(result) - 1)) :]
        if draw(st.integers(0, 19)) == 0:
            thinned[0] = 7
        model.numbers(thinned, model.type)
    return model.result(shapes=[(draw(st.integers(1, 8)),)])


@strategy("FILL", invokes=2)
def fill(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """A constant or an input."""
    model.constant(np.array(draw(shapes(1, 5)), draw(st.sampled_from([np.int8, np.int16, np.int32, np.int64]))))
    if draw(st.booleans()):
        model.operand(())
    else:
        model.constant(np.array(draw(st.integers(-9, 9)), ELEMENT_TYPES[model.type].dtype))
    return model.result()


@strategy("SHAPE")
def shape_of(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Any type and rank."""
    model.operand(draw(shapes(0, 6)))
    return model.result(type=INT32, out_type=INT32)


@strategy("SPACE_TO_DEPTH", "DEPTH_TO_SPACE")
def space_and_depth(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Images, and deep ones."""
    batch, rows, columns, depth = (draw(st.integers(1, 4)) for _ in range(4))
    block = draw(st.integers(1, 3))
    image, deep = (batch, rows * block, columns * block, depth), (batch, rows, columns, depth * block * block)
    model.operand(image if model.name == "SPACE_TO_DEPTH" else deep)
    return model.result(block_size=block)


@strategy("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND", invokes=2)
def space_and_batch(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """SPACE_TO_BATCH_ND without a border, BATCH_TO_SPACE_ND with one; of images, and of rows.

    TFLM makes the border of SPACE_TO_BATCH_ND of a value that it never sets.
    """
    spatial = draw(st.integers(1, 2))
    batch, depth = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    counts = [draw(st.integers(1, 4)) for _ in range(spatial)]
    block = [draw(st.integers(1, 3)) for _ in range(spatial)]
    whole = [count * size for count, size in zip(counts, block)]
    border = [(0, 0)] * spatial
    operand, result = (batch, *whole, depth), (batch * math.prod(block), *counts, depth)
    if model.name == "BATCH_TO_SPACE_ND":
        before = [draw(st.integers(0, size - 1)) for size in whole]
        border = [(first, draw(st.integers(0, size - first - 1))) for first, size in zip(before, whole)]
        operand, result = result, (batch, *(size - sum(cropped) for size, cropped in zip(whole, border)), depth)
    model.operand(operand)
    model.numbers(block)
    model.numbers(border)
    return model.result(shapes=[result])


@st.composite
def bordered_space_to_batch(draw: Draw) -> OperatorCase:
    """Draw a SPACE_TO_BATCH_ND with a border that BATCH_TO_SPACE_ND crops again, so that the rest keeps its
    position."""
    model = DrawnOperator(draw, "BATCH_TO_SPACE_ND")
    batch, height, width, depth = shape = tuple(draw(st.integers(1, 4)) for _ in range(4))
    block = [draw(st.integers(1, 3)) for _ in range(2)]
    top, left = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    bottom, right = -(height + top) % block[0], -(width + left) % block[1]
    counts = (height + top + bottom) // block[0], (width + left + right) // block[1]
    model.operand(shape)
    model.numbers(block)
    model.numbers([(top, bottom), (left, right)])
    batches = model.main.tensor("batches", (batch * math.prod(block), *counts, depth), model.type)
    model.main.operator(BuiltinOperator.SPACE_TO_BATCH_ND, model.operands, [batches])
    model.operands[0] = batches
    return model.result(shapes=[shape])


OPERATORS["SPACE_TO_BATCH_ND"] |= bordered_space_to_batch()

TYPES = (FLOAT32, INT8)


POOLS = ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")


@strategy(*POOLS)
def pool(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Windows as large as the input, or larger where padding allows it."""
    shape = draw(st.tuples(st.integers(1, 2), st.integers(1, 9), st.integers(1, 9), sizes(5)))
    padding = draw(st.sampled_from(Padding))
    windows = shape[1:3]
    if draw(st.integers(0, 3)):
        windows = [draw(st.integers(1, size + (0 if padding == Padding.VALID else 3))) for size in windows]
    strides = {f"stride_{axis}": draw(st.integers(1, 4)) for axis in "hw"}
    parameters = quantization(draw, model.type, -20, 4)
    model.operand(shape, parameters)
    return model.result(parameters, padding=padding, filter_height=windows[0], filter_width=windows[1], **strides)


@strategy("RESIZE_NEAREST_NEIGHBOR", "RESIZE_BILINEAR", invokes=2)
def resize(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Images made larger and smaller, sometimes to one very long line."""
    batches, depth = draw(st.integers(1, 2)), draw(st.integers(1, 4))
    sizes = [draw(st.integers(1, 8) | st.integers(1, 40)) for _ in range(2)]
    wanted = [draw(st.integers(1, 12) | st.integers(1, 60)) for _ in range(2)]
    if draw(st.integers(0, 9)) == 0:
        wanted = [1, draw(st.integers(500, 3000))]
    parameters = quantization(draw, model.type)
    model.operand((batches, *sizes, depth), parameters)
    model.constant(np.array(wanted, np.int32))
    align, half = draw(st.booleans()), draw(st.booleans())
    if model.name == "RESIZE_BILINEAR":
        half = half and not align
        assume(model.type == FLOAT32 or all(_stays_inside(*pair, align, half) for pair in zip(sizes, wanted)))
    return model.result(parameters, align_corners=align, half_pixel_centers=half)


def _stays_inside(size: int, wanted: int, align: bool, half: bool) -> bool:
    """Whether integers are interpolated within the input: TFLM's rounded scale may lead past the last element."""
    over, under = (size - 1, wanted - 1) if align and wanted > 1 else (size, wanted)
    scale = (1024 * over + under // 2) // under
    return (wanted - 1) * scale + (scale // 2 - 512 if half else 0) < 1024 * size


@strategy("L2_NORMALIZATION")
def l2_normalization(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Short and long vectors, some of them all zero point."""
    shape = (*draw(shapes(0, 3, 4)), draw(st.integers(1, 8) | st.integers(1, 200)))
    if draw(st.integers(0, 19)) == 0:
        shape = (draw(st.integers(1, 2)), draw(st.integers(9000, 20000)))
    parameters = quantization(draw, model.type)
    if draw(st.booleans()):
        model.operand(shape, parameters)
    else:
        rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        near = zero_point_of(parameters) + rng.integers(-3, 4, shape) * rng.integers(0, 2, (*shape[:-1], 1))
        model.input(model.type, [np.clip(near, -128, 127).astype(ELEMENT_TYPES[model.type].dtype)], parameters)
    return model.result(quantized(1 / 128) if model.type == INT8 else None, **WITHOUT_ACTIVATION)
