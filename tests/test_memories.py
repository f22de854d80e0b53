"""Head and tail in memories of their own: searched for, measured, and run in two arenas."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from image_graphs import shrinking_network
from test_cli import figures, refusal, run
from typer.main import get_command

import tflm
from tflm.application.errors import OptionError
from tflm.application.fit import fit_report
from tflm.application.hand_over import _is_better, continue_with, other_build
from tflm.application.machine import Machine, MachineOptions
from tflm.application.memories import (
    MemoryUse,
    board_uses,
    head_limit,
    memories_from,
    memories_table,
    split_of,
)
from tflm.boards import Bank, Board, by_name
from tflm.cli.app import app
from tflm.firmware.board_fit import Split, board_fit
from tflm.firmware.board_report import verdict as board_verdict
from tflm.report import with_thousands
from tflm.runtime.micro_measurement import SeparateArenas, measure_separate_arenas
from tflm.runtime.traffic import traffic
from tflm.schedule.operator_costs import TOO_LARGE, HeadArena
from tflm.schema import BuiltinOperator, ModelBuilder, TensorType

M4 = tflm.targets.by_name("cortex-m4")
ON_M4: dict[str, Any] = {"target": M4, "kernels": "cmsis-nn"}


MODEL = shrinking_network(32)
ARENA = tflm.measure_arena(MODEL, tflm.AllOpsResolver(), **ON_M4).minimum_arena_bytes
ARENAS = measure_separate_arenas(MODEL, tflm.AllOpsResolver(), **ON_M4)


def answer(model: tflm.Model, arenas: SeparateArenas) -> np.ndarray[Any, Any]:
    """What a model answers in two arenas of exactly these sizes."""
    head, tail = bytearray(arenas.head_arena_bytes), bytearray(arenas.tail_arena_bytes)
    allocator = tflm.MicroAllocator(head, target=M4, kernels="cmsis-nn", persistent_arena=tail)
    interpreter = tflm.MicroInterpreter(model, tflm.AllOpsResolver(), allocator)
    interpreter.allocate_tensors()
    x = interpreter.input(0).data
    x[...] = np.random.default_rng(7).integers(-128, 128, x.shape, np.int8)
    interpreter.invoke()
    return np.array(interpreter.output(0).data)


def test_a_model_is_tiled_until_its_head_fits_and_runs_in_two_arenas_of_that_size() -> None:
    room = ARENAS.head_arena_bytes * 3 // 4
    found = tflm.tile(MODEL, **ON_M4, head_ram=room, tail_ram=1 << 20, max_extra_macs=0.5)
    assert found.separate is not None
    assert found.separate.before == ARENAS
    assert found.separate.fits
    assert found.separate.after.head_arena_bytes <= room
    assert found.separate.after == measure_separate_arenas(found.model, tflm.AllOpsResolver(), **ON_M4)
    assert (answer(found.model, found.separate.after) == answer(MODEL, ARENAS)).all()


def test_the_smallest_head_is_no_larger_than_that_of_the_smallest_arena() -> None:
    """Two memories let the tail grow; so the head may be smaller than in one arena."""
    one = tflm.tile(MODEL, **ON_M4, max_extra_macs=0.5)
    two = tflm.tile(MODEL, **ON_M4, tail_ram=1 << 20, max_extra_macs=0.5)
    assert two.separate is not None
    of_one = measure_separate_arenas(one.model, tflm.AllOpsResolver(), **ON_M4)
    assert two.separate.after.head_arena_bytes <= of_one.head_arena_bytes
    assert two.extra_macs > one.extra_macs or two.separate.after.tail_arena_bytes > of_one.tail_arena_bytes


def test_a_tail_that_its_memory_does_not_hold_is_missing_there() -> None:
    found = tflm.tile(MODEL, **ON_M4, head_ram=1 << 20, tail_ram=ARENAS.tail_arena_bytes - 16)
    assert found.separate is not None
    assert not found.separate.fits
    assert not found.gains
    assert (found.separate.head_missing_bytes, found.separate.tail_missing_bytes) == (0, 16)


def test_a_search_never_takes_a_smaller_head_with_a_tail_that_does_not_fit() -> None:
    arenas = SeparateArenas(100, 1000)
    objective = HeadArena(lambda model: arenas, 999)
    assert objective.measured(MODEL) == objective.expected(1, 1000) == TOO_LARGE
    assert objective.expected(1, 999) == 1
    assert HeadArena(lambda model: arenas, None).measured(MODEL) == 100


def test_a_model_whose_head_fits_already_is_left_unchanged() -> None:
    found = tflm.tile(MODEL, **ON_M4, head_ram=ARENAS.head_arena_bytes)
    assert not found.gains
    assert found.separate is not None
    assert found.separate.fits


@pytest.mark.parametrize("missing", [0, 16])
def test_a_plan_says_what_head_and_tail_take_of_their_memories(missing: int) -> None:
    planned = tflm.plan(MODEL, **ON_M4, head_ram=1 << 20, tail_ram=ARENAS.tail_arena_bytes - missing)
    assert planned.separate is not None
    assert planned.separate.fits == (missing == 0)
    assert planned.separate.after == measure_separate_arenas(planned.model, tflm.AllOpsResolver(), **ON_M4)
    assert tflm.plan(MODEL, **ON_M4).separate is None


def test_head_and_tail_are_those_of_the_machine_where_each_is_largest() -> None:
    original, machines = shrinking_network(12), [(tflm.targets.HOST, "reference"), (M4, "cmsis-nn")]
    targets, kernels = (list(each) for each in zip(*machines))
    planned = tflm.plan(original, target=targets, kernels=kernels, tail_ram=1 << 20)
    assert planned.separate is not None
    for model, arenas in ((original, planned.separate.before), (planned.model, planned.separate.after)):
        one, other = (
            measure_separate_arenas(model, tflm.AllOpsResolver(), target=target, kernels=library)
            for target, library in machines
        )
        assert one.tail_arena_bytes > other.tail_arena_bytes
        assert other.head_arena_bytes >= one.head_arena_bytes + (model is original)
        assert arenas == SeparateArenas(other.head_arena_bytes, one.tail_arena_bytes)


@pytest.mark.parametrize(("memory_bytes", "left"), [(1234, "0"), (1233, "no, 1 missing"), (1235, "1"), (None, "")])
def test_a_part_may_take_its_memory_to_the_last_byte(memory_bytes: int | None, left: str) -> None:
    memory = None if memory_bytes is None else "sram"
    table = memories_table([MemoryUse("arena", memory, 1234, memory_bytes, 0, 0)])
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert (row["memory"], row["left"]) == (memory or "does not fit", left)


def test_one_arena_and_two_are_not_asked_for_together() -> None:
    with pytest.raises(tflm.ArgumentError, match="head_ram"):
        tflm.tile(MODEL, ram=1 << 20, head_ram=1 << 20)


# --- Boards with several memories ------------------------------------------------------------------------------------


BESIDE = board_fit(MODEL, by_name("nrf52840dk")).firmware_ram


def board(**banks: int) -> Board:
    """A board with these memories, the fastest first."""
    return replace(by_name("nrf52840dk"), name="mine", sdk="", ram=tuple(Bank(*bank) for bank in banks.items()))


def test_the_head_goes_to_the_chip_and_the_tail_outside_before_everything_does() -> None:
    """A chip that only the head fits: the arena as a whole would go to slow memory."""
    planned = tflm.plan(MODEL, **ON_M4, tail_ram=1 << 20).separate
    assert planned is not None
    where = board(SRAM=planned.after.head_arena_bytes + BESIDE.bytes, PSRAM=1 << 20)
    found = tflm.fit(MODEL, board=where, reserve=0, kernels="cmsis-nn", max_extra_macs=0)
    assert found.fits
    assert found.chosen.name == "head for SRAM, tail for PSRAM"
    assert [(use.part, use.memory) for use in board_uses(found.model, found.found)] == [
        ("head", "SRAM"),
        ("tail", "PSRAM"),
        ("model", "flash"),
    ]
    assert found.in_external_ram
    chosen = dict(fit_report(found, "x").facts)["chosen"]
    assert "The tail's memory is outside the chip" in chosen
    assert f"an arena of {found.found.placements[0].bytes:,} B" in chosen


def test_static_ram_and_stack_have_room_beside_the_tail_or_else_beside_the_head() -> None:
    head, tail = ARENAS.head_arena_bytes, ARENAS.tail_arena_bytes
    for sizes, room, missing in (
        ((head, tail + BESIDE.bytes), head, []),
        ((head + BESIDE.bytes, tail), head, []),
        ((head, tail + BESIDE.bytes - 1), head - BESIDE.bytes, [("A", BESIDE.bytes)]),
        ((head - 1, tail + BESIDE.bytes), head - 1, [("A", 1)]),
        ((head + BESIDE.bytes, tail - 1), head, [("B", 1)]),
    ):
        where = board(A=sizes[0], B=sizes[1])
        fit = board_fit(MODEL, where, split=Split(*where.ram))
        assert [(bank.name, size) for bank, size in fit.missing] == missing
        assert fit.fits == (not missing)
        machine, memories = Machine(where.target, fit.measured.kernels, where), memories_from("A", "B", where)
        assert head_limit(MODEL, machine, memories) == room
        assert head_limit(MODEL, machine._replace(board=None), memories) == sizes[0]
        assert head_limit(MODEL, machine, None) is head_limit(MODEL, machine._replace(board=None), None) is None
        assert all(f"B {name} ({size:,} missing)" in board_verdict(fit) for name, size in missing)


@pytest.mark.parametrize(
    ("head", "tail", "expected"),
    [
        ("dtcm", "AXI-SRAM", (("DTCM", 1024), ("AXI SRAM", 4096))),
        ("DTCM", None, (("DTCM", 1024), ("AXI SRAM", 4096))),
        (None, "AXI SRAM", (("DTCM", 1024), ("AXI SRAM", 4096))),
        ("2K", "DTCM", (("2K", 2048), ("DTCM", 1024))),
    ],
)
def test_memories_are_sizes_or_names_of_the_board(head: str | None, tail: str | None, expected: Any) -> None:
    where = board(**{"DTCM": 1024, "AXI SRAM": 4096})
    found = memories_from(head, tail, where)
    assert found == expected
    assert split_of(found, where) == Split(*(Bank(*memory) for memory in expected))
    assert split_of(found, None) is split_of(None, where) is None
    one = replace(where, ram=where.ram[:1])
    assert split_of(memories_from("DTCM", None, one), one) == Split(where.ram[0], Bank("another memory", 0))


def test_memories_without_a_board_need_a_size() -> None:
    assert memories_from(None, None, None) is None
    assert memories_from("128K", "PSRAM", None) == (("128K", 128 << 10), ("PSRAM", None))
    for head, tail, where, said in (
        ("SRAM", None, None, "--board"),
        ("128Q", None, None, "128Q"),
        ("SRAM", None, board(DTCM=1), "mine has DTCM"),
        ("DTCM", "DTCM", board(DTCM=1), "both in DTCM"),
    ):
        with pytest.raises(OptionError, match=said):
            memories_from(head, tail, where)


# --- Traffic ---------------------------------------------------------------------------------------------------------


def test_traffic_is_what_the_operators_read_and_write() -> None:
    measured = tflm.measure_arena(MODEL, tflm.AllOpsResolver(), **ON_M4)
    moved = traffic(MODEL, measured)
    sizes = [16 * 16 * 8, 16 * 16 * 8, 16 * 16 * 16, 8 * 8 * 4]
    scratch = [sum(b.bytes for b in measured.buffers if b.kind == "scratch" and b.first_use == i + 1) for i in range(4)]
    assert any(scratch)
    inputs = [32 * 32 * 3, *sizes[:-1]]
    assert moved.head_written_bytes == sum(sizes) + sum(scratch)
    assert moved.head_read_bytes == sum(inputs) + sum(scratch)
    main = MODEL.subgraphs[0]
    constants = [MODEL.constant(tensor) for tensor in main.tensors or ()]
    assert moved.flash_read_bytes == sum(len(constant) for constant in constants if constant is not None)
    kept = measured.records[tflm.RecordedAllocationType.PERSISTENT_BUFFER_DATA].requested_bytes
    assert moved.tail_read_bytes > 0
    assert moved.tail_read_bytes >= kept
    assert moved.tail_written_bytes == 0


def test_variables_are_read_and_written_in_the_tail(corpus: Path) -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 2), TensorType.FLOAT32)
    weights = main.constant("w", np.ones((3, 2), np.float32))
    recurrent = main.constant("r", np.ones((3, 3), np.float32))
    bias = main.constant("b", np.zeros(3, np.float32))
    state = main.tensor("s", (1, 3), TensorType.FLOAT32, is_variable=True)
    y = main.tensor("y", (1, 3), TensorType.FLOAT32)
    main.operator(BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_RNN, [x, weights, recurrent, bias, state], [y])
    main.output(y)
    model = tflm.Model(builder.build())
    measured = tflm.measure_arena(MODEL, tflm.AllOpsResolver())
    moved = traffic(model, replace(measured, buffers=[], records={}))
    assert moved.tail_read_bytes == moved.tail_written_bytes == 12
    assert moved.flash_read_bytes == 4 * (6 + 9 + 3)
    model = tflm.Model.from_file(corpus / "models" / "trained_lstm.tflite")
    fit = board_fit(model, board(RAM=1 << 18))
    moved = traffic(model, fit.measured)
    arena, file = board_uses(model, fit)
    assert arena.read_bytes == moved.head_read_bytes + moved.tail_read_bytes
    assert arena.written_bytes == moved.head_written_bytes + moved.tail_written_bytes > moved.head_written_bytes
    assert (file.read_bytes, file.written_bytes) == (moved.flash_read_bytes, 0)


# --- Commands --------------------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The model as a file."""
    file = tmp_path / "m.tflite"
    file.write_bytes(MODEL.data)
    return file


