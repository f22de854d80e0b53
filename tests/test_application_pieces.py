"""Pieces of reports and options on their own: models as C on boards, linked sizes, memories of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from example_models import INT8_MODEL

import tflm
from tflm import releases
from tflm.application.arena import ArenaLimits, SharedArena, arena_needs, measure, needs_reports
from tflm.application.arena import share as share_arena
from tflm.application.compiled_fit import (
    CompiledFit,
    code_bytes_on,
    compile_command,
    compiled_fit,
    compiled_fit_or_none,
)
from tflm.application.compression_report import Decoding
from tflm.application.device_run import verdict_line, write_recording
from tflm.application.errors import OptionError, RequestError
from tflm.application.firmware_report import _origin
from tflm.application.flash_report import _arena_findings, _operator_table, firmware_flash_bytes, linked_fit
from tflm.application.gate import _common_verdict, models_from
from tflm.application.machine import MachineOptions
from tflm.application.projects import machine_of_project, origin_of_project
from tflm.application.projects.bare import _emulated_addresses, stm32_values
from tflm.application.projects.build import MIN_STACK, STACK_OF_MAIN, Build
from tflm.application.projects.compiled import MIN_MAIN_STACK, _cmake_target, _memory, _zephyr_values
from tflm.application.several_memories import (
    SLOW_COST,
    drawn_memories,
    memories_of,
    memories_of_board,
    rivals_table,
    rooms_of,
    shares_table,
    spread_of,
)
from tflm.application.timing import OperatorTime, estimate_report, timing_report
from tflm.boards import Bank, Board, boards, by_name
from tflm.boards.sdks import Span
from tflm.device.verdict import Status
from tflm.firmware.board_fit import board_fit
from tflm.firmware.flash import OperatorFlash, flash
from tflm.firmware.instructions import Estimate, OperatorEstimate
from tflm.firmware.linked import ARENA, MODEL, REST, TFLM, Linked
from tflm.firmware.source_tree import Modified
from tflm.planning.memories_plan import MemoryShare
from tflm.report import with_thousands
from tflm.schema import TensorType

TINY = tflm.Model.from_file(INT8_MODEL)
H7 = by_name("nucleo-h743zi")
NANO = by_name("nano33ble")
"""A board whose SDK takes RAM and flash, of which only a range is known."""


# --- Models as C -----------------------------------------------------------------------------------------------------


def as_c(board: Board, ram: int, memories: Mapping[str, int] | None = None, constants: int = 0) -> CompiledFit:
    """A program with 300 bytes of stack and 700 of reserve on a board."""
    sizes = {"ram_bytes": ram, "stack_bytes": 300, "constant_bytes": constants, "code_bytes": None}
    compiled: Any = SimpleNamespace(**sizes, memories=memories or {})
    return CompiledFit(board, compiled, 700)


@pytest.mark.parametrize("board", [NANO, replace(by_name("nrf52dk"), sdk="")], ids=["with an SDK", "without one"])
def test_a_program_takes_the_last_byte_of_ram_and_flash(board: Board) -> None:
    sdk_ram, sdk_code = (0, 0) if board.share is None else (board.share.ram.high, board.share.code.high)
    room = max(bank.bytes for bank in board.memories) - 300 - 700 - sdk_ram
    fits, larger = as_c(board, room), as_c(board, room + 1)
    assert (fits.fits_ram, fits.missing_bytes, larger.fits_ram, larger.missing_bytes) == (True, 0, False, 1)
    assert board.program is not None
    flash = board.program.low - sdk_code
    assert as_c(board, 0, constants=flash).fits
    assert not as_c(board, 0, constants=flash + 1).fits_flash


def test_a_program_takes_the_last_byte_of_the_memories_that_it_names() -> None:
    dtcm, axi, d2 = H7.memories
    others = 300 + 700 + (0 if H7.share is None else H7.share.ram.high)
    found = as_c(H7, 0, {"AXI SRAM": axi.bytes - others + 1, "DTCM": dtcm.bytes})
    assert (found.banks, found.stack_bank) == ((axi, dtcm), d2)
    full = {bank.name: bank.bytes for bank in H7.memories}
    assert as_c(H7, 0, {**full, "D2 SRAM": d2.bytes - others}).fits_ram
    for memories in ({"DTCM": dtcm.bytes + 1}, {"ITCM": 1}, {**full, "D2 SRAM": d2.bytes - others + 1}):
        assert not as_c(H7, 0, memories).banks


def test_a_program_is_one_block_or_one_in_each_memory_and_its_stack_is_known_on_a_cortex_m() -> None:
    alone, spread = as_c(H7, 70), as_c(H7, 70, {"DTCM": 5, "AXI SRAM": 7})
    assert (alone.blocks, spread.blocks, alone.stack_bytes) == ((70,), (5, 7), 300)
    assert as_c(H7, 1 << 30).stack_bank is None
    assert (as_c(H7, 70).stack_bank, as_c(H7, 70).fits) == (alone.banks[0], True)
    esp = by_name("esp32-s3-eye")
    assert as_c(esp, 70).stack_bytes is None
    assert as_c(esp, 70).fits_ram
    assert not as_c(H7, 70, constants=1 << 30).fits
    sizes: Any = SimpleNamespace(ram_bytes=1 << 20, stack_bytes=None, memories={}, constant_bytes=0, code_bytes=None)
    lacking = CompiledFit(NANO, sizes, 700)
    sdk = 0 if NANO.share is None else NANO.share.ram.high
    assert lacking.missing_bytes == (1 << 20) + 700 + sdk - max(bank.bytes for bank in NANO.memories)


def test_a_model_as_c_is_compiled_with_its_name_and_reserve() -> None:
    found = compiled_fit(TINY, H7, name="net", reserve=77)
    assert (found.compiled.name, found.board, found.reserve_bytes) == ("net", H7, 77)
    other = compiled_fit_or_none(TINY, H7, reserve=78)
    assert other is not None
    assert (other.reserve_bytes, other.ram_bytes) == (78, found.ram_bytes)


@pytest.mark.parametrize(
    ("target", "kernels"),
    [("cortex-m4", "reference"), ("cortex-m4", "cmsis-nn"), ("esp32s3", "esp-nn"), ("host", None)],
)
def test_models_that_share_an_arena_add_up_their_tails(target: str, kernels: str | None) -> None:
    machine = MachineOptions(target=target, kernels=kernels).machine()
    alone = measure(TINY, machine, "greedy")
    one, two = share_arena([TINY], machine, "greedy"), share_arena([TINY, TINY], machine, "greedy")
    assert one == SharedArena(alone.arena_used_bytes, alone.head_bytes, alone.tail_bytes)
    assert two.head_bytes == one.head_bytes
    assert one.tail_bytes < two.tail_bytes <= 2 * one.tail_bytes
    assert two.arena_used_bytes == two.head_bytes + two.tail_bytes
    needs = arena_needs([(Path("a"), TINY), (Path("b"), TINY)], machine, "greedy", ArenaLimits(budget=1))
    assert needs.shared == two
    assert needs.needed_bytes == -(-two.arena_used_bytes // 16) * 16 > alone.minimum_arena_bytes
    assert not needs.is_fitting
    report = [*needs_reports(needs)][-1]
    assert (report.title, [name.strip() for name, _ in report.facts]) == (
        "all in one arena",
        ["needed", "in use once allocated", "head (the largest one)", "tail (the sum of all)"],
    )
    sizes = needs.needed_bytes, two.arena_used_bytes, two.head_bytes, two.tail_bytes
    assert [text for _, text in report.facts] == [with_thousands(size) for size in sizes]


def test_flash_of_a_firmware_is_that_of_tflm_and_the_model() -> None:
    for target in ("cortex-m4", "cortex-m55"):
        machine = MachineOptions(target=target, kernels="cmsis-nn").machine()
        known = flash(TINY, target=machine.target, kernels=machine.kernels)
        assert known.flash_bytes is not None
        assert firmware_flash_bytes(TINY, machine) == known.flash_bytes + len(TINY.data)
    assert firmware_flash_bytes(TINY, MachineOptions(target="riscv32").machine()) is None


def test_code_is_that_of_the_part_with_the_same_instructions() -> None:
    measured = {("cortex-m0plus", "-O2"): 1, ("cortex-m4", "-Os"): 2, ("cortex-m4", "-O2"): 3, ("cortex-m55", "-O2"): 4}
    parts = {"cortex-m0plus": 1, "cortex-m3": 1, "cortex-m4": 3, "cortex-m33": 3, "cortex-m55": 4, "esp32s3": None}
    for part, expected in parts.items():
        assert code_bytes_on(tflm.targets.by_name(part), measured) == expected, part
        assert code_bytes_on(tflm.targets.by_name(part), None) is None


@pytest.mark.parametrize(
    ("board", "fits", "command"),
    [
        ("pico", True, "tflm export 'my net' firmware/ --board pico --compiled"),
        ("STM32F405", True, "tflm export 'my net' firmware/ --board STM32F405 --compiled"),
        ("pico", False, "tflm compile 'my net' firmware/"),
        ("mine", True, "tflm compile 'my net' firmware/"),
    ],
)
def test_a_program_gets_a_project_for_a_known_board_that_it_fits(board: str, fits: bool, command: str) -> None:
    found: Any = SimpleNamespace(fits=fits, board=SimpleNamespace(name=board))
    assert compile_command(Path("my net"), found) == command


def test_decoding_costs_what_all_tensors_cost() -> None:
    assert str(Decoding([1_000, 234], 0.5)) == "about 1,234 instructions, 50% of the inference"
    assert str(Decoding([1_000], 0.0)) == "about 1,000 instructions, 0% of the inference"
    assert str(Decoding([5], None)) == "about 5 instructions"


# --- Linked sizes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("board", [NANO, by_name("STM32F405")], ids=["with an SDK", "without one"])
def test_a_linked_firmware_takes_what_the_linker_gave_it(board: Board) -> None:
    predicted = board_fit(TINY, board)
    linked = Linked({MODEL: 1_000, TFLM: 50_000, REST: 70_000}, {MODEL: 0, TFLM: 300, ARENA: 2_000, REST: 60_000})
    found = linked_fit(predicted, linked)
    assert found.flash_taken == Span(121_000, 121_000)
    assert found.other_ram.low == found.other_ram.high
    stack = predicted.firmware_ram.bytes - predicted.firmware_ram.static_bytes - predicted.separate_stack_bytes
    assert found.other_ram.high == 60_300 + stack
    unnamed = replace(linked, flash={**linked.flash, MODEL: 0})
    assert linked_fit(predicted, unnamed).model_bytes == predicted.model_bytes


@pytest.mark.parametrize(
    ("extra", "separate", "lacks"), [(-1, None, [1]), (0, None, []), (1, None, []), (None, None, []), (-1, "two", [])]
)
def test_an_arena_that_lacks_a_byte_is_refused(extra: int | None, separate: Any, lacks: list[int]) -> None:
    predicted: Any = SimpleNamespace(measured=SimpleNamespace(minimum_arena_bytes=500), separate=separate)
    found = _arena_findings(predicted, Linked({}, {ARENA: 0 if extra is None else 500 + extra}))
    assert [int(each.happens.split()[-2]) for each in found] == lacks


@pytest.mark.parametrize(
    ("sharing", "shown"),
    [(["ABC", "ABC", "ABC"], ["all others"] * 3), (["AB", "AB", ""], ["B", "A", ""]), (["AB", "AB"], ["B", "A"])],
)
def test_operators_that_share_code_are_named_unless_all_do(sharing: list[str], shown: list[str]) -> None:
    operators = [
        OperatorFlash(f"Add{own}", 1, 2, tuple(f"Add{name}" for name in names if name != own))
        for own, names in zip("ABC", sharing)
    ]
    assert [row[-1] for row in _operator_table(tuple(operators)).rows] == shown


# --- Memories of a plan ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["nucleo-h743zi", "esp32-s3-eye", "mimxrt1060-evk", "nrf52840dk"])
def test_firmware_takes_the_largest_memory_that_may_hold_it(name: str) -> None:
    found = board_fit(TINY, boards()[name])
    board = found.board
    largest = max(board.sdk_banks, key=lambda bank: bank.bytes).name
    rooms = {bank.name: bank.bytes for bank in board.memories}
    rooms[largest] -= found.other_ram.high
    assert {bank.name: bank.bytes for bank in rooms_of(found)} == rooms
    costs = {bank.name: SLOW_COST if bank.name in ("PSRAM", "SDRAM") else 1.0 for bank in board.memories}
    assert {each.name: (each.bytes, each.cost) for each in memories_of_board(found)} == {
        each: (rooms[each], costs[each]) for each in rooms
    }


def test_a_memory_that_the_firmware_fills_is_left_out() -> None:
    small = replace(by_name("nrf52dk"), sdk="", ram=(Bank("A", 100), Bank("B", 200)))
    assert [bank.name for bank in rooms_of(board_fit(TINY, small))] == ["A"]


def described(text: str, board: str | None = None, costs: str | None = None, rates: str | None = None) -> list[Any]:
    """What options make of memories: name, bytes, cost and rate of each."""
    machine = MachineOptions(board=board, target=None if board else "cortex-m4").machine()
    return [tuple(each) for each in memories_of(text, TINY, machine, costs, rates)]


def test_memories_are_what_options_and_the_board_say() -> None:
    assert described("A:1K,B:2M") == [("A", 1 << 10, 1.0, None), ("B", 2 << 20, SLOW_COST, None)]
    assert described("A:16,B:32,C:48", None, "b:2.5", "C:40,a:1") == [
        ("A", 16, 1.0, 1e6),
        ("B", 32, 2.5, None),
        ("C", 48, SLOW_COST, 40e6),
    ]
    left = {bank.name: bank.bytes for bank in rooms_of(board_fit(TINY, H7))}
    assert described("axi sram,DTCM:128K", "nucleo-h743zi", "Axi Sram:3") == [
        ("AXI SRAM", left["AXI SRAM"], 3.0, None),
        ("DTCM", 128 << 10, 1.0, None),
    ]
    assert [cost for _, _, cost, _ in described("PSRAM,SRAM", "esp32-s3-eye")] == [SLOW_COST, 1.0]
    assert described("PSRAM:1K", "esp32-s3-eye")[0][3] == boards()["esp32-s3-eye"].ram[1].rate


@pytest.mark.parametrize(
    ("text", "board", "costs", "message"),
    [
        ("A", None, None, "use A:200K"),
        ("DTCM:129K", "nucleo-h743zi", None, "DTCM of nucleo-h743zi has .*, not 129K"),
        ("A:1", None, "B:2", "unknown memory 'B'; --memories has A"),
        ("A:1", None, "A:x", "invalid cost 'x' of A"),
        ("A:1,a:2", None, None, "twice"),
    ],
)
def test_memories_that_make_no_sense_are_refused(text: str, board: str | None, costs: str | None, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        described(text, board, costs)


def share(name: str, traffic: int, used: int = 10, cost: float = 1.0, rate: float | None = None) -> MemoryShare:
    """A memory of 100 bytes in a plan, the first with the tail."""
    return MemoryShare(name, 100, cost, rate, used, used, traffic, 0, has_tail=name == "A")


def test_a_plan_is_compared_with_simpler_ones_in_bytes_and_milliseconds() -> None:
    memories = (share("A", 2_000), share("B", 500, 0, 6.0, 1e6))
    rivals = {"all in B": (0, 2_500), "all in A": None}
    costs = {"all in B": 15_000.0, "all in A": None}
    plan: Any = SimpleNamespace(
        memories=memories, cost=5_000.0, rivals=costs, rival_traffic=rivals, home=0, others=memories[1:]
    )
    table = rivals_table(plan)
    assert [*table.columns] == ["plan", "cost", "bytes in A", "bytes in B", "ms in B"]
    assert table.title.endswith("; ms: at least, at the rate of the memory")
    assert [[str(value) for value in row] for row in table.rows] == [
        ["this plan", "5,000", "2,000", "500", "0.50"],
        ["all in B", "15,000", "0", "2,500", "2.50"],
        ["all in A", "does not fit", "", "", ""],
    ]
    plan.memories = (memories[0], replace(memories[1], rate=None))
    assert "ms" not in rivals_table(plan).title
    board = replace(by_name("nrf52dk"), ram=(Bank("A", 100), Bank("B", 100)))
    plan.memories = memories
    assert [(each.part, each.bytes) for each in spread_of(plan, board)] == [("arena", 10)]
    assert [row[-2] for row in shares_table(plan).rows] == ["90", "100"]


def test_memories_are_drawn_with_what_is_in_each() -> None:
    machine = MachineOptions(target="cortex-m4").machine()
    on: dict[str, Any] = {"target": machine.target, "kernels": machine.kernels}
    plan = tflm.plan(TINY, memories=[("A", 1 << 12, 6.0), ("B", 16, 1.0)], **on)
    drawn = {name.partition(",")[0]: figures for name, figures in drawn_memories(plan, machine).items()}
    whole = tflm.measure_arena(plan.model, tflm.AllOpsResolver(), planner=plan.planner(), **on)
    home = plan.memories[plan.home]
    assert list(drawn) == [home.name, *(each.name for each in plan.others)]
    for each in plan.memories:
        found, is_home = drawn[each.name], each is home
        assert (found["tail_bytes"], found["temp_bytes"]) == (
            (whole.tail_bytes, whole.temp_bytes) if is_home else (0, 0)
        )
        assert (found["minimum_arena_bytes"], found["head_bytes"]) == (each.used_bytes, each.buffer_bytes)
        assert all(0 <= b["offset"] <= each.buffer_bytes - b["bytes"] for b in found["buffers"])
    assert sum(len(found["buffers"]) for found in drawn.values()) == len(plan.buffers)


# --- Projects --------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::tflm.VersionAssumed")
def test_a_chosen_release_is_the_one_that_a_project_pins() -> None:
    newest, earlier = releases.distributions()["zephyr"][-1], releases.distributions()["zephyr"][-2]
    for named, pinned in ((None, newest), (f"zephyr {earlier.version}", earlier)):
        machine = MachineOptions(board="nrf52840dk", release=named).machine()
        assert machine_of_project(machine, "zephyr").kernels.release.distribution == pinned


@pytest.mark.parametrize(
    "words",
    [
        ["-b", "pico", "m", "p"],
        ["--board", "pico", "m", "p"],
        ["--board=pico", "m", "p"],
        ["-bpico", "m", "p"],
        ["m", "p"],
    ],
)
def test_a_project_names_the_board_once_wherever_it_was_named(words: list[str]) -> None:
    on = MachineOptions(board="pico")
    assert origin_of_project(["/bin/tflm", "export", *words], on) == "tflm export m p --board pico"


@pytest.mark.parametrize("banks", ["SDRAM", "SRAM SDRAM", "SDRAM SRAM"])
def test_a_part_of_st_has_no_sdram_set_up(banks: str) -> None:
    board = by_name("stm32f746g-disco")
    placements = [SimpleNamespace(bank=Bank(name, 1)) for name in banks.split()]
    build: Any = SimpleNamespace(chip=board.chip, machine=SimpleNamespace(board=board), placements=placements)
    with pytest.raises(RequestError, match="does not set up SDRAM"):
        stm32_values(build)


def test_memories_of_an_emulated_board_follow_each_other() -> None:
    banks = [Bank("A", 16), Bank("PSRAM", 32), Bank("B", 8), Bank("SDRAM", 4), Bank("C", 1)]
    assert [*_emulated_addresses(banks, 0x100, 0x1000)] == [0x100, 0x1000, 0x110, 0x1020, 0x118]


def test_a_project_as_c_has_the_target_and_the_stack_of_its_kind() -> None:
    found: Any = SimpleNamespace(name="net", stack_bytes=5_001, ids=SimpleNamespace(zephyr="nrf/x"))
    assert [_cmake_target(found, kind) for kind in ("zephyr", "pico", "qemu")] == ["app", "net", "net"]
    assert _zephyr_values(found) == {"configuration": "CONFIG_MAIN_STACK_SIZE=5008", "zephyr_board": "nrf/x"}
    found.stack_bytes, found.ids = 7, SimpleNamespace(zephyr="")
    assert _zephyr_values(found) == {
        "configuration": f"CONFIG_MAIN_STACK_SIZE={MIN_MAIN_STACK}",
        "zephyr_board": "BOARD",
    }


@pytest.mark.parametrize("name", ["nucleo-h743zi", "esp32-s3-eye"])
def test_a_build_places_an_arena_or_a_model_as_c_that_fits(name: str) -> None:
    on = MachineOptions(board=name).machine()
    assert on.board is not None
    fit, names = on.fit(TINY), {"name": "net"}
    with_tflm = Build(TINY, on, names, fit)
    assert (with_tflm.name, with_tflm.placements, with_tflm.usual_bank) == ("net", fit.placements, fit.firmware_bank)
    assert with_tflm.stack_bytes == fit.firmware_ram.stack_bytes + STACK_OF_MAIN
    assert with_tflm._replace(dump=True).placements == ()
    small: Any = SimpleNamespace(fits_ram=False, placements=fit.placements, firmware_bank=None)
    small.firmware_ram = SimpleNamespace(stack_bytes=0)
    largest = max(on.board.on_chip_ram, key=lambda bank: bank.bytes)
    without = with_tflm._replace(found=small)
    assert (without.placements, without.usual_bank, without.stack_bytes) == ((), largest, MIN_STACK)
    bank = on.board.ram[-1]
    c: Any = SimpleNamespace(fits_ram=True, blocks=(5, 7), banks=(bank, largest), stack_bank=bank, stack_bytes=900)
    compiled = with_tflm._replace(found=None, compiled=c)
    assert [(each.part, each.bytes, each.bank) for each in compiled.placements] == [
        ("ram", 5, bank),
        ("ram", 7, largest),
    ]
    assert (compiled.usual_bank, compiled.stack_bytes) == (bank, 900 + STACK_OF_MAIN)
    c.fits_ram, c.stack_bank, c.stack_bytes = False, None, None
    assert (compiled.placements, compiled.usual_bank, compiled.stack_bytes) == ((), largest, MIN_STACK)
    bare = with_tflm._replace(found=None)
    assert (bare.placements, bare.usual_bank, bare.stack_bytes) == ((), None, MIN_STACK)
    assert [bare.uses(type) for type in (TensorType.INT8, TensorType.FLOAT32)] == [True, False]


@pytest.mark.parametrize(("bank", "placed"), [("DTCM", ("DTCM", "a header")), ("RAM", ("", "")), (None, ("", ""))])
def test_a_block_outside_of_the_usual_memory_has_its_attribute(bank: str | None, placed: tuple[str, str]) -> None:
    build: Any = SimpleNamespace(usual_bank=Bank("RAM", 1))
    how: Any = SimpleNamespace(memory=lambda bank: (bank.name, "a header"))
    placement: Any = SimpleNamespace(bank=None if bank is None else Bank(bank, 1))
    assert _memory(build, placement, how) == placed
    assert _memory(build, placement, None) == _memory(build, None, how) == ("", "")


# --- Times -----------------------------------------------------------------------------------------------------------


ESTIMATED = Estimate("cortex-m4", "reference", "-O2", 12_345, 23_456, 0.1, 25_000, 0.256, 0.2, 1.0, (), "As assumed.")


@pytest.mark.parametrize(
    ("changed", "facts"),
    [
        (
            {},
            "about 0.26 ms, within 20%|12,345, within 10%|about 25,000, within 20%|23,456|100% of the instructions",
        ),
        (
            {"milliseconds": 123.4, "covered": 0.9996, "device_cycles": 99},
            "about 120 ms, within 20%|12,345, within 10%|about 99, within 20%|23,456|99.9% of the instructions",
        ),
        (
            {"milliseconds": None, "covered": 0.9},
            "unknown: specify the clock with --mhz|12,345, within 10%|about 25,000, within 20%|23,456|"
            "90.0% of the instructions",
        ),
        (
            {"milliseconds": None, "covered": 0.8994},
            "unknown: too little of the model is covered|12,345 for the covered part; at most 1.1 times that|"
            "about 25,000 for the covered part; at most 1.2 times that|23,456|89.9% of the instructions",
        ),
        (
            {"milliseconds": None, "covered": 0.0, "instructions": 0, "cycles": 0},
            "unknown: too little of the model is covered|unknown: no operator has a formula|"
            "unknown: no operator has a formula|0|0.0% of the instructions",
        ),
    ],
)
def test_an_estimate_says_how_certain_it_is(changed: dict[str, Any], facts: str) -> None:
    report = estimate_report("net", replace(ESTIMATED, **changed))
    assert report.title == "net on cortex-m4, reference kernels, -O2"
    assert "|".join(fact for _, fact in report.facts) == facts
    assert [name for name, _ in report.facts] == ["time", "instructions", "cycles", "table cycles", "covered"]
    assert (report.notes, report.tables[0].rows) == (["As assumed."], [])


def test_an_estimate_counts_what_it_leaves_out() -> None:
    operators = (
        OperatorEstimate(0, "ADD", "add", 100, 150, 0),
        OperatorEstimate(1, "RFFT2D", "", None, None, 0, "not measured", 990),
        OperatorEstimate(2, "CONV_2D", "conv", 200, 450, 7),
        OperatorEstimate(3, "RFFT2D", "", None, None, 0, "not measured", 25),
        OperatorEstimate(4, "TANH", "", None, None, 0, "of int16"),
    )
    report = estimate_report("net", replace(ESTIMATED, cycles=600, operators=operators))
    assert report.notes[:-1] == [
        "not covered: 2 RFFT2D: not measured",
        "not covered: 1 TANH: of int16",
        "operators that are not covered may take 1,000 instructions (rough estimate)",
    ]
    assert [[str(value) for value in row[2:]] for row in report.tables[0].rows] == [
        ["100", "150", "25.0%", ""],
        ["", "", "", ""],
        ["200", "450", "75.0%", "7"],
        ["", "", "", ""],
        ["", "", "", ""],
    ]
    (table,) = estimate_report("net", replace(ESTIMATED, cycles=0, operators=operators[:1])).tables
    assert table.rows[0][-2:] == ["", ""]


def timed(subgraph: int, index: int, runs: float, us: float, count: int = 0) -> OperatorTime:
    return OperatorTime(subgraph, index, "ADD", runs, us, us / 200, count)


def test_times_are_shown_by_run_and_compared_with_the_invoke() -> None:
    operators = [timed(0, 3, 1, 1_240.0, 4_960), timed(1, 0, 2.5, 900.0), timed(0, 0, 0, 70.0, 8), timed(0, 1, 1, 0, 9)]
    report = timing_report(1_000.0, 5, operators)
    assert report.title == "1,000.0 us an invoke (median of 5)"
    assert report.notes == []
    assert [[str(value) for value in row if row is not None] for row in report.tables[0].rows] == [
        ["3", "ADD", "1", "1,240.0", "620.0%", "4,960", "4"],
        ["1:0", "ADD", "2.5", "900.0", "450.0%", "", ""],
        ["0", "ADD", "once", "70.0", "", "8", "0"],
        ["1", "ADD", "1", "0.0", "0.0%", "9", ""],
    ]
    longer, shorter = (timing_report(1_000.0, 5, [timed(0, 0, 1, us)]).notes[0] for us in (1_251.0, 749.0))
    assert longer.startswith("the operators add up to 1,251.0 us, 1.25 of it: timing takes about 1 us per operator")
    assert shorter.startswith("the operators add up to 749.0 us, 0.75 of it: the machine may have been busy")
    assert [timing_report(1_000.0, 5, [timed(0, 0, 1, us)]).notes for us in (750.0, 1_250.0)] == [[], []]


# --- Sentences and names ---------------------------------------------------------------------------------------------


def test_a_changed_file_is_of_the_versions_that_have_it() -> None:
    found = [_origin(Modified("a.cc", *versions)) for versions in ((), ("1", "1"), ("1", "3"))]
    assert found == ["of no known version: changed locally", "of 1", "of 1 to 3"]


@pytest.mark.parametrize(
    ("verdicts", "line"),
    [
        (["fits"], "m0: fits"),
        (["fits", ""], ""),
        (["fits", "fits"], "2 of 2 models pass"),
        (["fits", "too large"], "1 of 2 models pass"),
    ],
)
def test_models_of_a_gate_have_one_verdict(verdicts: list[str], line: str) -> None:
    models: Any = [SimpleNamespace(model=f"m{i}", verdict=v, fits=v == "fits") for i, v in enumerate(verdicts)]
    assert _common_verdict(models) == line


def test_a_pattern_names_models_in_all_folders_once(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.tflite", "x/b.tflite", "x/y/c.tflite", "x/[d].tflite")]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "x" / "other").touch()
    assert {*models_from([f"{tmp_path}/**/*.tflite"])} == {*paths}
    assert models_from([str(paths[3]), str(paths[0]), f"{tmp_path}/*.tflite"]) == [paths[3], paths[0]]
    with pytest.raises(RequestError, match="no files match"):
        models_from([f"{tmp_path}/*.none"])


def test_a_recording_has_the_invokes_that_were_compared(tmp_path: Path) -> None:
    steps = [[np.array([10 * i + j], np.int8) for j in range(2)] for i in range(3)]
    verdict: Any = SimpleNamespace(invokes=2, outputs=[[np.float32([i])] for i in range(2)])
    write_recording(tmp_path / "r.npz", steps, verdict)
    found = {name: values.tolist() for name, values in np.load(tmp_path / "r.npz").items()}
    inputs = {"in_0_0": [0], "in_0_1": [1], "in_1_0": [10], "in_1_1": [11]}
    assert found == {**inputs, "out_0_0": [0.0], "out_1_0": [1.0]}


@pytest.mark.parametrize(("invokes", "many"), [(0, "0 invokes"), (1, "1 invoke"), (2, "2 invokes")])
def test_a_verdict_on_a_device_counts_invokes(invokes: int, many: str) -> None:
    wrong = SimpleNamespace(operator_index=1, operator="ADD", tensor="y", invoke=2, overwrites=invokes > 1)
    machine = MachineOptions(target="cortex-m4", kernels="cmsis-nn").machine()
    said = {
        Status.EQUAL: f"equal: 3 operators, {many}",
        Status.DOCUMENTED: f"differs as cmsis-nn is known to: {many}",
        Status.WRONG: f"differs: operator 1 ADD {'overwrites' if invokes > 1 else 'is wrong in'} y, invoke 2",
    }
    for status, line in said.items():
        verdict: Any = SimpleNamespace(status=status, invokes=invokes, compared=3, wrong=wrong)
        assert verdict_line(verdict, machine) == line
