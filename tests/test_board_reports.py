"""Reports of boards and devices: every figure in them, and findings with their places."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from test_boards import CASES, M4, MODEL, on_banks, one_operator

import tflm
from tflm.boards import by_name
from tflm.cli.output import table_lines
from tflm.firmware import board_report as shown
from tflm.firmware.board_fit import BoardRefusal, FirmwareRam
from tflm.firmware.device_check import DeviceFinding, check_device, concerns_line, node_in_file
from tflm.libraries import Effect, library_for
from tflm.report import document_of
from tflm.runtime.micro_measurement import measure_arena, measure_separate_arenas
from tflm.runtime.micro_measurement_report import libraries_table
from tflm.schema import BuiltinOperator, FullyConnectedOptions, SoftmaxOptions, TensorType

ARENAS = measure_separate_arenas(MODEL, tflm.AllOpsResolver(), target=M4, kernels="cmsis-nn")
HEAD, TAIL = ARENAS.head_arena_bytes, ARENAS.tail_arena_bytes
WHOLE = on_banks(1 << 20).measured.minimum_arena_bytes
FILE = len(MODEL.data)
CODE = on_banks(1 << 20).code.high


@pytest.fixture(autouse=True)
def without_firmware(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count no static RAM and stack."""
    monkeypatch.setattr("tflm.firmware.board_fit.firmware_ram", lambda *of: FirmwareRam(0, 0))


def numbers(text: object) -> list[float]:
    """All numbers in a text, in order."""
    found = re.findall(r"[0-9][0-9,]*(?:\.[0-9]+)?", re.sub(r"bank [0-9]", "", str(text)))
    return [float(number.replace(",", "")) for number in found]


def share(taken: int, available: int) -> list[float]:
    return [taken, available, round(100 * taken / available, 1)]


def test_a_report_has_a_line_for_each_piece_of_the_arena_and_a_table_of_all_that_takes_memory() -> None:
    fit = on_banks(HEAD + 16, TAIL + 32, flash=CODE + 4 * FILE)
    report = shown.fit_report(fit)
    facts = dict(report.facts)
    assert list(facts) == ["RAM for the head", "RAM for the tail"]
    assert numbers(facts["RAM for the head"]) == share(HEAD, HEAD + 16)
    assert numbers(facts["RAM for the tail"]) == share(TAIL, TAIL + 32)
    table = "\n".join(table_lines(report.tables[0], 120))
    assert numbers(table.splitlines()[-1]) == [HEAD, HEAD + 16, TAIL, TAIL + 32, CODE + FILE, CODE + 4 * FILE]
    assert shown.verdict(fit).startswith("yes")
    assert "bank 0" in facts["RAM for the head"]
    assert "bank 1" in facts["RAM for the tail"]


def test_what_does_not_fit_is_held_against_the_largest_bank() -> None:
    fit = on_banks(100, 300, 200, flash=CODE + FILE - 1)
    facts = dict(shown.fit_report(fit).facts)
    assert numbers(facts["RAM"]) == share(WHOLE, 300)
    assert "bank 1" in facts["RAM"]
    assert shown.verdict(fit).startswith("no")
    assert numbers(shown.verdict(fit)) == [WHOLE, 300, WHOLE - 300, CODE + FILE, CODE + FILE - 1, 1]


def test_a_board_without_known_flash_has_no_line_for_it() -> None:
    fit = on_banks(1 << 20)
    fit = replace(fit, board=replace(fit.board, flash_bytes=None))
    assert list(dict(shown.fit_report(fit).facts)) == ["RAM"]
    assert numbers(shown.verdict(fit)) == [WHOLE, 1 << 20, CODE + FILE]
    assert document_of(fit, shown.FIT_FIGURES)["flash_share"] is None


def test_banks_have_a_table_where_there_are_several() -> None:
    assert len(shown.fit_report(on_banks(1 << 20)).tables) == 1
    table = shown.fit_report(on_banks(HEAD, WHOLE + 7)).tables[1]
    text = "\n".join(table_lines(table, 200))
    assert all(f"{size:,}" in text.splitlines()[1] + text for size in (WHOLE, HEAD, TAIL))
    rows = [line for line in text.splitlines() if line.startswith("bank ")]
    missing = [size - HEAD for size in (WHOLE, TAIL)]
    assert numbers(rows[0]) == [HEAD, *([missing[0], 0, abs(missing[1])])]
    assert ("missing" in rows[0].split("no,")[1]) == (missing[0] > 0)
    assert numbers(rows[1]) == [WHOLE + 7, 7, WHOLE + 7 - HEAD, WHOLE + 7 - TAIL]
    assert "missing" not in rows[1]