SMALL = "nucleo-l053r8"
"""A board that the model does not fit."""


@pytest.mark.parametrize(
    ("command", "options"), [("arena", ()), ("gate", ()), ("check", ()), ("plan", ()), ("tile", ("--macs", "0%"))]
)
def test_what_does_not_fit_a_board_names_the_command_that_goes_on(path: Path, command: str, options: Any) -> None:
    answer = run(command, path, "--board", SMALL, *options, COLUMNS="400")
    said = " ".join((answer.stdout + answer.stderr).split())
    assert f"continue with: tflm fit {path} --board {SMALL}" in said
    assert "missing)" in said
    assert answer.returncode == (command in ("arena", "gate", "check"))


def test_export_says_whether_the_model_fits_and_writes_its_files(path: Path) -> None:
    for name, fits in ((SMALL, False), ("nano33ble", True)):
        answer = run("export", path, path.parent / name, "--board", name)
        assert answer.returncode == 0
        assert f"fits {name}: {'yes' if fits else 'no'}" in answer.stderr
        assert ("continue with: tflm fit" in answer.stderr) == (not fits)
        assert all(Path(line).exists() for line in answer.stdout.splitlines())


@pytest.mark.long
def test_the_commands_that_go_on_are_commands(path: Path) -> None:
    """Of a budget and of a part with some memory: what is printed runs, and keeps the options of the first."""
    on = ("--target", "cortex-m4", "--kernels", "cmsis-nn")
    for option, command, size in (("--budget", "tile", ARENA - 1024), ("--ram", "fit", ARENA + BESIDE.bytes - 16)):
        said = refusal("arena", path, *on, option, size)
        words = shlex.split(said.partition("continue with: ")[2])
        assert words == ["tflm", command, str(path), *on, "--ram", str(size)]
        assert run(*words[1:]).returncode in (0, 1)


