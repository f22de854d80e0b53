"""RESIZE_NEAREST_NEIGHBOR and RESIZE_BILINEAR: images of another height and width, which are a constant of the model.

Images are (batch, height, width, depth). Where an element of the output lies between elements of the input is worked
out once, for each dimension, as TFLM does it: in float32, and for int8 that is interpolated, in steps of 1/1024.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Union

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.host_memory import kept
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.support.checks import constant_integers, require_same_type, require_type
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.options import ResizeBilinearOptions, ResizeNearestNeighborOptions
from tflm.targets import BOOL, Struct

NEAREST_TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT16)
BILINEAR_TYPES = (TensorType.FLOAT32, TensorType.INT8)
STEP_BITS = 10
STEPS = 1 << STEP_BITS
"""Places between two elements, where integers are interpolated."""

TFLITE_RESIZE_NEAREST_NEIGHBOR_PARAMS = Struct(
    "TfLiteResizeNearestNeighborParams", align_corners=BOOL, half_pixel_centers=BOOL
)
TFLITE_RESIZE_BILINEAR_PARAMS = Struct("TfLiteResizeBilinearParams", align_corners=BOOL, half_pixel_centers=BOOL)

Options = Union[ResizeBilinearOptions, ResizeNearestNeighborOptions]
Weights = npt.NDArray[Any]


@dataclass
class Between:
    """For each element of the output along a dimension, the two of the input that it lies between, and their weights.

    Attributes:
        places: indices of the one before and the one after; intp.
        weights: of these; float32, or int32 in steps of 1/1024.
    """

    places: tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]
    weights: tuple[Weights, Weights]


def _prepared(
    context: KernelContext, node: Node, types: tuple[TensorType, ...]
) -> tuple[TfLiteTensor, tuple[int, int]]:
    """The input, and height and width of the output; checked."""
    node.expect(inputs=2, outputs=1)
    input, size = (context.input_tensor(node, i) for i in range(2))
    output = context.output_tensor(node, 0)
    require_type(output, *types)
    require_same_type(input, output)
    if len(input.dims) != 4 or 0 in input.dims:
        reason = f"has shape {list(input.dims)}, must be (batch, height, width, depth)"
        raise OperatorError(reason, tensor=input.name)
    if len(size.dims) != 1:
        raise OperatorError(f"has shape {list(size.dims)}, must have 2 elements", tensor=size.name)
    height, width = constant_integers(size, 2)
    dims = (input.dims[0], height, width, input.dims[3])
    if len(output.dims) > 4 or (1,) * (4 - len(output.dims)) + output.dims != dims or min(dims) < 1:
        raise OperatorError(f"has shape {list(output.dims)}, must have {list(dims)}", tensor=output.name)
    return input, (height, width)


def _prepare_nearest(context: KernelContext, node: Node) -> None:
    """The op data are the rows and columns of the input that are taken."""
    input, wanted = _prepared(context, node, NEAREST_TYPES)
    size = context.get_eval_input(node, 1)
    if size.dims != (2,):
        raise OperatorError(f"has shape {list(size.dims)}, must have 2 elements", tensor=size.name)
    options = node.options(ResizeNearestNeighborOptions) or ResizeNearestNeighborOptions()
    node.op_data = [_nearest(*sizes, options) for sizes in zip(input.dims[1:3], wanted)]


def _nearest(size: int, wanted: int, options: Options) -> npt.NDArray[np.intp]:
    offset = np.float32(0.5 if options.half_pixel_centers else 0)
    places = (np.arange(wanted, dtype=np.float32) + offset) * _scale(size, wanted, options)
    # No place is negative: half away from zero is half up.
    whole = _rounded(places) if options.align_corners else np.floor(places)
    return np.minimum(whole.astype(np.intp), size - 1)


def _rounded(places: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    whole = np.floor(places)
    rounded: npt.NDArray[np.float32] = whole + (places - whole >= 0.5)
    return rounded


def _scale(size: int, wanted: int, options: Options) -> np.float32:
    """Elements of the input to one of the output."""
    if options.align_corners and wanted > 1:
        return np.float32(size - 1) / np.float32(wanted - 1)
    return np.float32(size) / np.float32(wanted)


def _bind_nearest(context: KernelContext, node: Node) -> Run:
    input, y = context.get_eval_input(node, 0), context.get_eval_output(node, 0).elements
    pixels = kept(pixel_places(input.dims, *node.op_data))
    table, target = input.elements.reshape(-1, input.dims[3]), y.reshape(*pixels.shape, input.dims[3])

    def run() -> None:
        table.take(pixels, axis=0, out=target, mode="clip")

    return run


def pixel_places(
    dims: tuple[int, ...], rows: npt.NDArray[np.intp], columns: npt.NDArray[np.intp]
) -> npt.NDArray[np.intp]:
    """Where the pixels at these rows and columns are among all pixels of the images: (batch, row, column)."""
    batches, height, width = dims[:3]
    all_rows = np.arange(batches, dtype=np.intp)[:, np.newaxis] * height + rows
    pixels: npt.NDArray[np.intp] = all_rows[:, :, np.newaxis] * width + columns
    return pixels


def _prepare_bilinear(context: KernelContext, node: Node) -> None:
    """The op data say where rows and columns of the output lie."""
    input, wanted = _prepared(context, node, BILINEAR_TYPES)
    options = node.options(ResizeBilinearOptions) or ResizeBilinearOptions()
    if options.half_pixel_centers and options.align_corners:
        raise OperatorError("has both half_pixel_centers and align_corners; only one of them can be")
    between = _between if input.type == TensorType.FLOAT32 else _between_in_steps
    node.op_data = [between(*sizes, options) for sizes in zip(input.dims[1:3], wanted)]
    for size, dimension in zip(input.dims[1:3], node.op_data):
        if dimension.places[0].max() >= size:
            reason = f"has shape {list(input.dims)}; enlarged by so much, elements behind its last would be taken"
            raise OperatorError(reason, tensor=input.name)


def _between(size: int, wanted: int, options: Options) -> Between:
    half = np.float32(0.5 if options.half_pixel_centers else 0)
    places = (np.arange(wanted, dtype=np.float32) + half) * _scale(size, wanted, options) - half
    before = np.maximum(np.floor(places), np.float32(0))
    after = np.minimum(np.ceil(places), np.float32(size - 1))
    weight = places - before
    return Between((before.astype(np.intp), after.astype(np.intp)), (1 - weight, weight))


def _between_in_steps(size: int, wanted: int, options: Options) -> Between:
    over, under = (size - 1, wanted - 1) if options.align_corners and wanted > 1 else (size, wanted)
    scale = (STEPS * over + under // 2) // under
    places = np.arange(wanted, dtype=np.int64) * scale + (scale // 2 - STEPS // 2 if options.half_pixel_centers else 0)
    before = np.maximum(places >> STEP_BITS, 0)
    after = np.minimum((places + STEPS - 1) >> STEP_BITS, size - 1)
    weight = (places - before * STEPS).astype(np.int32)
    return Between((before.astype(np.intp), after.astype(np.intp)), (STEPS - weight, weight))


def _bind_bilinear(context: KernelContext, node: Node) -> Run:
    input, y = context.get_eval_input(node, 0), context.get_eval_output(node, 0).elements
    table = input.elements.reshape(-1, input.dims[3])
    rows, columns = node.op_data
    corners = []
    for j in range(2):
        for i in range(2):
            pixels = kept(pixel_places(input.dims, rows.places[i], columns.places[j]))
            corners.append((pixels, rows.weights[i][:, np.newaxis], columns.weights[j]))
    target = y.reshape(*corners[0][0].shape, input.dims[3])
    bind = _bind_float_corners if table.dtype == np.float32 else _bind_int8_corners
    return bind(table, target, corners)


Corner = tuple[npt.NDArray[np.intp], Weights, Weights]
"""Pixels of the input that are at one corner of the output's; weights by row, (rows, 1), and by column."""


