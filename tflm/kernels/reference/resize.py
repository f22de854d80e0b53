"""RESIZE_NEAREST_NEIGHBOR and RESIZE_BILINEAR: images with another height and width, which are a constant.

Images are (batch, height, width, depth). Positions in the input are computed for rows and columns separately: in
float32, or in steps of 1/1024 for int8 interpolation.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple, Union

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.fixed_point import round_half_away_array, rounding_divide_by_pot
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.shapes import Shapes, StaticNode
from tflm.kernels.support.checks import constant_integers, require_one_type, shape_error
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.options import ResizeBilinearOptions, ResizeNearestNeighborOptions
from tflm.schema.version_rules import Feature, either, input_is, option
from tflm.targets import BOOL, Struct

NEAREST_TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT16)
BILINEAR_TYPES = (TensorType.FLOAT32, TensorType.INT8)
STEP_BITS = 10
STEPS = 1 << STEP_BITS
"""Steps from one element to the next for integer interpolation."""

TFLITE_RESIZE_NEAREST_NEIGHBOR_PARAMS = Struct(
    "TfLiteResizeNearestNeighborParams", align_corners=BOOL, half_pixel_centers=BOOL
)
TFLITE_RESIZE_BILINEAR_PARAMS = Struct("TfLiteResizeBilinearParams", align_corners=BOOL, half_pixel_centers=BOOL)

Options = Union[ResizeBilinearOptions, ResizeNearestNeighborOptions]
Array = npt.NDArray[Any]


class Neighbours(NamedTuple):
    """Along a dimension, the two elements of the input on either side of each element of the output.

    Attributes:
        places: their indices, (2, elements).
        weights: float32, or int32 in steps of 1/1024; (2, elements).
    """

    places: npt.NDArray[np.int64]
    weights: Array


def _prepared(node: Node, types: tuple[TensorType, ...]) -> tuple[TfLiteTensor, tuple[int, int]]:
    """Check the tensors, and return the input with height and width of the output."""
    input, size, output = node.expect_tensors(2)
    require_one_type(types, output, input)
    if len(input.dims) != 4 or 0 in input.dims:
        raise shape_error(input, ", must be (batch, height, width, depth)")
    if len(size.dims) != 1:
        raise shape_error(size, ", must have 2 elements")
    height, width = constant_integers(size, 2)
    dims = (input.dims[0], height, width, input.dims[3])
    if len(output.dims) > 4 or (1,) * (4 - len(output.dims)) + output.dims != dims or min(dims) < 1:
        raise shape_error(output, f", must have {list(dims)}")
    return input, (height, width)


def _prepare_nearest(context: KernelContext, node: Node) -> None:
    """The op data are the rows and columns of the input that the output consists of."""
    input, wanted = _prepared(node, NEAREST_TYPES)
    size = node.eval_input(1)
    if size.dims != (2,):
        raise shape_error(size, ", must have 2 elements")
    options = node.options(ResizeNearestNeighborOptions)
    node.op_data = [_nearest(*sizes, options) for sizes in zip(input.dims[1:3], wanted)]


def _nearest(size: int, wanted: int, options: Options) -> npt.NDArray[np.int64]:
    """GetNearestNeighbor of each element of the output along a dimension."""
    offset = np.float32(0.5 if options.half_pixel_centers else 0)
    places = (np.arange(wanted, dtype=np.float32) + offset) * _scale(size, wanted, options)
    whole = round_half_away_array(places) if options.align_corners else np.floor(places)
    return np.minimum(whole.astype(np.int64), size - 1)


def _scale(size: int, wanted: int, options: Options) -> np.float32:
    """Input elements per output element."""
    if options.align_corners and wanted > 1:
        return np.float32(size - 1) / np.float32(wanted - 1)
    return np.float32(size) / np.float32(wanted)


def _bind_nearest(context: KernelContext, node: Node) -> Run:
    x, y = _images(node)
    rows, columns = node.op_data

    def run() -> None:
        y[...] = x[:, rows[:, np.newaxis], columns]

    return run


def _images(node: Node) -> tuple[Array, Array]:
    x, y = node.eval_input(0).elements, node.eval_output(0).elements
    return x, y.reshape((1,) * (4 - y.ndim) + y.shape)


def _prepare_bilinear(context: KernelContext, node: Node) -> None:
    """The op data are the neighbours of each row and of each column."""
    input, wanted = _prepared(node, BILINEAR_TYPES)
    options = node.options(ResizeBilinearOptions)
    if options.half_pixel_centers and options.align_corners:
        raise OperatorError("has both half_pixel_centers and align_corners; only one of them is allowed")
    values = _interpolation_values if input.type == TensorType.FLOAT32 else _interpolation_values_integer
    node.op_data = [values(*sizes, options) for sizes in zip(input.dims[1:3], wanted)]
    for size, dimension in zip(input.dims[1:3], node.op_data):
        if dimension.places[0].max() >= size:
            raise shape_error(input, "; so large an output would read beyond its last element")


def _interpolation_values(size: int, wanted: int, options: Options) -> Neighbours:
    """ComputeInterpolationValues."""
    half = np.float32(0.5 if options.half_pixel_centers else 0)
    position = (np.arange(wanted, dtype=np.float32) + half) * _scale(size, wanted, options) - half
    lower = np.maximum(np.floor(position), np.float32(0))
    upper = np.minimum(np.ceil(position), np.float32(size - 1))
    weight = position - lower
    return Neighbours(np.array([lower, upper], np.int64), np.array([1 - weight, weight], np.float32))


def _interpolation_values_integer(size: int, wanted: int, options: Options) -> Neighbours:
    """ComputeInterpolationValuesInteger."""
    over, under = (size - 1, wanted - 1) if options.align_corners and wanted > 1 else (size, wanted)
    scale = (STEPS * over + under // 2) // under
    position = np.arange(wanted, dtype=np.int64) * scale
    position += scale // 2 - STEPS // 2 if options.half_pixel_centers else 0
    lower = np.maximum(position >> STEP_BITS, 0)
    upper = np.minimum((position + STEPS - 1) >> STEP_BITS, size - 1)
    weight = position - lower * STEPS
    return Neighbours(np.array([lower, upper], np.int64), np.array([STEPS - weight, weight], np.int32))


def _bind_bilinear(context: KernelContext, node: Node) -> Run:
    x, y = _images(node)
    rows, columns = node.op_data

    def run() -> None:
        total = _interpolated(x, rows, columns)
        y[...] = total if y.dtype == np.float32 else rounding_divide_by_pot(total, 2 * STEP_BITS)

    return run


def _interpolated(x: Array, rows: Neighbours, columns: Neighbours) -> Array:
    """The sum of the four neighbours times their weights: float32, each product rounded as in TFLM, or Q11.20."""
    corners = []
    for right, below in itertools.product(range(2), range(2)):
        neighbours = x[:, rows.places[below][:, np.newaxis], columns.places[right]]
        weighted = neighbours * rows.weights[below][:, np.newaxis, np.newaxis]
        corners.append(weighted * columns.weights[right][:, np.newaxis])
    total: Array = sum(corners, start=np.zeros((), rows.weights.dtype))
    return total


def _output_shapes(node: StaticNode) -> Shapes:
    batch, _, _, channels = node.images()
    return [(batch, *node.numbers(1), channels)]


RESIZE_BILINEAR = Registration(
    BuiltinOperator.RESIZE_BILINEAR,
    _bind_bilinear,
    _prepare_bilinear,
    requests=tensors(2),
    builtin_data=TFLITE_RESIZE_BILINEAR_PARAMS,
    max_version=4,
    types=BILINEAR_TYPES,
    since="27eff3c71",
    output_shapes=_output_shapes,
    versions={4: input_is("INT16"), 3: option("half_pixel_centers"), 2: input_is("INT8")},
)
RESIZE_NEAREST_NEIGHBOR = Registration(
    BuiltinOperator.RESIZE_NEAREST_NEIGHBOR,
    _bind_nearest,
    _prepare_nearest,
    requests=tensors(2),
    builtin_data=TFLITE_RESIZE_NEAREST_NEIGHBOR_PARAMS,
    max_version=4,
    types=NEAREST_TYPES,
    output_shapes=_output_shapes,
    versions={
        4: input_is("INT16"),
        3: Feature(
            "half_pixel_centers and align_corners", either(option("half_pixel_centers"), option("align_corners"))
        ),
        2: input_is("INT8"),
    },
)