@pytest.mark.parametrize(
    "options",
    [
        MachineOptions(target="cortex-m4"),
        MachineOptions(target="cortex-m4", kernels="cmsis-nn", release="2024-05-01"),
        MachineOptions(board="nano33ble", release="esphome"),
        MachineOptions(board="nano33ble", kernels="reference", reserve="2K"),
        MachineOptions(board="esp32-s3-eye", sdk="zephyr", kernels="esp-nn:ansi"),
    ],
)
def test_the_command_that_goes_on_is_for_the_same_machine(options: MachineOptions) -> None:
    """Also if a release is named: by its commit, or by a distribution of several."""

    def described(of: Machine) -> Any:
        return of.target, of.kernels.name, of.kernels.release.name, of.board, of.reserve

    group: Any = get_command(app)
    context = group.get_command(None, "fit").make_context
    machine = options.machine()
    for given in (machine, machine._replace(release=machine.kernels.release)):
        words = shlex.split(continue_with("a model.tflite", given, "64K").removeprefix("continue with: "))
        parsed = context("fit", words[2:]).params
        again = MachineOptions(**{name: parsed[name] for name in MachineOptions._fields})
        assert described(again.machine()) == described(given)
        assert (str(parsed["model"]), parsed["ram"]) == ("a model.tflite", "64K" if options.board is None else None)


