"""The report and the JSON document of `tflm stream`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tflm.application.evaluation_report import DIFFERENCE_FIGURES
from tflm.application.machine import Machine
from tflm.evaluation import Evaluation
from tflm.report import NUMBER, TEXT, Figure, Report, Table, document_of, json_key, with_thousands
from tflm.rewriting.streaming import StreamedModel
from tflm.rewriting.streaming.streamed_model import StreamedLayer
from tflm.runtime.micro_measurement_report import ArenaMeasurement

STREAM_FIGURES = (
    json_key("hop", int, "new frames of an invoke"),
    json_key("window", int, "frames that an answer is computed from; with `--causal`, more than the original's"),
    json_key("input", int, "the input that is streamed, from 0"),
    json_key("axis", int, "its dimension along which frames are"),
    json_key("frame", int, "elements of that dimension in a frame"),
    json_key("causal", bool, "whether no layer pads time: another network"),
    json_key("warm_up", int, "invokes after a reset until only real frames count"),
    json_key("state_bytes", int, "size of the variables"),
    json_key("macs", int, "multiply-accumulates of an invoke"),
    json_key("macs_before", int, "those of the original model"),
    json_key("macs_without_padding", int, "those if no rows next to padding had to be computed again"),
    json_key("windows_checked", int, "windows whose answers were compared with the original's"),
    json_key("layers", list[StreamedLayer], "the operators along time"),
)
"""The figures of a streaming model; sizes in bytes."""

COMPARED_FIGURES = (
    json_key("samples", int, "windows of `--inputs`", "count")._replace(kind="difference"),
    *DIFFERENCE_FIGURES,
)
"""The figures of a comparison with the original, which is the reference."""


def streaming_figures(
    path: Path, streamed: StreamedModel, before: ArenaMeasurement, after: ArenaMeasurement, compared: Evaluation | None
) -> dict[str, Any]:
    """The JSON document."""
    arenas = {
        "minimum_arena_bytes_before": before.minimum_arena_bytes,
        "minimum_arena_bytes": after.minimum_arena_bytes,
        "target": after.target.name,
    }
    difference = {} if compared is None else document_of(compared, COMPARED_FIGURES)
    return {"model": path, **document_of(streamed, STREAM_FIGURES), **arenas, **difference}


LAYER_FIGURES = (
    Figure("", NUMBER, "index"),
    Figure("operator", TEXT, "operator"),
    Figure("rows", NUMBER, "rows"),
    Figure("computed", NUMBER, "computed"),
    Figure("kept", NUMBER, "kept"),
    Figure("new", NUMBER, "moved"),
)
"""The columns of a table of layers."""


def streaming_report(
    name: str,
    streamed: StreamedModel,
    machine: Machine,
    before: ArenaMeasurement,
    after: ArenaMeasurement,
    compared: Evaluation | None,
) -> Report:
    """Report the inputs and the work of an invoke, before and after.

    Args:
        compared: the streaming form on whole windows, with the original as reference; None if there are none.
    """
    frame = "" if streamed.frame == 1 else f", {streamed.frame} elements each"
    same = "those of the causal form" if streamed.causal else "identical"
    facts = [
        (
            "time",
            f"axis {streamed.axis} of input {streamed.input}: a window of {streamed.window} frames{frame}",
        ),
        ("an invoke takes", f"{streamed.hop} new frame{'s' if streamed.hop > 1 else ''}"),
        ("multiply-accumulates", f"{streamed.macs:,}, {streamed.macs / streamed.macs_before:.1%} of before"),
        ("state in variables", with_thousands(streamed.state_bytes)),
        ("warm-up", f"{streamed.warm_up} invokes until only real frames count"),
        ("checked", f"the answers for {streamed.windows_checked} windows, and after a reset, are {same}"),
    ]
    lost = streamed.macs - streamed.macs_without_padding
    notes = []
    if streamed.causal:
        notes.append(
            "this is another network, and its answers differ: no layer pads time or looks at frames to come, and the "
            "window begins earlier instead"
            + ("; --inputs DATA measures the difference on windows of frames" if compared is None else "")
        )
    if lost > 0:
        notes.append(
            f"{lost:,} multiply-accumulates compute rows next to padding again, which differ from window to window; "
            "a network without padding along time (VALID) has none"
            + ("" if streamed.causal else ", nor has --causal, whose answers differ")
        )
    count = len(streamed.model.subgraphs[0].inputs or ())
    others = [str(index) for index in range(count) if index != streamed.input]
    if others:
        notes.append(f"one input is streamed; each invoke takes all of input {' and '.join(others)}, as before")
    rows = [
        ("multiply-accumulates", streamed.macs_before, streamed.macs),
        ("smallest arena", before.minimum_arena_bytes, after.minimum_arena_bytes),
        ("  tail, with the state", before.tail_bytes, after.tail_bytes),
    ]
    tables = [Table.of_changes(rows), Table.of("Rows along time in an invoke", streamed.layers, *LAYER_FIGURES)]
    if compared is not None:
        tables += compared.tables()
    return Report(f"{name} on {machine.target.name}", facts, tables, notes)
