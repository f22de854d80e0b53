"""The verdict on a model and a board: what counts, the SDK's share, and the exit status."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from example_models import INT8_MODEL
from image_graphs import shrinking_network
from test_cli import run

import tflm
from tflm.boards import Board, boards, by_name, chips
from tflm.boards.sdks import Span, sdk_names, sdks_for
from tflm.firmware.board_fit import Answer, BoardFit, FirmwareRam, Placement, board_fit
from tflm.firmware.device_check import DeviceFinding
from tflm.firmware.flash import flash_range
from tflm.firmware.verdict import verdict_of, within_budget
from tflm.libraries import Effect, library_for
from tflm.schema import BuiltinOperator, ModelBuilder, TensorType

MODEL = shrinking_network(48)


def large_model(arena: int) -> tflm.Model:
    """A model whose arena is a little larger than this."""
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, arena // 8), TensorType.FLOAT32)
    y = main.tensor("y", (1, arena // 8), TensorType.FLOAT32)
    main.operator(BuiltinOperator.RELU, [x], [y])
    main.output(y)
    return tflm.Model(builder.build())


def resized(fit: BoardFit, arena: int | None = None, model_bytes: int | None = None) -> BoardFit:
    """A fit with another model's file or arena."""
    measured = fit.measured if arena is None else replace(fit.measured, minimum_arena_bytes=arena)
    file = fit.model_bytes if model_bytes is None else model_bytes
    return replace(fit, measured=measured, separate=None, model_bytes=file)


ALL = [*boards().values(), *chips().values()]


@pytest.mark.parametrize("board", ALL, ids=lambda board: board.name)
def test_every_board_has_an_sdk_that_leaves_some_of_its_memories(board: Board) -> None:
    share = board.share
    assert share is not None
    assert board.sdk in sdks_for(board.places)
    assert share.ram.low <= share.ram.high
    assert share.code.low <= share.code.high
    assert date.fromisoformat(share.date) <= date.today()
    cited = {"linked": "gcc 12.2", "estimate": "", "boot log": "_log.inc", "linker script": "https://github.com/"}
    assert cited[share.how] in share.source
    assert not share.bank or share.bank in {bank.name for bank in board.ram}
    assert share.static.keys() | share.heap.keys() <= {bank.name for bank in board.ram} | {"PSRAM"}
    for bank, least, most in zip(board.ram, board.memories, board.memories_at_best):
        assert 0 < least.bytes <= most.bytes <= bank.bytes
    assert board.program is None or 0 < board.program.low <= board.program.high <= (board.flash_bytes or 0)
    assert sum(bank.bytes for bank in board.sdk_banks) > share.ram.low


@pytest.mark.parametrize("name", ["pico", "nano33ble", "esp32-devkitc", "nrf52840dk", "wio-terminal", "teensy41"])
def test_the_answer_changes_at_the_limits_of_what_is_known(name: str) -> None:
    """Largest figures that fit: yes; smallest that do not fit: no; between them: not known. The same for the flash."""
    fit = board_fit(MODEL, replace(by_name(name), ram=by_name(name).ram[:1]))
    (bank,), (best,) = fit.board.memories, fit.board.memories_at_best
    sure, possible = bank.bytes - fit.other_ram.high, best.bytes - fit.other_ram.low
    assert 0 < sure <= possible
    for arena, answer in ((sure, Answer.YES), (sure + 1, Answer.UNKNOWN), (possible, Answer.UNKNOWN)):
        if answer is Answer.YES or sure < possible:
            assert resized(fit, arena=arena).answer is answer
    assert resized(fit, arena=possible + 1).answer is Answer.NO
    available = fit.flash_available
    assert available is not None
    room = Span(available.low - fit.program_code.high, available.high - fit.program_code.low)
    assert resized(fit, model_bytes=room.low).answer is Answer.YES
    assert resized(fit, model_bytes=room.high + 1).answer is Answer.NO
    assert verdict_of(resized(fit, model_bytes=room.high + 1)).memories[-1].missing.low == 1


@pytest.mark.parametrize("name", ["pico", "nrf52840dk", "teensy41"])
def test_an_arena_that_is_placed_already_leaves_a_bank_for_the_rest_of_the_program(name: str) -> None:
    """Up to the last byte of the bank that the SDK's data can be in."""
    fit = board_fit(MODEL, by_name(name))
    bank = fit.board.sdk_banks[0]
    room = bank.bytes - fit.other_ram.high
    for arena, fits in ((room - 1, True), (room, True), (room + 1, False), (bank.bytes, False)):
        placed = replace(fit, board=replace(fit.board, ram=(bank,)), spread=(Placement("arena", arena, bank),))
        assert placed.fits_ram == fits
        assert (placed.placements[0].bank, placed.placements[0].bytes) == (bank, arena)


