"""Sentences and rows of reports on their own, from figures that are made up."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from example_models import INT8_MODEL

import tflm
from tflm.application import compression_report as compression
from tflm.application import rewriting_report as rewriting
from tflm.application.badge import badge
from tflm.application.compiled_fit import compiled_verdict, sizes_text
from tflm.application.compression_report import Decoding, compression_report, firmware_flash_change, limits_missed
from tflm.application.errors import OptionError
from tflm.application.evaluation_report import calibration_report, evaluation_report
from tflm.application.flash_report import flash_report
from tflm.application.gate import Gated, Size, figures, gate_report, verdict_lines
from tflm.application.machine import MachineOptions
from tflm.application.memories import MemoryUse, memories_table
from tflm.application.quantization_report import FirmwareFlash, quantization_figures, quantization_report
from tflm.application.rewriting_report import Placed, placed, plan_progress, tile_progress, tile_report
from tflm.application.running import Output, Step, how_to_give_inputs, output_table, run_figures
from tflm.application.streaming_report import streaming_figures, streaming_report
from tflm.cli import output
from tflm.evaluation import CalibrationReport, Evaluation, TensorRange
from tflm.evaluation.metrics import Classification, Difference
from tflm.evaluation.signal import SignalLoss
from tflm.firmware.device_check import DeviceFinding
from tflm.firmware.flash import Flash
from tflm.libraries import Effect
from tflm.quantization import QuantizedModel
from tflm.quantization.quantized_model import Alternative, FloatOperator
from tflm.quantization.recipe import Recipe
from tflm.report import Report, Table
from tflm.schema import TensorType

TINY = tflm.Model.from_file(INT8_MODEL)
M4 = MachineOptions(target="cortex-m4", kernels="cmsis-nn").machine()


def cells(table: Table) -> list[list[str]]:
    return [[str(value) for value in row] for row in table.rows]


# --- Smaller models --------------------------------------------------------------------------------------------------


def compressed(before: int = 100, after: int = 100, tensors: int = 1) -> Any:
    return SimpleNamespace(
        tensors=[None] * tensors, minimum_arena_bytes_before=before, minimum_arena_bytes=after, data=bytes(500)
    )


@pytest.mark.parametrize(
    ("found", "flash", "cost", "is_limited", "facts", "notes"),
    [
        (compressed(), None, None, False, [], []),
        (compressed(tensors=0), 0, Decoding([7], None), False, [], []),
        (compressed(), -1_200, Decoding([7], None), False, ["about 7 instructions", "-1,200 B with the"], []),
        (compressed(), 0, None, False, ["+0 B with the"], ["more flash than the model saves"]),
        (compressed(1_000, 1_001), None, None, False, [], ["the arena grows from 1,000 to 1,001 bytes"]),
        (compressed(1_000, 1_001), None, None, True, [], []),
    ],
)
def test_a_compressed_model_says_what_it_costs(
    found: Any,
    flash: int | None,
    cost: Decoding | None,
    is_limited: bool,
    facts: list[str],
    notes: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(compression, "shown", lambda *given: asked.append(given) or Report("", [], [], []))
    report = compression_report(found, "net", flash, cost, is_limited)
    assert asked == [(found, "net", is_limited, None if cost is None else [7])]
    for texts, expected in (([text for _, text in report.facts], facts), (report.notes, notes)):
        assert len(texts) == len(expected)
        assert all(part in text for part, text in zip(expected, texts))


def test_limits_that_a_compressed_model_exceeds_are_named() -> None:
    found = compressed(after=2_000)
    assert limits_missed(found, 2_000, 500) == limits_missed(found, None, None) == []
    assert limits_missed(found, 999, 490) == [
        "the smallest arena found has 2,000 bytes, 1,001 more than --ram 999",
        "the smallest file found has 500 bytes, 10 more than --flash 490",
    ]


@pytest.mark.parametrize(("sizes", "change"), [((5, 3), -2), ((3, 5), 2), ((None, 5), None), ((5, None), None)])
def test_flash_changes_by_what_both_firmwares_take(
    sizes: tuple[int | None, int | None], change: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: Any = SimpleNamespace(tensors=[1], model="after")
    taken = {"before": sizes[0], "after": sizes[1]}
    monkeypatch.setattr(compression, "firmware_flash_bytes", lambda model, machine: taken[model])
    assert firmware_flash_change("before", found, M4) == change
    found.tensors = []
    assert firmware_flash_change("before", found, M4) == 0


@pytest.mark.parametrize(
    ("gains", "enough", "notes"),
    [
        (True, None, ["shown"]),
        (True, 1_000, ["shown", "it fits into 1,000 B"]),
        (True, 1_001, ["shown", "it fits into 1,001 B"]),
        (True, 900, ["shown", "it does not fit: 100 B are missing in 900 B"]),
        (False, 900, ["shown", "it does not fit: 100 B are missing in 900 B"]),
        (False, 1_000, ["it already fits into 1,000 B, 0 B are left: nothing was changed"]),
        (False, 1_001, ["it already fits into 1,001 B, 1 B are left: nothing was changed"]),
    ],
)
def test_a_tiled_model_is_compared_with_the_target_size(
    gains: bool, enough: int | None, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewriting, "shown", lambda found, name: Report(name, [("fact", "1")], [], ["shown"]))
    found: Any = SimpleNamespace(minimum_arena_bytes=1_000, gains=gains)
    report = tile_report(found, "net", enough)
    assert (report.title, report.facts, report.notes) == ("net", [("fact", "1")], notes)


def test_a_search_says_how_far_it_is() -> None:
    at: Any = SimpleNamespace(stage="search", head_bytes=1_234, lower_bound_bytes=1_000, seconds=2.4)
    assert plan_progress(at) == "search: 1,234 bytes, at least 1,000, 2 s"
    at = SimpleNamespace(tried=7, seconds=2.4, arena=1_234, checking="")
    assert tile_progress(at) == "7 rewrites tried, 2 s: the smallest arena so far has 1,234 bytes"
    at.checking = "input 3"
    assert tile_progress(at) == "checking the rewritten model, input 3, 2 s"


USES = [
    MemoryUse("head", "SRAM", 1_000, 1_000, 5_000, 4_000),
    MemoryUse("tail", "DTCM", 2_001, 2_000, 7, 0),
    MemoryUse("arena", None, 9, None, 0, 0),
    MemoryUse("model", "flash", 9, 1_509, 3, 0),
]


def test_memories_have_what_is_left_and_the_traffic_of_an_inference() -> None:
    assert cells(memories_table(USES)) == [
        ["head", "SRAM", "1,000", "0", "5,000", "4,000"],
        ["tail", "DTCM", "2,001", "no, 1 missing", "7", "0"],
        ["arena", "does not fit", "9", "", "0", "0"],
        ["model", "flash", "9", "1,500", "3", "0"],
    ]


@pytest.mark.parametrize(
    ("fits", "advice", "notes", "tables"),
    [
        (None, "", [], 0),
        (True, "", [], 1),
        (False, "", ["it does not fit these memories"], 1),
        (False, "next", ["it does not fit these memories", "next"], 1),
    ],
)
def test_a_placed_model_says_whether_it_fits(fits: bool | None, advice: str, notes: list[str], tables: int) -> None:
    report = Report("", [], [], [])
    Placed(None, USES, fits, advice).add_to(report)
    assert (report.facts, report.notes, len(report.tables)) == ([], notes, tables)


@pytest.mark.parametrize("fits", [True, False, None])
def test_a_model_on_a_board_is_given_advice_where_it_does_not_fit(
    fits: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit: Any = None if fits is None else SimpleNamespace(fits=fits, board=SimpleNamespace(name="mine"))
    monkeypatch.setattr(rewriting, "fit_of", lambda *_: fit)
    monkeypatch.setattr(rewriting, "uses_of", lambda *_: USES)
    monkeypatch.setattr(rewriting, "not_fitting", lambda *_: "next")
    monkeypatch.setattr(rewriting, "verdict", lambda fit: f"fits: {fit.fits}")
    for separate, in_memories in (
        (None, None),
        (SimpleNamespace(fits=True), True),
        (SimpleNamespace(fits=False), False),
    ):
        found: Any = SimpleNamespace(separate=separate)
        where = placed(Path("net"), TINY, found, M4, None)
        assert where == Placed(fit, USES, in_memories if fits is None else fits, "next" if fits is False else "")
        report = Report("", [], [], [])
        where.add_to(report)
        assert report.facts == ([] if fits is None else [("fits mine", f"fits: {fits}")])


# --- Flash, C and gates ----------------------------------------------------------------------------------------------


def test_flash_has_a_line_for_each_known_figure() -> None:
    unknown = Flash("cortex-m0", "reference", "speed", None, (1_000, 900_000), model_bytes=77, note="A guess.")
    report = flash_report("net", unknown)
    assert report.title == "net on cortex-m0, reference kernels, build 'speed'"
    assert report.facts == [("model", "77 B"), ("TFLM and kernels", "1,000 B to 900,000 B (878.9 KiB)")]
    assert (report.notes, report.tables) == (["A guess."], [])
    known = Flash(
        *(
            "cortex-m4",
            "cmsis-nn",
            "size",
            900,
            (900, 900),
            300,
            20,
            3,
            400,
            77,
            800,
            ("CONV_2D_INT8", "B"),
            (),
            "Measured.",
        ),
    )
    report = flash_report("net", known)
    assert report.facts == [
        ("model", "77 B"),
        ("TFLM and kernels", "900 B"),
        (" without operators", "300 B"),
        ("static RAM", "23 B, without the arena"),
        ("stack", "at most 400 B, without interrupts"),
    ]
    assert report.notes[0] == "Measured."
    assert report.notes[1].startswith("typed registrations (CONV_2D_INT8, B) would reduce it to 800 B: tflm export")


@pytest.mark.parametrize(
    ("ram", "flash", "verdict"),
    [
        (True, True, "fits mine as C without an interpreter, in A and B"),
        (False, True, "does not fit mine as C without an interpreter either: lacks 70 B of RAM"),
        (True, False, "does not fit mine as C without an interpreter either: lacks flash"),
        (False, False, "does not fit mine as C without an interpreter either: lacks 70 B of RAM and flash"),
    ],
)
@pytest.mark.parametrize(
    ("stack", "code", "sizes"),
    [
        (None, None, "900 B of RAM, 80 B of constants"),
        (1_600, None, "900 B of RAM, at most 1,600 B of stack, 80 B of constants"),
        (None, 2_000, "900 B of RAM, 80 B of constants, 2,000 B of kernels"),
    ],
)
def test_a_model_as_c_says_what_it_lacks(
    ram: bool, flash: bool, verdict: str, stack: int | None, code: int | None, sizes: str
) -> None:
    banks = [SimpleNamespace(name=name) for name in "AB"]
    found: Any = SimpleNamespace(fits=ram and flash, fits_ram=ram, fits_flash=flash, banks=banks, missing_bytes=70)
    found.board = SimpleNamespace(name="mine")
    found.ram_bytes, found.stack_bytes, found.constant_bytes, found.code_bytes = 900, stack, 80, code
    assert sizes_text(found) == sizes
    assert compiled_verdict(found) == f"{verdict}: {sizes}"


HASH = "0123456789abcdef0123456789abcdef01234567"
SIZE = Size(900, 890, 400, 490, 800)
GATED = [
    Gated("same", SIZE, SIZE, True, "yes"),
    Gated("larger", SIZE, Size(750, 1, 1, 1, 1_000), False, "no: 9 B", "next"),
    Gated("new", SIZE, None, True, "yes"),
    Gated("lost", None, SIZE, False, "no: it lacks ADD"),
]


@pytest.mark.parametrize(("base", "since"), [(None, ""), ("main", " since main"), (HASH, " since 0123456")])
def test_a_gate_has_a_row_for_each_model_with_its_changes(base: str | None, since: str) -> None:
    report = gate_report(GATED, M4, base)
    changes = [["0", "0"], ["+150 (+20.0%)", "-200 (-20.0%)"], ["new", "new"], ["", ""]]
    sizes = [["900", "400", "490", "800"]] * 3 + [[""] * 4]
    expected = []
    for each, (arena, head, tail, file), (of_arena, of_file) in zip(GATED, sizes, changes):
        columns = [arena, of_arena, head, tail, file, of_file] if base else [arena, head, tail, file]
        expected.append([each.model, *columns, each.verdict])
    (table,) = report.tables
    assert cells(table) == expected
    names = ["model", "smallest arena", f"change{since}", "head", "tail", "file", "change of the file", "fits"]
    assert [*table.columns] == (names if base else [name for name in names if not name.startswith("change")])
    assert report.notes == ["sizes in bytes", "larger: next"]
    assert report.title == "Tensor arena on cortex-m4 with cmsis-nn kernels"
    assert report.verdict == "2 of 4 models pass"
    pico = MachineOptions(board="pico").machine()
    assert gate_report(GATED, pico, base).title.startswith(f"Tensor arena on pico ({pico.target.name}) with ")
    document = figures(GATED, M4, 64, base)
    assert (document["fits"], document["budget_bytes"], document["base"]) == (False, 64, base)
    assert figures(GATED[:1], M4, None, base)["fits"]
    assert verdict_lines([GATED[0], Gated("x", SIZE, None, True, "")]) == ["same: yes", ""]


def test_a_badge_is_as_wide_as_its_texts() -> None:
    drawn = badge("a<b", "72.0 KiB", True)
    left, right = (round(len(text) * 6.5) for text in ("a<b", "72.0 KiB"))
    assert f'width="{left + right + 24}" height="20"' in drawn
    assert f'<rect width="{left + 12}"' in drawn
    assert f'<rect x="{left + 12}" width="{right + 12}" height="20" fill="#2c7a3f"/>' in drawn
    assert f'<text x="{(left + 12) / 2}" y="14" textLength="{left}">a&lt;b</text>' in drawn
    assert f'<text x="{left + 12 + (right + 12) / 2}" y="14" textLength="{right}">72.0 KiB</text>' in drawn
    assert "#b3261e" in badge("a", "b", False)


# --- Evaluations, quantization and streams ---------------------------------------------------------------------------


def test_an_evaluation_shows_what_is_known() -> None:
    bare = Evaluation(7, (), (), np.zeros(0))
    assert [cells(table) for table in bare.tables()] == [[["samples", "7"], ["left out", "0"]]]
    assert (bare.accuracy, evaluation_report(bare).notes) == (None, [])
    confusion = np.array([[1, 1], [0, 2]])
    classes = Classification(4, 0.75, 2, 1.0, confusion, np.array([0.5, 1.0]), 0.8)
    far = Difference(4, 0.25, 0.125, 0.5, 2.0, 12.34, ())
    signal = (SignalLoss("t", "0 CONV_2D", 20.0, 3.0),)
    full = Evaluation(7, ("a: bad", "b: worse"), ("cat",), np.zeros(0), classes, far, signal, 1_234.4, 3)
    summary, taken, lost = full.tables()
    assert cells(summary) == [
        ["samples", "7"],
        ["left out", "2"],
        ["accuracy", "0.7500"],
        ["top 2", "1.0000"],
        ["area under ROC", "0.8000"],
        ["answers that differ from the reference", "25.0000%"],
        ["mean absolute error", "0.125"],
        ["root mean square error", "0.5"],
        ["largest error", "2"],
        ["signal to noise", "12.3 dB"],
    ]
    assert [*taken.columns] == ["is", "as cat", "as 1", "recall"]
    assert cells(taken) == [["cat", "1", "1", "0.500"], ["1", "0", "2", "1.000"]]
    assert "0 CONV_2D" in cells(lost)[0]
    assert evaluation_report(full).notes == [
        "left out: a: bad",
        "left out: b: worse",
        "1,234 samples a second with 3 workers",
    ]
    single = Difference(4, None, 0.125, 0.5, 2.0, 12.34, ())
    without = Classification(4, 0.75, 2, 1.0, confusion, np.array([0.5, 1.0]), None)
    labels = [row[0] for row in cells(Evaluation(7, (), (), np.zeros(0), without, single).tables()[0])]
    assert not {"area under ROC", "answers that differ from the reference"} & set(labels)
    for count, is_shown in ((20, True), (21, False)):
        many = Classification(4, 0.75, 2, 1.0, np.zeros((count, count), int), np.zeros(count), None)
        assert (len(Evaluation(7, (), (), np.zeros(0), many).tables()) == 2) is is_shown


def test_a_calibration_names_tensors_that_waste_their_range() -> None:
    def tensor(name: str, saturated: float, wasted: float) -> TensorRange:
        return TensorRange(name, "0 ADD", -1, 1, -1, 1, saturated, wasted)

    notes = calibration_report(
        CalibrationReport(9, (tensor("good", 0.0099, 0.99), tensor("a", 0.01, 0.0), tensor("b", 0.0, 1.0)))
    ).notes
    assert sorted(notes) == [
        "0 ADD a: 1.0% of its values are saturated, 0.0 bits are never used",
        "0 ADD b: 0.0% of its values are saturated, 1.0 bits are never used",
    ]


def quantized(**facts: Any) -> QuantizedModel:
    usual = {"samples": 1_000, "file_bytes_before": 800, "before": None, "after": None, "float_operators": ()}
    return QuantizedModel(**{"data": bytes(500), "recipe": Recipe(), **usual, **facts})


def test_a_quantized_model_has_its_cost_before_and_after() -> None:
    report = quantization_report("net", quantized(), M4, FirmwareFlash(None, 3))
    assert report.title == "net for cortex-m4 with cmsis-nn kernels"
    rejected = "rejected by the kernel library"
    assert report.facts == [
        ("types", "int8 activations, int8 weights"),
        ("calibration", "1,000 samples"),
        ("arena", f"{rejected}, now {rejected}"),
        ("file", "800 B, now 500 B (-37.5%)"),
    ]
    assert (report.tables, report.notes) == ([], [])
    arenas: Any = [SimpleNamespace(minimum_arena_bytes=size) for size in (900, 300)]
    accuracies: Any = [SimpleNamespace(accuracy=share, signal=()) for share in (None, 0.5)]
    finding = DeviceFinding("", None, None, Effect.REFUSED, "It fails.", "Do this.")
    changed = quantized(
        samples=1,
        recipe=Recipe("int16", "int4", without_int4=frozenset({"CONV_2D", "A"})),
        before=arenas[0],
        after=arenas[1],
        evaluation_before=accuracies[0],
        evaluation=accuracies[1],
        float_operators=(FloatOperator("3 LSTM", "none"),),
        alternatives=(Alternative("int16", 0.75, 1_000, 2_000), Alternative("all", reason="it fails")),
        findings=(finding,),
    )
    report = quantization_report("net", changed, M4, FirmwareFlash(70, 60))
    assert [text for _, text in report.facts] == [
        "int16 activations, int4 (int8 in A, CONV_2D) weights",
        "1 sample",
        "900 B, now 300 B",
        "800 B, now 500 B (-37.5%)",
        "70 B, now 60 B, with TFLM and its kernels",
        "unknown, now 50.00%",
    ]
    assert [cells(table) for table in report.tables] == [
        [["3 LSTM", "none"]],
        [["int16", "75.00%", "1,000", "2,000", ""], ["all", "", "", "", "it fails"]],
    ]
    assert report.notes == ["model: It fails. Do this."]
    assert not changed.accepted
    document = quantization_figures(Path("net"), changed, M4, FirmwareFlash(70, 60), True)
    assert (document["minimum_arena_bytes_before"], document["minimum_arena_bytes"]) == (900, 300)
    assert (document["firmware_flash_bytes_before"], document["firmware_flash_bytes"]) == (70, 60)
    assert (document["int8_weights"], document["written"], document["samples"]) == (["A", "CONV_2D"], True, 1)


def streamed(**facts: Any) -> Any:
    usual: dict[str, Any] = {"hop": 1, "window": 9, "input": 0, "axis": 1, "frame": 1, "causal": False, "warm_up": 5}
    usual |= {"state_bytes": 70, "macs": 250, "macs_before": 1_000, "macs_without_padding": 250, "windows_checked": 4}
    inputs = SimpleNamespace(subgraphs=[SimpleNamespace(inputs=(4, 5, 6)[: facts.pop("inputs", 1)])])
    return SimpleNamespace(**usual | {"layers": (), "model": inputs} | facts)


def test_a_streaming_form_says_what_an_invoke_takes() -> None:
    before, after = (
        SimpleNamespace(minimum_arena_bytes=size, tail_bytes=size // 2, target=M4.target) for size in (900, 300)
    )
    report = streaming_report("net", streamed(), M4, before, after, None)
    assert report.facts == [
        ("time", "axis 1 of input 0: a window of 9 frames"),
        ("an invoke takes", "1 new frame"),
        ("multiply-accumulates", "250, 25.0% of before"),
        ("state in variables", "70 B"),
        ("warm-up", "5 invokes until only real frames count"),
        ("checked", "the answers for 4 windows, and after a reset, are identical"),
    ]
    assert report.notes == []
    changes = [row[:3] for row in cells(report.tables[0])]
    assert changes == [
        ["multiply-accumulates", "1,000", "250"],
        ["smallest arena", "900", "300"],
        ["tail, with the state", "450", "150"],
    ]
    other = streamed(hop=2, frame=3, causal=True, input=1, inputs=3, macs=1_500)
    compared: Any = SimpleNamespace(tables=lambda: [Table("compared", {}, [])])
    report = streaming_report("net", other, M4, before, after, compared)
    facts = dict(report.facts)
    assert facts["time"] == "axis 1 of input 1: a window of 9 frames, 3 elements each"
    assert facts["an invoke takes"] == "2 new frames"
    assert facts["checked"].endswith("are those of the causal form")
    assert [table.title for table in report.tables][-1] == "compared"
    assert report.notes[0].endswith("and the window begins earlier instead")
    assert report.notes[1].startswith("1,250 multiply-accumulates compute rows next to padding again")
    assert report.notes[1].endswith("(VALID) has none")
    assert report.notes[2] == "one input is streamed; each invoke takes all of input 0 and 2, as before"
    alone = streaming_report("net", streamed(causal=True), M4, before, after, None).notes
    assert alone[0].endswith("--inputs DATA measures the difference on windows of frames")
    padded = streaming_report("net", streamed(macs_without_padding=249), M4, before, after, None).notes
    assert padded[0].endswith("nor has --causal, whose answers differ")
    document = streaming_figures(Path("net"), other, before, after, None)
    assert (document["minimum_arena_bytes_before"], document["minimum_arena_bytes"]) == (900, 300)
    assert (document["target"], document["hop"], document["macs"]) == ("cortex-m4", 2, 1_500)


# --- Outputs of a run ------------------------------------------------------------------------------------------------


def test_outputs_of_a_run_have_a_row_and_a_record_for_each_step() -> None:
    integers, floats = np.array([[3, -4]], np.int8), np.float32([[0.5]])
    steps = [Step([integers + i, floats], [(integers + i) / np.float32(2), None], {}) for i in range(2)]
    table = output_table(["y", "z"], steps)
    assert cells(table) == [
        ["0", "y", "int8", "1 2", "3 -4", "1.5 -2"],
        ["0", "z", "float32", "1 1", "0.5", ""],
        ["1", "y", "int8", "1 2", "4 -3", "2 -1.5"],
        ["1", "z", "float32", "1 1", "0.5", ""],
    ]
    assert "real values" not in output_table(["z"], [Step([floats], [None], {})]).columns
    figures = run_figures(Path("net"), ["y", "z"], steps)
    assert (figures["model"], figures["steps"]) == (Path("net"), 2)
    assert figures["outputs"][2:] == [
        Output(1, 0, "y", "int8", (1, 2), [[4, -3]], [[2.0, -1.5]]),
        Output(1, 1, "z", "float32", (1, 1), [[0.5]], None),
    ]


def test_inputs_that_a_model_takes_are_described() -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    first, second = (
        main.input("x", (1, 2), TensorType.INT8, tflm.quantized(0.5)),
        main.input("", (3,), TensorType.FLOAT32),
    )
    main.output(first, second)
    said = how_to_give_inputs(tflm.Model(builder.build()))
    assert said.startswith(
        "the model takes x (INT8 of shape [1, 2]) and (no name) (FLOAT32 of shape [3]): use --inputs"
    )


# --- The terminal ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("is_terminal", "variables", "has_style"),
    [
        (True, {}, True),
        (False, {}, False),
        (False, {"FORCE_COLOR": "1"}, True),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        (True, {"TERM": "dumb"}, False),
        (True, {"TERM": "dumb", "FORCE_COLOR": "1"}, True),
    ],
)
def test_styles_are_for_terminals_and_for_those_who_ask(
    is_terminal: bool, variables: dict[str, str], has_style: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TERM", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout", SimpleNamespace(isatty=lambda: is_terminal))
    assert output.styled("line", "<b>") == (f"<b>line{output.PLAIN}" if has_style else "line")
    assert (output.styled("line", ""), output.styled("", "<b>")) == ("line", "")


def test_json_has_the_types_that_it_knows() -> None:
    finding = DeviceFinding("ADD", 0, 1, Effect.REFUSED, "It fails.", "Do this.")
    assert output.plain({"a": Effect.REFUSED, "b": (Path("c"), 1, True, None, "text")}) == {
        "a": Effect.REFUSED.value,
        "b": ["c", 1, True, None, "text"],
    }
    assert output.plain([float("nan"), float("inf"), -float("inf"), 0.5]) == ["NaN", "Infinity", "-Infinity", 0.5]
    assert output.plain(np.array([[1, 2]], np.int8)) == [[1, 2]]
    assert output.plain(np.float32(0.5)) == 0.5
    assert output.plain(1 - 2j) == [1.0, -2.0]
    assert output.plain(SIZE) == SIZE._asdict()
    assert output.plain([finding])[0]["operator"] == "ADD"


def test_an_answer_is_json_verdicts_or_reports(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "made").write_bytes(bytes(70))
    reports = [
        Report("first", [("a", "1"), ("long", "2")], [], ["note"], "fits: yes"),
        Report("second", [], [], [], "no"),
    ]
    output.answer(True, {"x": "##[error]"}, *reports)
    printed = capsys.readouterr().out
    assert json.loads(printed) == {"x": "##[error]"}
    assert "##[" not in printed
    output.answer(False, None, *reports, files=[None, tmp_path / "made"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[:8] == ["fits: yes", "first", "a     1", "long  2", "", "note", "", "no"]
    assert lines[8:] == ["second", f"wrote {tmp_path / 'made'}: 70 B"]
    output.answer(False, None, *reports, is_short=True)
    assert capsys.readouterr().out.splitlines() == ["fits: yes", "no"]
    for as_json, verdicts in ((True, ("yes",)), (False, ("yes", ""))):
        with pytest.raises(OptionError, match="--short needs a board"):
            output.short(as_json, *verdicts)


@pytest.mark.parametrize(
    ("is_terminal", "columns", "width"), [(True, None, 77), (True, "50", 50), (False, "50", 50), (False, None, 160)]
)
def test_lines_are_as_wide_as_the_terminal_or_as_columns_says(
    is_terminal: bool, columns: str | None, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr("sys.stdout", SimpleNamespace(isatty=lambda: is_terminal))
    size = SimpleNamespace(columns=int(columns or 77))
    monkeypatch.setattr(output, "shutil", SimpleNamespace(get_terminal_size=lambda: size))
    assert output.line_width() == width


def test_nothing_follows_the_last_line_and_folders_have_no_size(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    output.show(Report("title", [("a", "1")], [], []))
    output.wrote(tmp_path)
    assert capsys.readouterr().out == f"title\na  1\nwrote {tmp_path}\n"


def test_long_lines_are_wrapped_below_their_value(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "line_width", lambda: 16)
    output.show(Report("", [("name", "two words and more")], [], ["a note of several words", "averyveryverylongword"]))
    assert capsys.readouterr().out.splitlines() == [
        "name  two words",
        "      and more",
        "",
        "a note of",
        "several words",
        "averyveryverylongword",
    ]
