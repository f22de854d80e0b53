"""Boards: the share of their memories that a model uses, and what is reported before it is flashed."""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from example_models import FLOAT_MODEL, INT8_MODEL
from large_operators import LARGE
from recorded_reports import RECORDED, require_recorded
from test_cli import figures, refusal, run

import tflm
from tflm.application.errors import OptionError
from tflm.application.machine import MachineOptions
from tflm.application.several_memories import memories_of_board
from tflm.boards import Bank, Board, boards, by_name
from tflm.boards.sdks import sdk_names, sdk_share, sdk_shares, sdks_for
from tflm.boards.table import chips
from tflm.firmware.board_fit import (
    BoardFit,
    BoardRefusal,
    FirmwareRam,
    banks_for,
    board_fit,
    combined,
    fits_of,
)
from tflm.firmware.board_report import fit_report, verdict
from tflm.firmware.device_check import DeviceFinding, check_device, operator_findings
from tflm.firmware.verdict import verdict_of
from tflm.libraries import Effect, library_for
from tflm.runtime.micro_measurement import SeparateArenas, arena_with, measure_separate_arenas
from tflm.runtime.micro_measurement_report import KernelsRefusal
from tflm.schema import BuiltinOperator, TensorType
from tflm.targets import PARTS

MODEL = tflm.Model.from_file(INT8_MODEL)
BOARDS = RECORDED.with_name("boards.json")
M4, M55 = tflm.targets.by_name("cortex-m4"), tflm.targets.by_name("cortex-m55")


def test_every_board_has_a_part_kernels_for_it_memories_and_a_source() -> None:
    for board in boards().values():
        assert library_for(board.kernels, board.target).name == board.kernels
        assert board.target.family
        assert board.ram
        assert all(bank.bytes > 0 for bank in board.ram)
        assert board.flash_bytes
        assert board.source.startswith("https://")
        assert (board.mhz is None) == (board.optimization == "")


SIZES = {"K": 1 << 10, "M": 1 << 20}


def size(text: str) -> int:
    """The bytes of a size such as 64K."""
    return int(text[:-1]) * SIZES[text[-1]]


def rows_of(table: str) -> list[dict[str, str]]:
    text = (Path(tflm.boards.__file__).with_name(table)).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


@pytest.mark.parametrize("table", [boards, chips])
def test_a_board_has_what_its_row_of_the_table_says(table: Callable[[], Mapping[str, Board]]) -> None:
    rows = rows_of(f"{table.__name__}.csv")
    assert list(table()) == [row["name"] for row in rows]
    for row, board in zip(rows, table().values()):
        found = {"target": board.target.name, "aliases": " ".join(board.aliases)}
        names = ("name", "kernels", "sdk", "npu", "optimization", "description", "chip", "source")
        found |= {key: getattr(board, key) for key in names if key in row}
        assert found == {key: row[key] for key in found}
        assert board.flash_bytes == (size(row["flash"]) if row["flash"] else None)
        assert board.mhz == (float(row["mhz"]) if row["mhz"] else None)
        assert board.places == (row["name"], row.get("chip") or row["name"], board.target.family)
        for bank, text in zip(board.ram, row["ram"].split(" + "), strict=True):
            name, bytes, rate = re.findall(r"(.+) ([0-9]+[KM])(?: at ([0-9.]+) MB/s)?", text)[0]
            assert bank == Bank(name, size(bytes), float(rate) * 1e6 if rate else None)
    assert any(bank.rate for bank in boards()["esp-eye"].ram)
    assert chips()["RP2040"].description == "RP2040, the bare chip"


def span(text: str) -> tuple[int, int]:
    """The two numbers of a range; a single number is both, and nothing is 0."""
    low, *high = text.split("-")
    return int(low or 0), int(high[0] if high else low or 0)


def spans(text: str) -> dict[str, tuple[int, int]]:
    """Ranges by name, such as `SRAM 262144 + SDRAM 0-8388608`."""
    pairs = (each.rsplit(" ", 1) for each in text.split(" + ")) if text else ()
    return {name: span(of) for name, of in pairs}