def test_a_table_of_boards_has_a_row_for_each_and_reasons_for_those_that_refuse() -> None:
    fit = on_banks(2 * WHOLE, flash=CODE + FILE)
    refusal = BoardRefusal(fit.board, "it lacks RELU")
    lines = table_lines(shown.fits_table([fit, refusal]), 200)
    of_flash = round(100 * FILE / (CODE + FILE), 1)
    assert numbers(lines[-2])[-7:] == [WHOLE, 50.0, of_flash, WHOLE, 2 * WHOLE, CODE + FILE, CODE + FILE]
    assert "no: it lacks RELU" in lines[-1]
    assert [line.split()[:3] for line in lines[-2:]] == [["b", "cortex-m4", "cmsis-nn"]] * 2


def test_figures_of_a_board_are_those_of_its_fit() -> None:
    fit = on_banks(HEAD, TAIL, flash=8 * CODE)
    figures = document_of(fit, shown.BOARD_FIGURES)
    placements = [{"part": "head", "bytes": HEAD, "bank": "bank 0"}, {"part": "tail", "bytes": TAIL, "bank": "bank 1"}]
    assert figures["placements"] == placements
    assert (figures["head_arena_bytes"], figures["tail_arena_bytes"]) == (HEAD, TAIL)
    assert figures["ram"] == [{"name": "bank 0", "bytes": HEAD}, {"name": "bank 1", "bytes": TAIL}]
    assert (figures["flash_bytes"], figures["flash_share"], figures["model_bytes"]) == (
        8 * CODE,
        FILE / (8 * CODE),
        FILE,
    )
    assert figures["fits"] is True
    assert figures["ram_share"] == WHOLE / (HEAD + TAIL)
    whole = document_of(on_banks(WHOLE - 1), shown.BOARD_FIGURES)
    assert whole["placements"] == [{"part": "arena", "bytes": WHOLE, "bank": None}]
    assert (whole["head_arena_bytes"], whole["tail_arena_bytes"], whole["fits"]) == (None, None, False)
    refused = document_of(BoardRefusal(fit.board, "it lacks RELU"), shown.BOARD_FIGURES)
    assert refused == {"name": "b", "target": "cortex-m4", "fits": False, "reason": "it lacks RELU"}


def test_kernel_libraries_are_compared_in_the_order_given() -> None:
    measured = [measure_arena(MODEL, tflm.AllOpsResolver(), target=M4, kernels=k) for k in ("cmsis-nn", "reference")]
    lines = table_lines(libraries_table(measured[0], measured[1:]), 120)[-2:]
    for line, m in zip(lines, measured, strict=True):
        assert line.split()[0] == m.kernels.name
        assert numbers(line) == [m.minimum_arena_bytes, m.arena_used_bytes, m.head_bytes, m.tail_bytes]


# --- Findings --------------------------------------------------------------------------------------------------------


def finding(**changed: Any) -> DeviceFinding:
    return replace(DeviceFinding("ADD", 0, 0, Effect.DIFFERS, "It happens.", "Do this."), **changed)


def test_one_line_counts_operators_and_says_whether_one_of_them_stops_the_model() -> None:
    assert concerns_line([]) == ""
    twice = [finding(), finding(happens="Something else.")]
    assert numbers(concerns_line(twice)) == [1]
    assert "operators" not in concerns_line(twice)
    several = [finding(), finding(operator="MUL", operator_index=1), finding(operator="MUL", subgraph_index=1)]
    assert numbers(concerns_line(several)) == [3]
    assert concerns_line(several).count("MUL") == 1
    assert "answers differ" in concerns_line(several)
    stopped = concerns_line([*several, finding(effect=Effect.LACKS)])
    assert "prevent it from running" in stopped
    assert "(the model;" in concerns_line([finding(operator="", subgraph_index=None, operator_index=None)])
    assert "answers differ" not in stopped


def test_findings_are_shown_with_the_place_of_their_operator() -> None:
    places = [finding(), finding(subgraph_index=2, operator_index=3), finding(operator_index=None, subgraph_index=None)]
    (table,) = shown.findings_report("m", "part", places).tables
    assert [line.split("  ")[0] for line in table_lines(table, 200)][-3:] == ["0 ADD", "2:3 ADD", "the model"]


def test_a_report_of_findings_notes_that_there_are_none_and_what_shows_the_answers() -> None:
    nothing, told, seen = (shown.findings_report("m", "part", f) for f in ([], [finding()], [finding(shown=True)]))
    assert not nothing.tables
    assert len(nothing.notes) == 1
    assert not told.notes
    assert [note.startswith("where results differ, MicroInterpreter") for note in seen.notes] == [True]
    assert shown.findings_report("m", "part", [finding(), finding(shown=True)]).notes == seen.notes