def _spread(weights: Weights, shape: tuple[int, ...]) -> Weights:
    """Weights of rows and columns for each element of (batch, row, column, depth)."""
    return kept(np.broadcast_to(weights[..., np.newaxis], shape).copy())


def _bind_float_corners(table: npt.NDArray[Any], y: npt.NDArray[Any], corners: list[Corner]) -> Run:
    """Each product is rounded, weight by weight, as in TFLM: where terms cancel, that shows."""
    term = kept(np.empty(y.shape, np.float32))
    steps = [(pixels, _spread(by_row, y.shape), _spread(by_column, y.shape)) for pixels, by_row, by_column in corners]

    def run() -> None:
        y.fill(0)
        for pixels, by_row, by_column in steps:
            table.take(pixels, axis=0, out=term, mode="clip")
            np.multiply(term, by_row, out=term)
            np.multiply(term, by_column, out=term)
            np.add(y, term, out=y)

    return run


def _bind_int8_corners(table: npt.NDArray[Any], y: npt.NDArray[Any], corners: list[Corner]) -> Run:
    """Sums of four products in Q11.20, then rounded, halves away from zero."""
    taken = kept(np.empty(y.shape, np.int8))
    sums, term = (kept(np.empty(y.shape, np.int32)) for _ in range(2))
    steps = [(pixels, _spread(by_row * by_column, y.shape)) for pixels, by_row, by_column in corners]
    half, bits = np.int32(1 << (2 * STEP_BITS - 1)), 2 * STEP_BITS

    def run() -> None:
        sums.fill(0)
        for pixels, weights in steps:
            table.take(pixels, axis=0, out=taken, mode="clip")
            np.copyto(term, taken)
            np.multiply(term, weights, out=term)
            np.add(sums, term, out=sums)
        np.right_shift(sums, 31, out=term)
        np.add(sums, term, out=sums)
        np.add(sums, half, out=sums)
        np.right_shift(sums, bits, out=sums)
        np.copyto(y, sums, casting="unsafe")

    return run


RESIZE_BILINEAR = Registration(
    BuiltinOperator.RESIZE_BILINEAR,
    _bind_bilinear,
    _prepare_bilinear,
    requests=tensors(2),
    builtin_data=TFLITE_RESIZE_BILINEAR_PARAMS,
    max_version=4,
    types=BILINEAR_TYPES,
    since="27eff3c71",
)
RESIZE_NEAREST_NEIGHBOR = Registration(
    BuiltinOperator.RESIZE_NEAREST_NEIGHBOR,
    _bind_nearest,
    _prepare_nearest,
    requests=tensors(2),
    builtin_data=TFLITE_RESIZE_NEAREST_NEIGHBOR_PARAMS,
    max_version=4,
    types=NEAREST_TYPES,
)