def test_the_share_of_an_sdk_has_what_its_row_of_the_table_says() -> None:
    shares = sdk_shares()
    rows = rows_of("sdks.csv")
    assert [places for places, _ in shares] == [row["places"] for row in rows]
    for row, (places, share) in zip(rows, shares):
        for place in places.split():
            assert sdk_share(row["sdk"], ["nowhere", place, "cortex-m"]) == share
            assert row["sdk"] in sdks_for(["nowhere", place])
        assert (share.static, share.heap) == (spans(row["static"]), spans(row["heap"]))
        assert (share.ram, share.startup, share.code) == tuple(span(row[key]) for key in ("ram", "startup", "code"))
        assert share.program == (span(row["program"]) if row["program"] else None)
        assert (share.stack_bytes, share.reserved_bytes) == (int(row["stack"] or 0), int(row["reserved"] or 0))
        assert share.constants_bytes == (int(row["constants"]) if row["constants"] else None)
        assert share.code_in_ram is (row["code_in_ram"] == "yes")
        assert all(getattr(share, key) == row[key] for key in ("sdk", "bank", "how", "source", "date"))
        assert share.description == f"{row['sdk']} ({row['how']}: {row['source']}, {row['date']})"
    assert sdk_names() == list(dict.fromkeys(row["sdk"] for row in rows))
    assert sdk_share("esp-idf", ["nowhere"]) is None


def test_boards_are_found_by_name() -> None:
    assert by_name("nano33ble").target is M4
    with pytest.raises(tflm.ArgumentError, match=r"nano34ble.*nano33ble.*tflm boards"):
        by_name("nano34ble")


def on_banks(*sizes: int, flash: int = 1 << 20) -> BoardFit:
    """The model on a board with memories of these sizes."""
    banks = tuple(Bank(f"bank {i}", size) for i, size in enumerate(sizes))
    return board_fit(MODEL, Board("b", "a board", M4, "cmsis-nn", "", banks, flash))


FOUND = tflm.flash(MODEL, target=M4, kernels="cmsis-nn")
BESIDE = (FOUND.data_bytes or 0) + (FOUND.bss_bytes or 0) + (FOUND.stack_bytes or 0)
"""Static RAM and stack, which a board needs room for beside the arena."""


def places(fit: BoardFit) -> list[tuple[str, str | None]]:
    return [(placement.part, placement.bank and placement.bank.name) for placement in fit.placements]


def test_a_size_of_an_sdk_is_a_range_or_one_number() -> None:
    share = sdk_share("esp-idf", ("ESP32",))
    assert share is not None
    assert share.startup.low == 0 < share.startup.high
    assert 0 < share.ram.low < share.ram.high
    assert share.static["DRAM"].low == share.static["DRAM"].high > 0


def test_memory_outside_of_the_chip_is_told_apart() -> None:
    assert {bank.name for bank in by_name("esp32-s3-eye").on_chip_ram}.isdisjoint({"PSRAM"})
    assert "PSRAM" in {bank.name for bank in by_name("esp32-s3-eye").ram}
    assert by_name("nano33ble").on_chip_ram == by_name("nano33ble").ram


def test_the_release_of_a_board_is_chosen_only_where_it_is_not_the_usual_one() -> None:
    board = by_name("esp32-s3-eye")
    other = tflm.releases.by_name("2023-01")
    assert board.chosen_release(board.library()) is None
    assert board.chosen_release(board.library(release=other)) == other
    assert [board.distribution(kernels) for kernels in ("esp-nn@1.4.0", "cmsis-nn")] == ["esp-tflite-micro", ""]
    assert replace(board, sdk="").distribution("esp-nn") == ""
    assert replace(board, sdk="").share is None
    assert board.library("reference").release == tflm.releases.by_name("esp-tflite-micro")
    assert board.library("esp-nn:ansi", other).name.partition("@")[0] == "esp-nn:ansi"
    assert board.library(library_for("reference", board.target)).name == "reference"


def test_an_arena_fits_to_the_byte_and_the_file_counts_against_the_flash() -> None:
    needed = tflm.measure_arena(MODEL, tflm.AllOpsResolver(), target=M4, kernels="cmsis-nn").minimum_arena_bytes
    needed += BESIDE
    assert on_banks(needed).fits
    assert not on_banks(needed - 1).fits
    taken = len(MODEL.data) + (FOUND.flash_bytes or 0)
    assert on_banks(needed, flash=taken).fits
    assert not on_banks(needed, flash=taken - 1).fits


def test_the_arena_goes_to_the_fastest_bank_that_holds_it_and_else_head_and_tail_apart() -> None:
    arenas = measure_separate_arenas(MODEL, tflm.AllOpsResolver(), target=M4, kernels="cmsis-nn")
    head, tail = arenas.head_arena_bytes, arenas.tail_arena_bytes
    whole = on_banks(1 << 20).measured.minimum_arena_bytes
    assert places(on_banks(head, whole, 1 << 20)) == [("arena", "bank 1")]
    assert places(on_banks(head, tail + BESIDE)) == [("head", "bank 0"), ("tail", "bank 1")]
    assert places(on_banks(head - 1, tail + BESIDE)) == [("arena", None)]
    assert places(on_banks(head, tail + BESIDE - 1)) == [("arena", None)]


