"""How operators move along time: where time is in their output, and the rows of time that each output row reads.

A row is the elements of a tensor that belong to one time step. Operators without a rule need all rows of their inputs,
and are computed for every window.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from tflm.graph import Graph
from tflm.kernels.layers.geometry import effective_size
from tflm.kernels.overlap import element_wise, row_wise
from tflm.schedule.bands import WINDOWED, BandStep, windows_of
from tflm.schedule.rows import Border, Rows, Window, band_of_border, band_of_windows
from tflm.schema.enums import BuiltinOperator, Padding
from tflm.schema.tables import Operator


class Track(NamedTuple):
    """Time along a tensor: row i is the elements [i * unit, (i + 1) * unit) of the dimension `axis`.

    Attributes:
        axis: the dimension.
        unit: elements of that dimension in a row.
        rows: number of rows.
    """

    axis: int
    unit: int
    rows: int


class Read(NamedTuple):
    """A row of an input that an output row depends on; None for a row of padding."""

    place: int
    row: int | None


class TimeRule(NamedTuple):
    """How an operator computes rows of its outputs.

    Attributes:
        places: the inputs that have rows; all others are constant.
        track: time along each of the outputs.
        stride: input rows from one output row to the next.
        reads: everything that an output row depends on, in order.
        step: the operator for a range of output rows.
        crops: whether the output is a range of input rows, unchanged.
        causal: as `step`, with all padding along time at its start, for rows from before the window, too; None
            without padding.
    """

    places: tuple[int, ...]
    track: Track
    stride: int
    reads: Callable[[int], tuple[Read, ...]]
    step: Callable[[Rows], BandStep]
    crops: bool = False
    causal: Callable[[Rows], BandStep] | None = None


Tracks = Mapping[int, Track]
"""Time along each tensor that has rows, by its index."""


def time_rule(graph: Graph, operator: Operator, tracks: Tracks) -> TimeRule | None:
    """The rule of an operator; None if it has to be computed whole."""
    inputs, outputs = operator.inputs or (), operator.outputs or ()
    varying = [place for place, t in enumerate(inputs) if t >= 0 and not graph.is_constant(t)]
    found = {tracks.get(inputs[place]) for place in varying}
    if not varying or not outputs or None in found or operator.intermediates:
        return None
    rule = RULES.get(graph.code(operator))
    if rule is not None:
        return rule(graph, operator, tracks)
    overlap = graph.registration(operator).overlap
    if overlap is element_wise:
        return _element_wise(graph, operator, tracks)
    return _other_axes(graph, operator, tracks) if overlap is row_wise else None


def _same_rows(track: Track, places: tuple[int, ...]) -> TimeRule:
    """Output row i depends on row i of the inputs."""
    return TimeRule(
        places,
        track,
        1,
        lambda row: tuple(Read(place, row) for place in places),
        lambda wanted: BandStep(dict.fromkeys(places, wanted), wanted, {}, {}),
    )


def _element_wise(graph: Graph, operator: Operator, tracks: Tracks) -> TimeRule | None:
    """All inputs have the same rows; constants have none, that is, they broadcast along time."""
    inputs, (output, *others) = operator.inputs or (), operator.outputs or ()
    shape, places, found = graph.shape(output), [], set()
    for place, tensor in enumerate(inputs):
        if tensor < 0:
            continue
        behind = len(shape) - len(graph.shape(tensor))
        if graph.is_constant(tensor):
            continue
        track = tracks[tensor]
        found.add(track._replace(axis=track.axis + behind))
        places.append(place)
    if len(found) != 1 or others:
        return None
    (track,) = found
    if shape[track.axis] != track.rows * track.unit:
        return None
    for tensor in inputs:
        if tensor >= 0 and graph.is_constant(tensor) and _extent(graph.shape(tensor), track.axis - len(shape)) != 1:
            return None
    return _same_rows(track, tuple(places))


def _extent(shape: tuple[int, ...], axis: int) -> int:
    """Size of a dimension that is counted from the end; 1 if there is no such dimension."""
    return shape[axis] if len(shape) >= -axis else 1


def _other_axes(graph: Graph, operator: Operator, tracks: Tracks) -> TimeRule | None:
    """Operators along the last dimension, such as SOFTMAX, if time is another one."""
    track = tracks[(operator.inputs or ())[0]]
    return _same_rows(track, (0,)) if track.axis < len(graph.shape((operator.inputs or ())[0])) - 1 else None


def _windows(graph: Graph, operator: Operator, tracks: Tracks) -> TimeRule | None:
    """Convolution and pooling, along either dimension of the image."""
    inputs, (output, *_) = operator.inputs or (), operator.outputs or ()
    options: Any = operator.builtin_options
    track = tracks.get(inputs[0])
    is_image = len(graph.shape(inputs[0])) == len(graph.shape(output)) == 4
    if track is None or track.axis not in (1, 2) or track.unit != 1 or options is None or not is_image:
        return None
    both = windows_of(graph, operator, options)
    if both is None or min(axis.dilation for axis in both) < 1:
        return None
    time, other = both[track.axis - 1], both[2 - track.axis]
    extent = effective_size(time.taps, time.dilation)
    window = Window(time.size, extent, time.stride, time.before, other.leaves_image)

    def reads(row: int) -> tuple[Read, ...]:
        first = row * time.stride - time.before
        taps = range(first, first + extent, max(time.dilation, 1))
        return tuple(Read(0, place if 0 <= place < time.size else None) for place in taps)

    def step(wanted: Rows) -> BandStep:
        band = band_of_windows(window, wanted)
        return BandStep({0: band.needed}, band.made, {"padding": band.padding}, {})

    def causal(wanted: Rows) -> BandStep:
        padding = max((time.windows - 1) * time.stride + extent - time.size, 0)
        needed = Rows(wanted.first * time.stride - padding, (wanted.end - 1) * time.stride - padding + extent)
        return BandStep({0: needed}, wanted, {"padding": Padding.VALID}, {})

    return TimeRule((0,), Track(track.axis, 1, time.windows), time.stride, reads, step, causal=causal)


def _pad(graph: Graph, operator: Operator, tracks: Tracks) -> TimeRule | None:
    inputs = operator.inputs or ()
    track = tracks.get(inputs[0])
    if track is None or not all(map(graph.is_constant, inputs[1:])):
        return None
    paddings = graph.constant(inputs[1])
    if paddings.shape != (len(graph.shape(inputs[0])), 2) or (paddings < 0).any():
        return None
    before, after = paddings[track.axis].tolist()
    if track.unit > 1 and (before or after):
        return None
    border = Border(track.rows, before, after)

    def reads(row: int) -> tuple[Read, ...]:
        return (Read(0, row - before if 0 <= row - before < track.rows else None),)

    def step(wanted: Rows) -> BandStep:
        band = band_of_border(border, wanted)
        own = np.array(paddings, None)
        own[track.axis] = band.before, band.after
        return BandStep({0: band.needed}, band.made, {}, {1: own})

    def causal(wanted: Rows) -> BandStep:
        own = np.array(paddings, None)
        own[track.axis] = 0
        return BandStep({0: Rows(wanted.first - before - after, wanted.end - before - after)}, wanted, {}, {1: own})

    return TimeRule((0,), track._replace(rows=before + track.rows + after), 1, reads, step, causal=causal)


def moved(track: Track, before: tuple[int, ...], after: tuple[int, ...]) -> Track | None:
    """Return the time track after a RESHAPE: the dimension whose elements, with those after it, divide into the same
    rows."""
    row = track.unit * math.prod(before[track.axis + 1 :])
    found = []
    for axis, size in enumerate(after):
        inner = math.prod(after[axis + 1 :])
        if size * inner == track.rows * row and row % inner == 0:
            found.append(Track(axis, row // inner, track.rows))
    return min(found, key=lambda each: each.unit) if found else None


def _reshape(graph: Graph, operator: Operator, tracks: Tracks) -> TimeRule | None:
    inputs, (output, *_) = operator.inputs or (), operator.outputs or ()
    track = moved(tracks[inputs[0]], graph.shape(inputs[0]), graph.shape(output))
    if track is None:
        return None

    def step(wanted: Rows) -> BandStep:
        shape = list(graph.shape(output))
        shape[track.axis] = wanted.size * track.unit
        options = {} if operator.builtin_options is None else {"new_shape": tuple(shape)}
        return BandStep({0: wanted}, wanted, options, {1: np.array(shape, np.int32)})

    return _same_rows(track, (0,))._replace(step=step)


def _transpose(graph: Graph, operator: Operator, tracks: Tracks) -> TimeRule | None:
    inputs = operator.inputs or ()
    if not graph.is_constant(inputs[1]):
        return None
    track = tracks[inputs[0]]
    return _same_rows(track._replace(axis=graph.constant(inputs[1]).tolist().index(track.axis)), (0,))


def _concatenation(graph: Graph, operator: Operator, tracks: Tracks) -> TimeRule | None:
    """CONCATENATION along another dimension."""
    inputs, options = operator.inputs or (), operator.builtin_options
    found = {tracks.get(tensor) for tensor in inputs}
    (track, *others) = found
    if others or track is None or options is None:
        return None
    along: Any = options
    rank = len(graph.shape(inputs[0]))
    return _same_rows(track, tuple(range(len(inputs)))) if along.axis % rank != track.axis else None


def _split(graph: Graph, operator: Operator, tracks: Tracks) -> TimeRule | None:
    """SPLIT and SPLIT_V along another dimension."""
    inputs = operator.inputs or ()
    place, axis = (1, 0) if graph.code(operator) is BuiltinOperator.SPLIT else (0, 2)
    track = tracks.get(inputs[place])
    if track is None or not graph.is_constant(inputs[axis]):
        return None
    along = int(graph.constant(inputs[axis]).reshape(-1)[0]) % len(graph.shape(inputs[place]))
    return _same_rows(track, (place,)) if along != track.axis else None


def _slice(graph: Graph, operator: Operator, tracks: Tracks) -> TimeRule | None:
    """A range of rows, of a range of each row."""
    inputs, (output, *_) = operator.inputs or (), operator.outputs or ()
    track = tracks.get(inputs[0])
    if track is None or not all(map(graph.is_constant, inputs[1:])):
        return None
    begins, shape = graph.constant(inputs[1]).astype(np.int32), graph.shape(output)
    whole = graph.shape(inputs[0])
    first, rest = divmod(int(begins[track.axis]), track.unit)
    rows, part = divmod(shape[track.axis], track.unit)
    if rest or part or not rows:
        return None

    def step(wanted: Rows) -> BandStep:
        own = np.array(begins, None)
        own[track.axis] = 0
        size = np.array(shape, np.int32)
        size[track.axis] = wanted.size * track.unit
        needed = Rows(wanted.first + first, wanted.end + first)
        return BandStep({0: needed}, wanted, {}, {1: own, 2: size})

    crops = all(a == b for axis, (a, b) in enumerate(zip(whole, shape)) if axis != track.axis)
    return TimeRule((0,), track._replace(rows=rows), 1, lambda row: (Read(0, row + first),), step, crops)


def _reduction(graph: Graph, operator: Operator, tracks: Tracks) -> TimeRule | None:
    """MEAN, SUM and others over other dimensions."""
    inputs, options = operator.inputs or (), operator.builtin_options
    track = tracks.get(inputs[0])
    if track is None or options is None or not graph.is_constant(inputs[1]):
        return None
    rank = len(graph.shape(inputs[0]))
    reduced = {axis % rank for axis in graph.constant(inputs[1]).reshape(-1).tolist()}
    if track.axis in reduced:
        return None
    flags: Any = options
    gone = 0 if flags.keep_dims else sum(axis < track.axis for axis in reduced)
    return _same_rows(track._replace(axis=track.axis - gone), (0,))


def _fully_connected(graph: Graph, operator: Operator, tracks: Tracks) -> TimeRule | None:
    """FULLY_CONNECTED of each row alone: its depth is within a row."""
    inputs, (output, *_) = operator.inputs or (), operator.outputs or ()
    if tracks.get(inputs[0]) is None or not graph.is_constant(inputs[1]):
        return None
    track, shape, weights = tracks[inputs[0]], graph.shape(inputs[0]), graph.shape(inputs[1])
    if len(weights) != 2 or shape[-1] != weights[1] or track.axis == len(shape) - 1 or track.unit != 1:
        return None
    rows = (*shape[:-1], weights[0])
    made = moved(track, rows, graph.shape(output)) if graph.size(output) == math.prod(rows) else None
    return None if made is None else _same_rows(made, (0,))


RULES: dict[BuiltinOperator, Callable[[Graph, Operator, Tracks], TimeRule | None]] = {
    **dict.fromkeys(WINDOWED, _windows),
    **dict.fromkeys((BuiltinOperator.PAD, BuiltinOperator.PADV2), _pad),
    **dict.fromkeys((BuiltinOperator.SPLIT, BuiltinOperator.SPLIT_V), _split),
    **dict.fromkeys(
        (BuiltinOperator.MEAN, BuiltinOperator.SUM, BuiltinOperator.REDUCE_MAX, BuiltinOperator.REDUCE_MIN), _reduction
    ),
    BuiltinOperator.RESHAPE: _reshape,
    BuiltinOperator.TRANSPOSE: _transpose,
    BuiltinOperator.CONCATENATION: _concatenation,
    BuiltinOperator.SLICE: _slice,
    BuiltinOperator.FULLY_CONNECTED: _fully_connected,
}
"""The rules of operators that are neither element-wise nor row-wise."""
