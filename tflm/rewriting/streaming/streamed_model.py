"""Rewrites a model over a window of frames for new frames only, and proves that the answers stay the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import ArgumentError, StreamError
from tflm.graph import Graph, multiply_accumulates
from tflm.planning.improved_model import ChangedModel
from tflm.rewriting.simplify import simplified
from tflm.rewriting.streaming.causal import (
    Stream,
    candidates,
    causal_form,
    convolution_out_of_step,
    minimum_hop,
    stream_along,
)
from tflm.rewriting.streaming.kept_rows import row_plan
from tflm.rewriting.streaming.stream_writer import StreamWriter, Values
from tflm.rewriting.streaming.time_rules import Track
from tflm.rewriting.verification import random_inputs, require_same_values
from tflm.runtime.growing_arena import ready_interpreter
from tflm.runtime.micro_interpreter import MicroInterpreter
from tflm.runtime.micro_measurement import measure_arena
from tflm.runtime.micro_op_resolver import AllOpsResolver, MicroMutableOpResolver
from tflm.schedule.normal_form import normalize
from tflm.schema.enums import ELEMENT_TYPES
from tflm.schema.model import Model, require_model
from tflm.schema.patch import with_data_inside

LISTED_HOPS = 3
MORE_WINDOWS = 4
"""Windows that are compared after the window is full of real frames."""

WINDOWS_AFTER_RESET = 2
"""Windows that are compared again, after a reset."""


@dataclass(frozen=True)
class StreamedLayer:
    """An operator whose output has rows of time.

    Attributes:
        index: its place in the simplified model.
        operator: its name.
        rows: rows of its output in a window.
        computed: rows that an invoke computes.
        kept: rows that it keeps in a variable.
        moved: rows that are new in a window.
    """

    index: int
    operator: str
    rows: int
    computed: int
    kept: int
    moved: int


@dataclass(frozen=True)
class StreamedModel(ChangedModel):
    """A model that takes the newest frames and answers for the window that ends with them; sizes in bytes.

    Attributes:
        data: the model, for stock TFLM.
        hop: frames of an invoke.
        window: frames that an answer is computed from: those of the original input, or more with `causal`.
        input: index of the input that is streamed.
        axis: dimension of the input along which frames are.
        frame: elements of that dimension in a frame.
        warm_up: invokes after a reset until only real frames count.
        state_bytes: size of the variables.
        macs, macs_before: multiply-accumulates of an invoke, and of the original model.
        macs_without_padding: the same if no rows next to padding had to be computed again.
        layers: the operators along time.
        windows_checked: windows whose answers were compared with the original's, or with those of its causal form.
        causal: whether this is another network, in which no layer looks at frames that are still to come.
    """

    data: bytes
    hop: int
    window: int
    input: int
    axis: int
    frame: int
    warm_up: int
    state_bytes: int
    macs: int
    macs_before: int
    macs_without_padding: int
    layers: tuple[StreamedLayer, ...]
    windows_checked: int
    causal: bool = False


def stream(
    model: Model,
    resolver: MicroMutableOpResolver | None = None,
    *,
    hop: int = 1,
    axis: int | None = None,
    input: int | None = None,
    initial: npt.ArrayLike | None = None,
    causal: bool = False,
    report: Callable[[str], None] = lambda _: None,
) -> StreamedModel:
    """Rewrite a model over a window of frames to take the newest frames only.

    Every invoke returns what the original returns for the window that ends with these frames, bit for bit. What stays
    the same from window to window is kept in resource variables, which begin with a window of zeros.

    Args:
        model: the model; one of its inputs is a window of frames.
        resolver: the available operators; None for all of the package.
        hop: new frames of an invoke.
        axis: the dimension of the input along which time runs; None to choose the one that saves most work.
        input: index of the input that is streamed; None to choose likewise.
        initial: the window before the first invoke, in the input's type and shape; None for zeros.
        causal: make another network with the same weights: no layer pads time, and the window begins as many frames
            earlier instead. Its answers differ.
        report: called with the name of each step.

    Raises:
        StreamError: no axis can be streamed, or not with this hop; the message names the operator and what to do.
        ArgumentError: another argument is invalid.
        TflmError: the model cannot be run.
        RewriteError: an answer differs from the original's.
    """
    original = with_data_inside(require_model(model))
    resolver = AllOpsResolver() if resolver is None else resolver
    if isinstance(hop, bool) or not isinstance(hop, int) or hop < 1:
        raise ArgumentError(f"invalid hop {hop!r} (expected the number of new frames, from 1)")
    graph = Graph(original)
    _require_fixed_shapes(graph)
    measure_arena(original, resolver)
    macs_before = sum(_macs(original))
    simplified(graph)
    normalize(graph)
    base = Model(graph.written())
    report("time axis")
    inputs, earlier = _require_input(graph, input), 0
    if causal:
        whole, earlier, axis, inputs = _best_causal_form(graph, base, hop, axis, inputs)
        original = base = whole
    graph = Graph(base)
    found = _best_stream(graph, _macs(base), hop, axis, inputs)
    place = graph.inputs.index(found.streamed)
    first = _first_window(graph, found, earlier, initial)
    values = _values(base, resolver, {t for t, rows in found.plan.items() if rows.kept}, place, first)
    layers = tuple(_layers(graph, base, found))
    used = row_plan(graph, found.timeline, found.streamed, keeps=False)[found.streamed].needed[0]
    state = StreamWriter(graph, found.timeline, found.plan, values).write(found.streamed)
    streamed = graph.checked()
    warm_up = math.ceil((found.track.rows - used.first) / hop)
    checked = warm_up + MORE_WINDOWS
    _verify((original, streamed), resolver, found, place, first, checked, report)
    return StreamedModel(
        data=bytes(streamed.data),
        hop=hop,
        window=found.track.rows,
        input=place,
        axis=found.track.axis,
        frame=found.track.unit,
        warm_up=warm_up,
        state_bytes=state,
        macs=sum(_macs(streamed)),
        macs_before=macs_before,
        macs_without_padding=_without_padding(_macs(base), found, base),
        layers=layers,
        windows_checked=checked,
        causal=causal,
    )


def _macs(model: Model) -> list[int]:
    main = model.subgraphs[0]
    return [multiply_accumulates(model, main, operator) for operator in main.operators or ()]


def _require_fixed_shapes(graph: Graph) -> None:
    for number, tensor in enumerate(graph.inputs):
        signature = graph.tensors[tensor].shape_signature or ()
        if 0 in graph.shape(tensor) or any(size < 0 for size in signature[1:]):
            raise StreamError(
                f"input {number} has a dynamic shape, {list(signature or graph.shape(tensor))}; "
                f"fix it first (tflm resize, or tflm.resize)"
            )


def _require_input(graph: Graph, input: int | None) -> list[int]:
    if input is None:
        return list(graph.inputs)
    if not 0 <= input < len(graph.inputs):
        raise ArgumentError(f"unknown input {input} (the model has {len(graph.inputs)}, counted from 0)")
    return [graph.inputs[input]]


def _tracks(graph: Graph, axis: int | None, inputs: Sequence[int]) -> list[tuple[int, Track]]:
    """Return the possible positions of frames in these inputs."""
    return [(tensor, track) for tensor in inputs for track in candidates(graph, tensor, axis)]


def _best_causal_form(
    graph: Graph, base: Model, hop: int, axis: int | None, inputs: Sequence[int]
) -> tuple[Model, int, int, list[int]]:
    """The causal form that saves the most work, the frames by which its window is longer, and its axis and input."""
    best, refusal = None, None
    for tensor, track in _tracks(graph, axis, inputs):
        try:
            made, earlier = causal_form(base, tensor, track)
        except StreamError as error:
            refusal = error
            continue
        longer = Graph(made)
        streamed = longer.inputs[graph.inputs.index(tensor)]
        macs = sum(stream_along(longer, _macs(made), streamed, track._replace(rows=track.rows + earlier), hop).macs)
        if earlier and (best is None or macs < best[0]):
            best = macs, made, earlier, track.axis, [streamed]
    if best is not None:
        return best[1:]
    raise refusal or StreamError("no layer pads time, so the causal form is the model itself; leave out causal=True")


def _best_stream(graph: Graph, macs: Sequence[int], hop: int, axis: int | None, inputs: Sequence[int]) -> Stream:
    """The input and the axis along which streaming saves the most work."""
    tracks = _tracks(graph, axis, inputs)
    if not tracks:
        shapes = ", ".join(str(list(graph.shape(tensor))) for tensor in inputs)
        raise StreamError(
            f"no input has a time axis of several frames (found {shapes or 'no inputs'}); stream a network "
            "over a window of frames, such as [1, 49, 40]" + ("" if axis is None else ", or choose another axis")
        )
    fitting = [(tensor, track) for tensor, track in tracks if hop < track.rows]
    if not fitting:
        longest = max(track.rows for _, track in tracks)
        raise StreamError(f"a hop of {hop} frames leaves nothing of a window of {longest}; use {longest - 1} or less")
    streams = [stream_along(graph, macs, tensor, track, hop) for tensor, track in fitting]
    best = min(streams, key=lambda each: sum(each.macs))
    if sum(best.macs) < sum(macs) and convolution_out_of_step(graph, best.timeline) is None:
        return best
    for tensor, track in tracks:
        if hop >= track.rows and _saves_work(graph, macs, tensor, track):
            raise StreamError(
                f"a hop of {hop} frames leaves nothing of a window of {track.rows}; use {track.rows - 1} or less"
            )
    raise StreamError(_why_not(graph, macs, hop, streams))


def _saves_work(graph: Graph, macs: Sequence[int], tensor: int, track: Track) -> bool:
    """Whether frames at this place in an input could be streamed with the smallest hop."""
    smallest = minimum_hop(graph, stream_along(graph, macs, tensor, track, 1).timeline)
    return smallest < track.rows and sum(stream_along(graph, macs, tensor, track, smallest).macs) < sum(macs)


def _why_not(graph: Graph, macs: Sequence[int], hop: int, streams: Sequence[Stream]) -> str:
    """Why no axis can be streamed: the hop, or the first operator that computes everything again."""
    hops = {(each.streamed, each.track): minimum_hop(graph, each.timeline) for each in streams}
    options = []
    for each in streams:
        smallest = hops[each.streamed, each.track]
        if smallest < each.track.rows and hop % smallest:
            again = stream_along(graph, macs, each.streamed, each.track, smallest)
            options.append((sum(again.macs), smallest, each))
    if options:
        _, smallest, each = min(options, key=lambda option: option[0])
        index = convolution_out_of_step(graph, each.timeline)
        fitting = list(range(smallest, each.track.rows, smallest))
        listed = ", ".join(map(str, fitting[:LISTED_HOPS])) + (", ..." if len(fitting) > LISTED_HOPS else "")
        where = "" if index is None else f" of operator {index} ({graph.code(graph.operators[index]).name})"
        return f"a hop of {hop} does not fit the strides{where}; use hops of {listed} frames"
    each = min(streams, key=lambda stream: sum(stream.macs))
    index = _first_whole(graph, each)
    name = graph.code(graph.operators[index]).name
    if graph.has_state(graph.operators[index]):
        return f"operator {index} ({name}) keeps state: the model takes new frames as it is and needs no streaming form"
    return (
        f"streaming along axis {each.track.axis} of the input saves no work: operator {index} ({name}) needs the whole "
        f"window again; choose another axis (tflm stream --axis), or stream a network with convolutions along time"
    )


def _first_whole(graph: Graph, stream: Stream) -> int:
    """The first operator that computes its output for every window."""
    for index, (operator, rule) in enumerate(zip(graph.operators, stream.timeline.rules)):
        if rule is None or not stream.timeline.tensors[(operator.outputs or ())[0]].same:
            return index
    return 0


def _first_window(graph: Graph, stream: Stream, earlier: int, initial: npt.ArrayLike | None) -> npt.NDArray[Any]:
    """Return the window before the first invoke: zeros in the input's quantization, except for given values.

    Args:
        earlier: frames at the start that the original's window does not have, and `initial` neither.
    """
    table, shape, track = graph.tensors[stream.streamed], list(graph.shape(stream.streamed)), stream.track
    dtype = ELEMENT_TYPES[table.type].dtype
    zero_points = table.quantization.zero_point if table.quantization is not None else None
    window = np.full(shape, zero_points[0] if zero_points else 0, dtype)
    if initial is None:
        return window
    given = np.asarray(initial, None)
    shape[track.axis] = (track.rows - earlier) * track.unit
    if given.shape != tuple(shape) or given.dtype != dtype:
        raise ArgumentError(
            f"the initial window is {given.dtype} of shape {list(given.shape)}; pass an array of {dtype} with shape "
            f"{shape}, like the input"
        )
    added = window.take(range(earlier * track.unit), track.axis)
    return np.concatenate([added, given], track.axis)


def _values(
    model: Model, resolver: MicroMutableOpResolver, tensors: set[int], place: int, window: npt.NDArray[Any]
) -> Values:
    """The elements of tensors for one window; other inputs are zeros, on which no kept row depends."""
    interpreter = ready_interpreter(model, resolver, delegates=(), preserve_all_tensors=True)
    interpreter.input(place).data[...] = window
    interpreter.invoke()
    return {tensor: np.array(interpreter.get_tensor(tensor).data, None) for tensor in tensors}


def _layers(graph: Graph, model: Model, stream: Stream) -> list[StreamedLayer]:
    layers = []
    for index, (operator, rule) in enumerate(zip(graph.operators, stream.timeline.rules)):
        output = (operator.outputs or (-1,))[0]
        if rule is None or output not in stream.plan:
            continue
        rows = stream.plan[output]
        computed, kept = (sum(each.size for each in ranges) for ranges in (rows.computed, rows.kept))
        shift = stream.timeline.tensors[output].shift
        moved = rule.track.rows if shift is None else shift
        layers.append(
            StreamedLayer(index, model.operator_name(operator), rule.track.rows, computed, kept, min(moved, computed))
        )
    return layers


def _without_padding(before: Sequence[int], found: Stream, base: Model) -> int:
    """Multiply-accumulates if every operator with rows computed new rows only."""
    total = 0
    operators = base.subgraphs[0].operators or ()
    for whole, macs, operator, rule in zip(before, found.macs, operators, found.timeline.rules):
        shift = None if rule is None else found.timeline.tensors[(operator.outputs or ())[0]].shift
        total += macs if rule is None or shift is None else min(macs, whole * shift // rule.track.rows)
    return total


def _verify(
    models: tuple[Model, Model],
    resolver: MicroMutableOpResolver,
    stream: Stream,
    place: int,
    first: npt.NDArray[Any],
    windows: int,
    report: Callable[[str], None],
) -> None:
    """Compare every invoke with the original's answer for its window, and the first ones again after a reset.

    Args:
        models: the original and its streaming form.
        resolver: the available operators.
        stream: the stream.
        place: number of the input that is streamed.
        first: the window before the first invoke.
        windows: number of windows to compare.
        report: called before each of them.

    Raises:
        RewriteError: an answer differs.
    """
    rng = np.random.default_rng(0)
    one, other = (ready_interpreter(model, resolver) for model in models)
    runs, numbers = (windows, WINDOWS_AFTER_RESET), count(1)
    axis, hop = stream.track.axis, stream.timeline.hop * stream.track.unit
    for run in runs:
        window = first
        for number in range(run):
            report(f"window {next(numbers)} of {sum(runs)}")
            values = random_inputs(models[1], rng)
            window = np.concatenate([window.take(range(hop, window.shape[axis]), axis), values[place]], axis)
            expected = _answers(one, [*values[:place], window, *values[place + 1 :]])
            require_same_values(_answers(other, values), expected, f"output for window {number} after a reset")
        one.reset()
        other.reset()


def _answers(interpreter: MicroInterpreter, inputs: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    for number, values in enumerate(inputs):
        interpreter.input(number).data[...] = values
    interpreter.invoke()
    return [np.array(interpreter.output(i).data, None) for i in range(interpreter.outputs_size())]
