"""Convolve images of one channel, or a few windows, without an im2col tile.

Weights of four channels are packed in a word, as in `dense`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.c.kernels import convolution, windows_in_place
from tflm.c.kernels.convolution import Layer, bind_layer, layer_of, part_of
from tflm.c.kernels.dense import RUN, bind_vectors
from tflm.c.kernels.encoded import bind_encoded_vectors, bind_encoded_windows, is_encoded
from tflm.c.kernels.im2col import WINDOWS
from tflm.c.kernels.part import NEVER, Part, first_places
from tflm.compiler.language import Step
from tflm.kernels.layers.convolution import OpDataConv
from tflm.kernels.layers.geometry import Axis, Windows, windows
from tflm.kernels.node import Node
from tflm.kernels.overlap import FAR, NOWHERE, OperatorFacts
from tflm.kernels.reference.convolution import CONV_INPUTS

SMALL = 64
"""Maximum number of products in a window for which an im2col tile is used."""


def is_flat(rows: Axis, columns: Axis, x: tuple[int, ...], itemsize: int) -> bool:
    """Whether windows of an image with one channel are read in place, because an im2col tile would take much memory.

    Args:
        x: (batches, rows, columns, channels).
    """
    products = rows.taps * columns.taps
    return itemsize == 1 and x[3] == 1 and rows.dilation == columns.dilation == 1 and SMALL < products <= RUN


def are_vectors(rows: Axis, columns: Axis, itemsize: int) -> bool:
    """Whether the elements of each window are adjacent, and the windows too few for an im2col tile to pay."""
    is_whole = columns.windows == 1 and columns.before == 0 and columns.taps == columns.size
    is_inside = rows.before <= 0 and rows.stop <= rows.size and rows.dilation == columns.dilation == 1
    return itemsize == 1 and rows.windows < WINDOWS and is_whole and is_inside


def bind_windows(
    layer: Layer,
    rows: Axis,
    columns: Axis,
    x: npt.NDArray[Any],
    y: npt.NDArray[Any],
    stored: npt.NDArray[Any] | None = None,
) -> list[Step] | None:
    """Return the steps that set y to the windows of x times the weights of a layer; None if sums can exceed 32 bits.

    Args:
        x, y: (batches, rows, columns, channels).
        stored: the tensor with the layer's weights, in their order; it may be encoded.
    """
    is_one_group = len(layer.weights) == 1
    if is_one_group and are_vectors(rows, columns, x.itemsize):
        return _bind_vectors(layer, rows, columns, x, y, stored)
    if stored is not None and not (is_one_group and is_flat(rows, columns, x.shape, x.itemsize)):
        encoded = bind_encoded_windows(layer, rows, columns, x, y, stored)
        if encoded is not None:
            return encoded
    if windows_in_place.has_long_runs(columns, layer.weights.shape[4], x.shape, x.itemsize):
        return windows_in_place.bind_layer(layer, rows, columns, x, y)
    is_one_channel = is_one_group and is_flat(rows, columns, x.shape, x.itemsize)
    return (windows_in_place.bind_layer if is_one_channel else bind_layer)(layer, rows, columns, x, y)


def _bind_vectors(
    layer: Layer, rows: Axis, columns: Axis, x: npt.NDArray[Any], y: npt.NDArray[Any], stored: npt.NDArray[Any] | None
) -> list[Step] | None:
    step = rows.stride * columns.size * x.shape[3]
    vectors = [(of_x[-rows.before :].reshape(-1), of_y.reshape(rows.windows, -1)) for of_x, of_y in zip(x, y)]
    bound = [None if stored is None else bind_encoded_vectors(layer, *arrays, stored, 0, step) for arrays in vectors]
    if None in bound:
        bound = [bind_vectors(layer, *arrays, step) for arrays in vectors]
    return None if None in bound else [step for steps in bound for step in steps or ()]


def bind_conv_2d(node: Node, part: Part | None = None) -> Sequence[Step] | None:
    """Bind CONV_2D."""
    layer, x, y = _bound(node)
    op: OpDataConv = node.op_data
    if layer is None:
        return None
    rows, x, y, _ = part_of(part, op.rows, x, y)
    return bind_windows(layer, rows, op.columns, x, y, node.eval_input(CONV_INPUTS.weights).elements)


def bind_lean_conv_2d(node: Node, part: Part | None = None) -> Sequence[Step] | None:
    """Bind CONV_2D without an im2col tile; returns None for encoded weights, which would be decoded."""
    layer, x, y = _bound(node)
    op: OpDataConv = node.op_data
    if layer is None or is_encoded(node.eval_input(CONV_INPUTS.weights).elements):
        return None
    return windows_in_place.bind_layer(layer, op.rows, op.columns, x, y)


def _bound(node: Node) -> tuple[Layer | None, npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the layer of a CONV_2D, its input and its output; None for a layer whose weights are not constant."""
    x, weights, bias, y, constant = CONV_INPUTS.bound(node)
    op: OpDataConv = node.op_data
    if not constant or op.multiplier is None:
        return None, x, y
    groups = x.shape[3] // weights.shape[3]
    by_group = weights[: y.shape[3]].reshape(groups, -1, *weights.shape[1:])
    return layer_of(by_group, bias, op, op.input_zero_point), x, y


def overlap(facts: OperatorFacts, both: Windows | None = None, input: int = 0) -> range:
    """Return how many bytes after the output's first byte the input may begin. Windows are as given, or as the options
    say."""
    x, y, both = facts.inputs[0], facts.outputs[0], both or windows(facts)
    weights = facts.inputs[1]
    if input or x is None or weights is None or both is None or x.dims[0] != 1:
        return NOWHERE
    if windows_in_place.has_long_runs(both[1], weights.dims[3], x.dims, x.itemsize):
        return windows_in_place.overlap(facts, both)
    if not are_vectors(*both, x.itemsize) and not is_flat(*both, x.dims, x.itemsize):
        return convolution.overlap(facts, both)
    reads = first_places(*both)
    seen = reads < NEVER
    # Each window is read once for every four channels.
    ends = np.arange(1, len(reads) + 1, dtype=np.int64)
    distances = ends[seen] * (y.dims[3] * y.itemsize) - reads[seen] * (x.dims[3] * x.itemsize)
    return range(int(distances.max(initial=1 - FAR)), FAR)


def scratch_bytes(facts: OperatorFacts, both: Windows | None = None) -> int:
    """Return the size of the im2col tile of four windows, if one is used."""
    x, weights, both = facts.inputs[0], facts.inputs[1], both or windows(facts)
    assert x is not None
    assert weights is not None
    assert both is not None
    if windows_in_place.has_long_runs(both[1], weights.dims[3], x.dims, x.itemsize):
        return 0
    is_one_group = weights.dims[3] == x.dims[3]
    if is_one_group and (are_vectors(*both, x.itemsize) or is_flat(*both, x.dims, x.itemsize)):
        return 0
    return convolution.scratch_bytes(facts, both)