def test_static_ram_and_stack_lie_beside_the_arena_or_in_another_bank() -> None:
    assert BESIDE > 1000
    needed = on_banks(1 << 20).measured.minimum_arena_bytes
    within = on_banks(needed + BESIDE)
    assert within.fits
    assert within.firmware_bank is within.board.ram[0]
    assert f"yes: {needed + BESIDE:,} of {needed + BESIDE:,} B RAM" in verdict(within)
    tight = on_banks(needed + BESIDE - 1)
    assert not tight.fits
    assert f"no: {needed + BESIDE:,} of {needed + BESIDE - 1:,} B RAM (1 missing)" in verdict(tight)
    apart = on_banks(needed, BESIDE)
    assert places(apart) == [("arena", "bank 0")]
    assert apart.firmware_bank is apart.board.ram[1]
    assert dict(fit_report(apart).facts)["other RAM"] == "static RAM and stack in bank 1"
    assert f"yes: {needed:,} of {needed:,} B bank 0, {BESIDE:,} of {BESIDE:,} B bank 1" in verdict(apart)


def test_a_share_is_of_the_memory_that_the_arena_is_in() -> None:
    needed = on_banks(1 << 20).measured.minimum_arena_bytes
    assert on_banks(2 * needed + BESIDE, 1 << 30).memory_share == needed / (2 * needed + BESIDE)
    assert on_banks(needed // 2).memory_share == needed / (needed // 2)


def test_where_nothing_was_measured_the_arena_alone_counts() -> None:
    board = Board("b", "a board", M4, "arduino", "", (Bank("RAM", 1 << 20),), 1 << 20)
    fit = board_fit(MODEL, board)
    assert fit.firmware_ram.bytes > 0
    assert fit.fits


@pytest.fixture
def arena_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count no static RAM and stack."""
    monkeypatch.setattr("tflm.firmware.board_fit.firmware_ram", lambda *of: FirmwareRam(0, 0))


@pytest.mark.usefixtures("arena_alone")
@functools.cache
def sizes_on_m4() -> tuple[tflm.ArenaMeasurement, SeparateArenas]:
    """The model's arena, whole and in two."""
    on = {"target": M4, "kernels": "cmsis-nn"}
    resolver = tflm.AllOpsResolver()
    return tflm.measure_arena(MODEL, resolver, **on), measure_separate_arenas(MODEL, resolver, **on)


def fit_in(*sizes: int, flash: int | None = 1 << 20) -> BoardFit:
    """The arena and the file alone, on a board with memories of these sizes."""
    whole, separate = sizes_on_m4()
    banks = tuple(Bank(f"bank {i}", size) for i, size in enumerate(sizes))
    board = Board("b", "a board", M4, "cmsis-nn", "", banks, flash)
    return BoardFit(board, whole, separate if len(sizes) > 1 else None, len(MODEL.data))


def test_head_and_tail_never_share_a_bank() -> None:
    whole, arenas = sizes_on_m4()
    head, tail, large = arenas.head_arena_bytes, arenas.tail_arena_bytes, whole.minimum_arena_bytes - 1
    assert large >= max(head, tail)
    assert places(fit_in(large, min(head, tail) - 1)) == [("arena", None)]
    assert places(fit_in(1, large, 2, tail)) == [("head", "bank 1"), ("tail", "bank 3")]
    assert not fit_in(large, 1).fits_ram


def bank_numbers(pieces: list[int], sizes: list[int], **separate: int) -> list[int] | None:
    banks = [Bank(str(i), size) for i, size in enumerate(sizes)]
    found = banks_for(pieces, banks, **separate)
    return None if found is None else [banks.index(bank) for bank in found]


def test_pieces_go_to_the_fastest_banks_that_hold_them_together() -> None:
    assert bank_numbers([3, 2], [5]) == [0, 0]
    assert bank_numbers([3, 3], [5, 3]) == [0, 1]
    assert bank_numbers([2, 4], [5, 1]) is None
    assert bank_numbers([2, 4], [4, 2]) == [1, 0]
    assert bank_numbers([6], [5, 6, 7]) == [1]
    assert bank_numbers([2, 2, 2], [4, 2]) == [0, 0, 1]
    assert bank_numbers([], []) == []


def test_only_separate_pieces_need_banks_of_their_own() -> None:
    assert bank_numbers([1, 1], [9, 9], separate=2) == [0, 1]
    assert bank_numbers([1, 1], [9], separate=2) is None
    assert bank_numbers([1, 1, 1], [9, 9], separate=2) == [0, 1, 0]
    assert bank_numbers([1, 1, 8], [9, 9], separate=2) == [0, 1, 0]
    assert bank_numbers([1, 1, 9], [9, 9], separate=2) is None


@pytest.mark.parametrize(
    ("sizes", "beside", "lacking"),
    [((0,), 0, 0), ((-5,), 3, 8), ((-5, 3), 3, 5), ((-5, 2), 3, 8), ((7, -1), 0, -7), ((-1, -1, 2), 4, 1)],
)
def test_what_is_missing_is_counted_with_what_has_no_other_bank(
    sizes: tuple[int, ...], beside: int, lacking: int
) -> None:
    """Sizes that are not positive, and the largest, are those of the arena and so much more."""
    whole = sizes_on_m4()[0].minimum_arena_bytes
    banks = [whole + size if size <= 0 or size == 7 else size for size in sizes]
    assert replace(fit_in(*banks), firmware_ram=FirmwareRam(beside, 0)).missing_bytes == lacking


def test_a_firmware_with_one_model_takes_what_the_model_takes() -> None:
    fit = on_banks(1 << 16, 1 << 20)
    assert fit.separate is not None
    assert combined([fit], [MODEL], fit.measured.minimum_arena_bytes) == fit


def numbers(fit: BoardFit) -> set[int]:
    return {int(number.replace(",", "")) for number in re.findall(r"[0-9][0-9,]*", verdict(fit))}


@pytest.mark.usefixtures("arena_alone")
def test_a_verdict_says_what_is_taken_or_missing_of_each_memory() -> None:
    measured, arenas = sizes_on_m4()
    head, tail = arenas.head_arena_bytes, arenas.tail_arena_bytes
    whole, file = measured.minimum_arena_bytes, len(MODEL.data)
    assert {whole, whole + 102, file, file + 5000} <= numbers(fit_in(whole + 102, flash=file + 5000))
    assert {head, head + 103, tail, tail + 17, file + 1} <= numbers(fit_in(head + 103, tail + 17, flash=file + 1))
    assert {77, 9} <= numbers(fit_in(100, whole - 77, 90, flash=file - 9))
    assert 9 not in numbers(fit_in(100, whole - 77, 90, flash=file))


def test_a_report_names_the_flash_where_it_is_known() -> None:
    known, unknown = (fit_report(fit_in(1 << 20, flash=flash)).tables[0].rows[-1][2] for flash in (12345, None))
    assert (known, unknown) == (f"{len(MODEL.data):,} of 12,345", f"{len(MODEL.data):,}")


@pytest.mark.usefixtures("arena_alone")
def test_shares_are_of_all_banks_and_of_the_flash() -> None:
    fit = fit_in(3000, 5000, flash=2 * len(MODEL.data))
    assert fit.ram_share == fit.measured.minimum_arena_bytes / 8000
    assert fit.flash_share == 0.5
    unknown = fit_in(3000, 5000, flash=None)
    assert unknown.flash_share is None
    assert unknown.fits_flash


@pytest.mark.usefixtures("arena_alone")
def test_boards_of_one_part_are_told_apart_by_their_banks() -> None:
    """A layout for one board is reused for others with the same part, but each has its own verdict."""
    _, arenas = sizes_on_m4()
    head, tail = arenas.head_arena_bytes, arenas.tail_arena_bytes
    sizes = [(head,), (head, tail), (head + tail,), (tail - 1, head), (head, tail, 1)]
    made = [fit_in(*of).board for of in sizes]
    found = [fit for fit in fits_of(MODEL, made) if isinstance(fit, BoardFit)]
    assert found == [board_fit(MODEL, board) for board in made]
    assert [fit.separate is not None for fit in found] == [False, True, False, True, True]
    refusals = list(fits_of(CASES["types"][0](), made))
    assert [(type(refusal), refusal.board) for refusal in refusals] == [(BoardRefusal, board) for board in made]


def test_separate_arenas_are_the_smallest_that_work() -> None:
    arenas = measure_separate_arenas(MODEL, tflm.AllOpsResolver(), target=M4, kernels="cmsis-nn")

    def allocate(head: int, tail: int) -> None:
        memory = np.zeros(head, np.uint8), np.zeros(tail, np.uint8)
        allocator = tflm.MicroAllocator(memory[0], target=M4, kernels="cmsis-nn", persistent_arena=memory[1])
        tflm.MicroInterpreter(MODEL, tflm.AllOpsResolver(), allocator, delegates=[]).allocate_tensors()

    head, tail = arenas.head_arena_bytes, arenas.tail_arena_bytes
    allocate(head, tail)
    for smaller in ((head - 16, tail), (head, tail - 16)):
        with pytest.raises(tflm.ArenaExhausted):
            allocate(*smaller)


# --- What a device says of a model -------------------------------------------------------------------------------


def one_operator(operator: BuiltinOperator | str, *types: TensorType, weights: TensorType | None = None) -> tflm.Model:
    """A model of one operator with an input and an output of these types, and constant weights."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x, y = (main.input("x", (2, 4), types[0]), main.tensor("y", (2, 4), types[1]))
    inputs = [x]
    if weights is not None:
        inputs.append(main.constant("w", np.ones((4, 4), np.int8), tflm.quantized(0.5)))
    main.operator(operator, inputs, [y])
    main.output(y)
    return tflm.Model(builder.build())


F32, I8, F16 = TensorType.FLOAT32, TensorType.INT8, TensorType.FLOAT16
CASES: dict[str, tuple[Callable[[], tflm.Model], str, Effect, str]] = {
    "flex": (lambda: one_operator("FlexErf", F32, F32), "cmsis-nn", Effect.LACKS, "SELECT_TF_OPS"),
    "custom": (lambda: one_operator("MyOwn", F32, F32), "cmsis-nn", Effect.LACKS, "your own kernel"),
    "npu": (lambda: one_operator("ethos-u", I8, I8), "cmsis-nn", Effect.LACKS, "before Vela"),
    "unknown": (
        lambda: one_operator(BuiltinOperator.UNIQUE, F32, F32),
        "reference",
        Effect.LACKS,
        "Replace the operator",
    ),
    "older": (lambda: one_operator("SignalFftAutoScale", I8, I8), "arduino", Effect.LACKS, "newer TFLM"),
    "hybrid": (
        lambda: one_operator(BuiltinOperator.FULLY_CONNECTED, F32, F32, weights=I8),
        "cmsis-nn",
        Effect.REFUSED,
        "representative_dataset",
    ),
    "float16": (lambda: one_operator(BuiltinOperator.DEQUANTIZE, F16, F32), "cmsis-nn", Effect.REFUSED, "float16"),
    "types": (lambda: one_operator(BuiltinOperator.RELU, F16, F16), "reference", Effect.REFUSED, "operator accepts"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_keeps_a_model_from_running_is_said_with_what_to_do(name: str) -> None:
    make, kernels, effect, advice = CASES[name]
    model = make()
    (finding,) = check_device(model, target=M4, kernels=kernels, board=by_name("nano33ble"))
    assert (finding.effect, finding.operator_index) == (effect, 0)
    assert finding.operator == model.operator_name(model.subgraphs[0].operators[0])
    assert advice in finding.advice
    assert (finding.stops, finding.shown) == (True, False)  # there are no results to show


NPU_BOARDS = {board.target.name for board in boards().values() if board.npu}


@pytest.mark.parametrize("part", [name for name, part in PARTS.items() if part.family])
def test_a_part_without_an_npu_can_not_run_what_vela_compiled(part: str) -> None:
    found = check_device(one_operator("ethos-u", I8, I8), target=tflm.targets.by_name(part))
    lacking = [(f.effect, f.stops, f"{part} has no Ethos-U" in f.happens) for f in found if f.effect is Effect.LACKS]
    may_have_one = part in NPU_BOARDS or part == "cortex-m52"
    assert lacking == ([] if may_have_one else [(Effect.LACKS, True, True)])


HYBRID = {
    BuiltinOperator.BATCH_MATMUL: (2, {1}),
    BuiltinOperator.CONV_2D: (3, {1}),
    BuiltinOperator.DEPTHWISE_CONV_2D: (3, {1}),
    BuiltinOperator.FULLY_CONNECTED: (3, {1}),
    BuiltinOperator.SVDF: (5, {1, 2}),
    BuiltinOperator.TRANSPOSE_CONV: (4, {1}),
    BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_LSTM: (24, set(range(1, 9))),
}
"""Inputs of operators that have weights, and which of them these are."""


@pytest.mark.parametrize("operator", HYBRID, ids=lambda operator: operator.name)
def test_floats_with_weights_of_integers_are_told_whatever_the_operator(operator: BuiltinOperator) -> None:
    count, weights = HYBRID[operator]
    for of_integers in range(count):
        for type, is_told in ((I8, True), (TensorType.UINT8, True), (TensorType.INT32, False), (F16, False)):
            builder = tflm.ModelBuilder()
            main = builder.subgraph()
            inputs = [main.input(f"x{i}", (4,), type if i == of_integers else F32) for i in range(count)]
            y = main.tensor("y", (4,), F32)
            main.operator(operator, inputs, [y])
            main.output(y)
            model = tflm.Model(builder.build(), checks="tflm")
            found = operator_findings(model, target=M4)
            told = [finding.effect for finding in found] == [Effect.REFUSED]
            assert told == (is_told and of_integers in weights), (of_integers, type)


@pytest.mark.parametrize("kernels", ["reference", "cmsis-nn", "cmsis-nn:size", "arduino"])
@pytest.mark.parametrize("path", [INT8_MODEL, FLOAT_MODEL], ids=lambda path: path.stem)
def test_nothing_is_said_of_a_model_that_runs_as_here(path: Path, kernels: str) -> None:
    assert check_device(tflm.Model.from_file(path), target=M4, kernels=kernels) == []


def test_concerns_of_a_library_are_told_of_the_operators_that_they_apply_to(corpus: Path) -> None:
    def told(name: str, kernels: str) -> list[DeviceFinding]:
        model = tflm.Model.from_file(corpus / "models" / f"{name}.tflite")
        return check_device(model, target=M4, kernels=kernels)

    states = told("keyword_scrambled_8bit", "cmsis-nn")
    assert {(f.operator, f.effect, f.shown, f.stops) for f in states} == {("SVDF", Effect.DIFFERS, True, False)}
    assert len(states) == 7
    assert told("keyword_scrambled_8bit", "reference") == []
    lacking = told("audio_preprocessor_int8", "arduino")
    assert {finding.effect for finding in lacking} == {Effect.LACKS}
    assert all(finding.operator.startswith("Signal") for finding in lacking)


# --- The commands ------------------------------------------------------------------------------------------------


def test_arena_of_a_board_is_that_of_its_part_and_kernels() -> None:
    printed = figures("arena", INT8_MODEL, "--board", "nano33ble")
    (measured,), (fit,) = printed["models"], printed["boards"]
    expected = tflm.measure_arena(MODEL, tflm.AllOpsResolver(), target=M4, kernels="arduino")
    assert (measured["target"], measured["kernels"]) == ("cortex-m4", "arduino")
    assert measured["minimum_arena_bytes"] == fit["minimum_arena_bytes"] == expected.minimum_arena_bytes
    assert fit["ram_share"] == expected.minimum_arena_bytes / (256 << 10)
    assert fit["flash_share"] == len(MODEL.data) / (1 << 20)
    assert fit["fits"]
    assert {other["kernels"] for other in printed["other_kernels"]} == {"reference", "cmsis-nn", "cmsis-nn:size"}


def test_the_kernels_that_a_figure_is_for_are_shown_and_what_others_would_take() -> None:
    shown = run("arena", INT8_MODEL, "--target", "cortex-m55", "--kernels", "cmsis-nn").stdout
    assert "on cortex-m55 with cmsis-nn kernels" in shown
    for name in ("reference", "cmsis-nn", "cmsis-nn:size", "arduino"):
        m = tflm.measure_arena(MODEL, tflm.AllOpsResolver(), target=M55, kernels=name)
        sizes = m.minimum_arena_bytes, m.arena_used_bytes, m.head_bytes, m.tail_bytes
        assert [name, *(f"{size:,}" for size in sizes)] in [line.split() for line in shown.splitlines()]
    assert "--board" in run("arena", INT8_MODEL).stdout  # the note says that the figure is of reference kernels


def test_a_library_that_can_not_run_the_model_has_a_row_that_says_what_it_lacks(tmp_path: Path) -> None:
    lacking = arena_with(tflm.Model(reversing("SignalEnergy")), M4, library_for("arduino", M4))
    assert lacking == KernelsRefusal(library_for("arduino", M4), "lacks REVERSE_V2, SignalEnergy")
    assert library_for("arduino", M4).lacking(["ADD", "REVERSE_V2", "mine", "ADD", "REVERSE_V2"]) == ["REVERSE_V2"]
    path = tmp_path / "model.tflite"
    path.write_bytes(reversing())
    shown = run("arena", path, "--target", "cortex-m4", "--kernels", "cmsis-nn").stdout
    (row,) = (line.split() for line in shown.splitlines() if line.startswith("arduino"))
    assert row == ["arduino", "lacks", "REVERSE_V2"]
    printed = figures("arena", path, "--target", "cortex-m4", "--kernels", "cmsis-nn")
    assert printed["refusing_kernels"] == [{"kernels": "arduino", "reason": "lacks REVERSE_V2"}]
    assert {other["kernels"] for other in printed["other_kernels"]} == {"reference", "cmsis-nn:size"}
    earlier = MachineOptions(target="cortex-m4", release="2025-01").machine()
    assert earlier.library("reference").release == earlier.kernels.release == tflm.releases.by_name("2025-01")
    assert "arduino" in refusal("arena", path, "--target", "cortex-m4", "--kernels", "arduino")


def reversing(*more: str) -> bytes:
    """A model of a REVERSE_V2, and of more operators with the same input."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (2, 4), TensorType.FLOAT32)
    axis = main.constant("axis", np.array([0], np.int32))
    for name, inputs in {BuiltinOperator.REVERSE_V2: [x, axis], **{name: [x] for name in more}}.items():
        main.operator(name, inputs, [y := main.tensor("y", (2, 4), TensorType.FLOAT32)])
        main.output(y)
    return builder.build()


def test_what_does_not_fit_ends_with_status_1() -> None:
    needed = on_banks(1 << 20).measured.minimum_arena_bytes + BESIDE
    options = "--target", "cortex-m4", "--kernels", "cmsis-nn", "--ram"
    assert run("arena", INT8_MODEL, *options, needed).returncode == 0
    assert "(1 missing)" in refusal("arena", INT8_MODEL, *options, needed - 1)


def test_boards_shows_every_board_that_the_kernels_are_for() -> None:
    (of_model,) = figures("arena", INT8_MODEL, "--boards")["models"]
    assert [fit["name"] for fit in of_model["boards"]] == list(boards())
    (of_chip,) = figures("arena", INT8_MODEL, "--boards", "--kernels", "esp-nn")["models"]
    assert {fit["name"] for fit in of_chip["boards"]} == {
        board.name for board in boards().values() if board.target.family == "espressif"
    }


@pytest.mark.parametrize(
    ("named", "reason"),
    [
        (("cortex-m4", None, "nano33ble"), "implies the target"),
        ((None, None, "nano34ble"), "did you mean .nano33ble."),
        (("cortex-m4", "esp-nn", None), "esp-nn.*esp32s3"),
        ((None, "no-nn", None), "use one of reference"),
    ],
)
def test_a_machine_that_is_none_is_refused(named: tuple[str | None, str | None, str | None], reason: str) -> None:
    target, kernels, board = named
    with pytest.raises(OptionError, match=reason):
        MachineOptions(target, kernels, board=board).machine()


def test_check_prints_findings_and_ends_with_status_1_where_the_model_is_stopped(tmp_path: Path) -> None:
    path = tmp_path / "hybrid.tflite"
    path.write_bytes(CASES["hybrid"][0]().data)
    answer = run("check", path, "--board", "nano33ble")
    assert answer.returncode == 1
    assert "0 FULLY_CONNECTED" in answer.stdout
    assert "representative_dataset" in answer.stdout
    assert figures("check", INT8_MODEL, "--board", "nano33ble")["findings"] == []


# --- Models compiled by Vela -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The int8 model, compiled for an Ethos-U55."""
    vela = pytest.importorskip("ethosu.vela.vela", reason="Arm's compiler for Ethos-U, package ethos-u-vela")
    folder = tmp_path_factory.mktemp("vela")
    vela.main([str(INT8_MODEL), "--accelerator-config", "ethos-u55-128", "--output-dir", str(folder)])
    return folder / f"{INT8_MODEL.stem}_vela.tflite"


def test_a_model_of_velas_is_measured_as_tflm_lays_it_out(compiled: Path) -> None:
    model = tflm.Model.from_file(compiled)
    measured = tflm.measure_arena(model, tflm.AllOpsResolver(), target=M55, kernels="cmsis-nn")
    operator = model.subgraphs[0].operators[0]
    count = len(operator.inputs) + len(operator.outputs)
    scratch = [buffer.bytes for buffer in measured.buffers if buffer.kind == "scratch"]
    assert scratch == [8 * count, 4 * count]  # addresses of 64 bits, sizes of size_t
    (vela,) = (buffer for buffer in measured.buffers if buffer.tensor == operator.inputs[2])
    assert measured.npu_bytes == vela.bytes
    assert measured.peak.bytes == measured.head_bytes
    assert all(buffer.first_use >= 0 for buffer in measured.buffers)
    assert figures("arena", compiled, "--board", "alif-e7-he")["models"][0]["npu_bytes"] == vela.bytes


def test_plan_leaves_what_vela_compiled_in_its_place(compiled: Path) -> None:
    model = tflm.Model.from_file(compiled)
    found = tflm.plan(model, target=M55, kernels="cmsis-nn", in_place=True, reorder=True)
    assert found.data == bytes(model.data)
    assert not found.gains
    assert found.head_bytes == found.before.head_bytes


def test_a_model_of_velas_is_exported_and_checked_against_the_board(compiled: Path, tmp_path: Path) -> None:
    assert run("export", compiled, tmp_path, "--board", "alif-e7-he").returncode == 0
    assert "resolver.AddEthosU()" in (tmp_path / "op_resolver.h").read_text()
    assert "on cortex-m55 with cmsis-nn kernels" in (tmp_path / "arena_size.h").read_text()
    model = tflm.Model.from_file(compiled)
    assert check_device(model, target=M55, kernels="cmsis-nn", board=by_name("alif-e7-he")) == []
    (finding,) = check_device(model, target=M55, kernels="cmsis-nn", board=replace(by_name("alif-e7-he"), npu=""))
    assert finding.stops


def rooms(board: Board) -> Iterator[str]:
    """What an SDK leaves of the memories and the flash of a board, at least and at most, and what it takes."""
    share = board.share
    yield board.sdk or "none"
    for bank, best in zip(board.memories, board.memories_at_best):
        limits = dict.fromkeys((bank.bytes, best.bytes, board.static_bytes(bank)))
        yield f"{bank.name}{'*' if bank.is_external else ''} {'-'.join(map(str, limits))}"
    yield f"data {'+'.join(bank.name for bank in board.sdk_banks)} program {board.program}"
    if share is not None:
        yield f"takes {share.ram} {share.startup} {share.stack_bytes} {share.code} {share.constants_bytes}"
        yield f"{share.how}{' copied' if share.code_in_ram else ''}"
    yield board.distribution(board.kernels)


@pytest.mark.parametrize("table", [boards, chips])
def test_what_sdks_leave_of_boards_is_as_recorded(table: Callable[[], Mapping[str, Board]]) -> None:
    for name, board in table().items():
        of_sdks = [replace(board, sdk=sdk) for sdk in ["", *sdks_for(board.places)]]
        found = [", ".join(filter(None, rooms(each))) for each in of_sdks]
        require_recorded(f"{name}, usually with {board.sdk or 'none'}", found, BOARDS, "\n")


def test_an_sdk_leaves_as_much_of_a_memory_whatever_it_is_called() -> None:
    """The memory of an SDK's data is the largest one of the chip, if none has the SDK's name for it."""
    renamed = 0
    for board in boards().values():
        for sdk in sdks_for(board.places):
            named = replace(board, sdk=sdk)
            largest = max(named.on_chip_ram, key=lambda bank: bank.bytes)
            if named.share is not None and named.share.bank == largest.name:
                ram = tuple(replace(bank, name="mine") if bank == largest else bank for bank in board.ram)
                found = replace(named, ram=ram)
                assert [bank.bytes for bank in found.memories] == [bank.bytes for bank in named.memories]
                static = [board.static_bytes(bank) for board in (found, named) for bank in board.memories]
                assert static[: len(ram)] == static[len(ram) :]
                renamed += 1
    assert renamed


VERDICTS: dict[str, tuple[Callable[[], tflm.Model], int]] = {
    "a small model": (lambda: MODEL, 0),
    "a large model, with a reserve": (lambda: tflm.Model(LARGE["CONV_2D-INT8"]()[0]), 4096),
    "a model too large for most": (lambda: tflm.Model(LARGE["ADD-INT8"]()[0]), 0),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_verdicts_on_boards_are_as_recorded(name: str) -> None:
    model, reserve = VERDICTS[name][0](), VERDICTS[name][1]
    found: dict[str, list[str]] = {}
    for board, fit in zip(boards(), fits_of(model, list(boards().values()), reserve=reserve), strict=True):
        if isinstance(fit, BoardFit):
            given = verdict_of(fit)
            parts = (f"{part.part} {part.ram_bytes}" for part in given.parts if part.ram_bytes.high)
            rooms = (f"{each.name} {each.bytes} x{each.cost:g}" for each in memories_of_board(fit))
            found.setdefault(f"{given.text}; {', '.join(parts)}; {', '.join(rooms)}", []).append(board)
    require_recorded(name, [f"{' '.join(names)}: {verdict}" for verdict, names in found.items()], BOARDS, "\n")