def test_tile_reports_the_memories_of_head_and_tail_and_writes_what_fits(path: Path) -> None:
    output = path.with_name("tiled.tflite")
    options = ("--target", "cortex-m4", "--kernels", "cmsis-nn", "--macs", "50%", "--tail-ram", "PSRAM", "-o", output)
    room = ARENAS.head_arena_bytes * 3 // 4
    found = figures("tile", path, *options, "--head-ram", room)
    head, tail, file = found["memories"]
    assert (head["part"], tail["part"], file["part"]) == ("head", "tail", "model")
    assert head["needed_bytes"] <= head["memory_bytes"] == room
    assert (tail["memory"], tail["memory_bytes"]) == ("PSRAM", None)
    assert file["needed_bytes"] == output.stat().st_size
    assert found["fits"] is True
    output.unlink()
    assert "do not fit" in refusal("tile", path, *options, "--head-ram", "1K")
    assert not output.exists()


def test_a_build_is_better_that_fits_or_fits_the_chip_or_takes_less_than_half() -> None:
    def fit(arena: int, fits_ram: bool, on_chip: bool) -> Any:
        return SimpleNamespace(fits_ram=fits_ram, on_chip=on_chip, measured=SimpleNamespace(minimum_arena_bytes=arena))

    for is_on_chip in (False, True):
        for small, large, is_better in ((499, 1000, True), (500, 1000, False)):
            for fits in (False, True):
                assert _is_better(fit(small, fits, is_on_chip), fit(large, fits, is_on_chip)) == is_better
        assert _is_better(fit(1000, True, is_on_chip), fit(1, False, True))
        assert not _is_better(fit(1, False, is_on_chip), fit(1000, True, True))
    assert _is_better(fit(1000, True, True), fit(1, True, False))
    assert not _is_better(fit(1, True, False), fit(1000, True, True))
    assert not _is_better(fit(1000, False, True), fit(1000, False, False))


def test_another_build_that_needs_much_less_is_named() -> None:
    """A build that fits where the usual one does not is named, and one that fits the chip where that one does not."""
    s3 = replace(by_name("esp32-s3-eye"), ram=(Bank("SRAM", 1 << 20),), sdk="")
    usual, smaller = (board_fit(MODEL, s3, kernels=kernels) for kernels in ("esp-nn", "esp-nn:ansi"))
    needed = smaller.measured.minimum_arena_bytes
    room = needed + smaller.other_ram.high
    assert needed < usual.measured.minimum_arena_bytes
    assert other_build(MODEL, usual) == ""
    for banks in ((Bank("SRAM", room),), (Bank("SRAM", room), Bank("PSRAM", 1 << 20))):
        said = other_build(MODEL, board_fit(MODEL, replace(s3, ram=banks)))
        assert said == f"with esp-nn:ansi kernels the arena has {with_thousands(needed)}, and fits: arena in SRAM"