def test_a_model_that_fills_the_flash_with_its_code_does_not_fit() -> None:
    fit = board_fit(MODEL, by_name("wio-terminal"))
    assert fit.answer is Answer.YES
    found = verdict_of(resized(fit, model_bytes=512 * 1000))
    assert found.answer is Answer.NO
    assert found.line.startswith("does not fit: ")
    assert f"of {512 * 1024 - 16 * 1024:,} B flash with code" in found.line


@pytest.mark.parametrize(
    ("name", "arena", "answer"),
    [("esp32-devkitc", 321_824, "no"), ("esp32-s3-devkitc-1", 500_736, "no"), ("esp32-devkitc", 120_000, "yes")],
)
def test_a_chip_of_espressif_has_the_data_ram_that_its_linker_script_or_heap_leaves(
    name: str, arena: int, answer: str
) -> None:
    assert verdict_of(board_fit(large_model(arena), by_name(name))).answer.value == answer


def test_an_arena_that_is_too_large_for_a_static_array_may_be_on_the_heap() -> None:
    """The ESP32-S3's linker script has 341,760 B for static data and code; its heap is larger."""
    s3 = by_name("esp32-s3-devkitc-1")
    fit = board_fit(MODEL, s3)
    static, heap = s3.static_bytes(s3.ram[0]), s3.memories[0].bytes
    assert static == 341_760 < heap
    assert not resized(fit, arena=static - fit.other_ram.high).on_heap
    (piece,) = resized(fit, arena=static - fit.other_ram.high + 1).on_heap
    assert piece.part == "arena"
    assert not fit.on_heap


def test_an_sdk_is_chosen_and_named_and_takes_its_share() -> None:
    usual, other = (board_fit(MODEL, by_name("nrf52840dk", sdk)) for sdk in (None, "bare-metal"))
    assert (usual.board.sdk, other.board.sdk) == ("zephyr", "bare-metal")
    assert usual.other_ram.high > other.other_ram.high
    assert "zephyr" in [each.part for each in verdict_of(usual).parts]
    with pytest.raises(tflm.ArgumentError, match=r"'esp-idf' for nrf52840dk; use one of .*zephyr"):
        by_name("nrf52840dk", "esp-idf")
    assert "esp-idf+wifi" in sdk_names()
    plain, wifi = (board_fit(MODEL, by_name("esp32-c3-devkitm-1", sdk)) for sdk in ("esp-idf", "esp-idf+wifi"))
    assert wifi.other_ram.low > plain.other_ram.low
    assert wifi.program_code.low > plain.program_code.high


def test_code_that_runs_in_ram_counts_there() -> None:
    """A Teensy's program copies code and constants to the memory of its data."""
    fit = board_fit(MODEL, by_name("teensy41"))
    assert fit.other_ram.high > fit.program_code.high > 30_000


def test_a_size_that_was_measured_is_one_number_and_others_are_ranges() -> None:
    m4, m33 = tflm.targets.by_name("cortex-m4"), tflm.targets.by_name("cortex-m33")
    names = ["CONV_2D", "SOFTMAX"]
    exact = flash_range(names, m4, library_for("cmsis-nn", m4))
    found = tflm.flash(operators=["AddConv2D", "AddSoftmax"], target=m4, kernels="cmsis-nn")
    assert exact.code == (found.flash_bytes, found.flash_bytes)
    assert exact.static.low == exact.static.high == (found.data_bytes or 0) + (found.bss_bytes or 0)
    assert exact.stack == (found.stack_bytes, found.stack_bytes)
    near = flash_range(names, m33, library_for("cmsis-nn", m33))
    assert near.code.low < near.code.high
    assert near.static.low <= exact.static.low <= near.static.high
    own = flash_range([*names, "MY_OWN"], m4, library_for("cmsis-nn", m4))
    assert own.unmeasured == ("MY_OWN",)
    assert own.code.low == exact.code.low < own.code.high


@pytest.mark.parametrize("unsure", [0, 40, 100, 101, 130, 200])
@pytest.mark.parametrize("reserve", [0, 7])
def test_what_was_not_measured_may_be_less_static_data_first_and_then_stack(unsure: int, reserve: int) -> None:
    fit = board_fit(MODEL, by_name("pico"))
    given = verdict_of(replace(fit, firmware_ram=FirmwareRam(100, 30, reserve, unsure)))
    parts = {part.part: (part.ram_bytes.low, part.ram_bytes.high) for part in given.parts}
    assert parts["TFLM and kernels"] == (max(100 - unsure, 0), 100)
    assert parts["stack"] == (min(max(130 - unsure, 0), 30), 30)
    assert parts["arena"] == (fit.measured.minimum_arena_bytes,) * 2
    assert parts.get("reserved") == ((7, 7) if reserve else None)
    assert parts["model"] == (0, 0)
    (flash,) = (part.flash_bytes for part in given.parts if part.part == "model")
    assert (flash.low, flash.high) == (len(MODEL.data), len(MODEL.data))