@pytest.mark.parametrize("name", CASES)
def test_a_model_that_can_not_be_run_has_one_finding_that_no_interpreter_shows(name: str) -> None:
    make, kernels, _, _ = CASES[name]
    (found,) = check_device(make(), target=M4, kernels=kernels, board=by_name("nano33ble"))
    assert (found.subgraph_index, found.shown) == (0, False)


def test_a_refusal_names_the_operator_and_the_tensor_and_comes_beside_other_findings() -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (2, 4), TensorType.FLOAT16)
    y, z = (main.tensor(name, (2, 4), TensorType.FLOAT16) for name in "yz")
    main.operator(BuiltinOperator.RELU, [x], [y])
    main.operator("MyOwn", [y], [z])
    main.output(z)
    found = check_device(tflm.Model(builder.build()), target=M4)
    assert (Effect.LACKS, 1) in [(each.effect, each.operator_index) for each in found]
    (alone,) = check_device(one_operator(BuiltinOperator.RELU, TensorType.FLOAT16, TensorType.FLOAT16), target=M4)
    assert (alone.operator, alone.subgraph_index, alone.operator_index) == ("RELU", 0, 0)
    assert alone.stops
    assert re.search("fails: tensor '[xy]' ", alone.happens)


def hybrid(operator: BuiltinOperator, x: TensorType, main_input: int, weights: int, count: int) -> tflm.Model:
    """A model of an operator whose input at one place has a type, and another is an int8 constant."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    inputs = [main.input(f"x{i}", (2, 4), x if i == main_input else TensorType.INT32) for i in range(count)]
    inputs[weights] = main.constant("w", np.ones((4, 4), np.int8), tflm.quantized(0.5))
    y = main.tensor("y", (2, 4), x)
    main.operator(operator, inputs, [y])
    main.output(y)
    return tflm.Model(builder.build())


F32, I8 = TensorType.FLOAT32, TensorType.INT8
HYBRIDS = [
    (BuiltinOperator.FULLY_CONNECTED, 0, 1, 2),
    (BuiltinOperator.BATCH_MATMUL, 0, 1, 2),
    (BuiltinOperator.SVDF, 0, 1, 4),
    (BuiltinOperator.SVDF, 0, 2, 4),
    (BuiltinOperator.TRANSPOSE_CONV, 2, 1, 3),
    (BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_LSTM, 0, 1, 9),
    (BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_LSTM, 0, 8, 9),
]


@pytest.mark.parametrize(("operator", "main_input", "weights", "count"), HYBRIDS)
def test_float_activations_with_integer_weights_are_a_hybrid(
    operator: BuiltinOperator, main_input: int, weights: int, count: int
) -> None:
    def advised(type: TensorType) -> bool:
        found = check_device(hybrid(operator, type, main_input, weights, count), target=M4)
        return any("representative_dataset" in each.advice for each in found)

    assert advised(F32)
    assert not advised(I8)


def test_rules_see_an_operator_as_its_model_has_it() -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x, y = main.input("x", (2, 4), F32), main.tensor("y", (2, 3), I8)
    kept = FullyConnectedOptions(keep_num_dims=True)
    main.operator(BuiltinOperator.FULLY_CONNECTED, [x, -1], [y], kept, intermediates=[x], custom_options=b"abc")
    main.operator(BuiltinOperator.RELU, [x], [main.tensor("z", (2, 4), F32)])
    model = tflm.Model(builder.build())
    subgraph, release = model.subgraphs[0], library_for("cmsis-nn", M4).release
    full, bare = (node_in_file(model, subgraph, operator, M4, release) for operator in subgraph.operators or ())
    assert (full.target, full.release, full.input_count, full.output_count) == (M4, release, 2, 1)
    assert [full.has_input(i) for i in range(3)] == [True, False, False]
    assert [full.has_intermediate(i) for i in range(2)] == [True, False]
    assert [bare.has_intermediate(i) for i in range(2)] == [False, False]
    assert (bytes(full.custom_options), bytes(bare.custom_options)) == (b"abc", b"")
    assert full.options(FullyConnectedOptions).keep_num_dims
    assert full.options(SoftmaxOptions) == SoftmaxOptions()
    assert (full.input(0).type, full.output(0).type) == (F32, I8)


def test_a_model_that_can_not_be_laid_out_at_all_has_a_finding_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise tflm.ArenaError("no arena is large enough")

    monkeypatch.setattr("tflm.firmware.device_check.measure_arena", refuse)
    (found,) = check_device(MODEL, target=M4)
    assert (found.operator, found.subgraph_index, found.operator_index) == ("", None, None)
    assert (found.effect, found.happens, found.shown) == (Effect.REFUSED, "no arena is large enough", False)