def test_a_budget_counts_as_well_as_the_board() -> None:
    found = verdict_of(board_fit(MODEL, by_name("pico")))
    assert found.answer is Answer.YES
    assert within_budget(found, 100, 100).answer is Answer.YES
    assert within_budget(found, 101, 100).answer is Answer.NO
    assert within_budget(None, 100, 100).line == "fits: 0 bytes left of 100"
    assert within_budget(None, 101, 100).line == "does not fit: 1 bytes more than the budget of 100"


def test_a_model_that_fits_but_can_not_run_there_does_not_fit() -> None:
    fit = board_fit(MODEL, by_name("pico"))
    differs, lacks = (
        DeviceFinding(name, 0, i, effect, "It is missing.", "Add it.")
        for i, (name, effect) in enumerate({"ADD": Effect.DIFFERS, "RELU": Effect.LACKS}.items())
    )
    assert verdict_of(fit, [differs]) == verdict_of(fit)
    assert verdict_of(fit, [differs, lacks]).line.startswith("does not fit: it cannot run there: RELU: It is missing.")


def answers(*command: Any) -> tuple[int, str]:
    done = run(*command)
    return done.returncode, done.stdout.splitlines()[0] if done.stdout else done.stderr


def test_every_command_gives_the_same_verdict_first_and_alone_and_the_status_follows(tmp_path: Any) -> None:
    path = tmp_path / "large.tflite"
    fits, fails = INT8_MODEL, path
    path.write_bytes(large_model(400_000).data)
    for model, status, begin in ((fits, 0, "fits: "), (fails, 1, "does not fit: ")):
        line = answers("arena", model, "--board", "pico")
        assert line[0] == status
        assert line[1].startswith(begin)
        assert run("arena", model, "--board", "pico", "--short").stdout == line[1] + "\n"
        assert answers("check", model, "--board", "pico") == line
        assert run("check", model, "--board", "pico", "--short").stdout == line[1] + "\n"
        gate = run("gate", model, "--board", "pico", "--short")
        assert (gate.returncode, gate.stdout.partition(": ")[2].partition(": ")[2]) == (
            status,
            line[1].partition(": ")[2] + "\n",
        )
        assert answers("gate", model, "--board", "pico") == (status, gate.stdout.rstrip("\n"))
        printed = json.loads(run("arena", model, "--board", "pico", "--json").stdout)
        assert printed["verdict"]["line"] == line[1]
        assert printed["fits"] == (status == 0)
    assert answers("gate", fits, fails, "--board", "pico") == (1, "1 of 2 models pass")
    fitted = run("fit", fits, "--board", "pico", "--reserve", "0", "--short")
    assert fitted.stdout == answers("arena", fits, "--board", "pico")[1] + "\n"


def test_what_is_not_known_has_a_status_of_its_own(tmp_path: Any) -> None:
    board = by_name("pico")
    fit = board_fit(large_model(1000), board)
    room = board.memories[0].bytes - fit.other_ram.high
    path = tmp_path / "m.tflite"
    path.write_bytes(large_model(room - 200).data)
    for command in ("arena", "check", "gate"):
        status, line = answers(command, path, "--board", "pico")
        assert status == 3
        assert command == "gate" or line.startswith("not known whether it fits: ")
    assert "pico-sdk takes on pico" in " ".join(run("arena", path, "--board", "pico").stdout.split())


def test_short_needs_something_to_fit() -> None:
    done = run("arena", INT8_MODEL, "--short")
    assert done.returncode == 2
    assert "--short needs a board" in done.stderr


@pytest.mark.parametrize("name", ["pico", "nano33ble", "nucleo-l053r8", "esp32-s3-eye", "teensy41"])
def test_what_is_taken_at_least_is_at_most_what_is_taken_at_most(name: str) -> None:
    """Whether the model fits or not, and also where static RAM and stack are not known."""
    board = by_name(name)
    for ram in (board.ram, tuple(replace(bank, bytes=8 << 10) for bank in board.ram)):
        for use in verdict_of(board_fit(MODEL, replace(board, ram=ram))).memories:
            assert 0 <= use.taken_bytes.low <= use.taken_bytes.high
