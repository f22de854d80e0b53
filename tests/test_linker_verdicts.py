"""Verdicts beside those of a linker: no model that fits fails to link, and none that does not fit links."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from sampling import some

import tflm
from tflm.boards import Board, by_name
from tflm.boards.sdks import SdkShare
from tflm.firmware.board_fit import Answer, BoardFit, board_fit
from tflm.firmware.flash import operators_of, resolver_method
from tflm.firmware.verdict import verdict_of

COMPILER = "arm-none-eabi-gcc"

BOARDS = ["nucleo-f401re", "nrf52dk", "wio-terminal", "pico", "nucleo-l053r8", "corstone-300"]
MODELS = ["hello_world_int8", "kws_ref_model", "micro_speech_quantized", "okay_nabu_v2", "person_detect"]
MODELS += ["pretrainedResnet_quant", "vww_96_int8", "ad01_int8", "trained_lstm", "dtln_noise_suppression"]


class Linked(NamedTuple):
    """A firmware that was linked with TFLM: bytes of code, and of initialized and other variables."""

    code: int
    data: int
    bss: int


@functools.cache
def firmwares(folder: Path) -> dict[tuple[str, str, frozenset[str]], Linked]:
    """Linked firmwares by part, kernels and operators."""
    lines = map(json.loads, (folder / "linked.jsonl").read_text().splitlines())
    return {
        (each["cpu"], each["kernels"], frozenset(each["operators"])): Linked(
            each["flash"] - each["data"], each["data"], each["bss"]
        )
        for each in lines
        if each["build"] == "release"
    }


@pytest.fixture
def linked(corpus: Path) -> dict[tuple[str, str, frozenset[str]], Linked]:
    """The linked firmwares; tests are skipped without them and the compiler."""
    if shutil.which(COMPILER) is None or not (corpus / "flash" / "linked.jsonl").exists():
        pytest.skip(f"needs {COMPILER}, and flash/linked.jsonl of the corpus")
    return firmwares(corpus / "flash")


def links(fit: BoardFit, firmware: Linked, ram: int, code: int, folder: Path) -> bool:
    """Whether firmware, model, arena, stack and an SDK of these sizes link in what the board's SDK leaves."""
    program = fit.board.program
    assert program is not None
    (bank,) = fit.board.memories_at_best[:1]
    stack = fit.firmware_ram.stack_bytes - fit.separate_stack_bytes
    sizes = {
        ".text": firmware.code + code,
        ".rodata": fit.model_bytes,
        ".data": firmware.data,
        ".bss": firmware.bss + ram,
        ".arena": fit.measured.minimum_arena_bytes,
        ".stack": stack,
    }
    flags = {".text": '"ax"', ".rodata": '"a"', ".data": '"aw"'}
    source = "\n".join(
        f".section {name},{flags.get(name, chr(34) + 'aw' + chr(34) + ',%nobits')}\n.space {size}"
        for name, size in sizes.items()
    )
    (folder / "sizes.s").write_text(".global start\n.set start, 0\n" + source + "\n")
    (folder / "board.ld").write_text(
        f"MEMORY {{ FLASH (rx) : ORIGIN = 0x08000000, LENGTH = {program.high}\n"
        f"RAM (rwx) : ORIGIN = 0x20000000, LENGTH = {bank.bytes} }}\nENTRY(start)\n"
        "SECTIONS { .text : { *(.text) *(.rodata) } > FLASH .data : { *(.data) } > RAM AT > FLASH\n"
        ".bss (NOLOAD) : { *(.arena) *(.bss) *(.stack) } > RAM }\n"
    )
    command = [COMPILER, "-nostdlib", "-Wl,--no-warn-rwx-segments", "-T", "board.ld", "sizes.s", "-o", "firmware.elf"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0 or "overflowed" in done.stderr or "will not fit" in done.stderr, done.stderr
    return done.returncode == 0


def one_bank(board: Board) -> Board:
    """A board with the memory of its SDK's data alone."""
    (bank,) = [bank for bank in board.ram if bank.name == (board.sdk_banks[0].name)]
    return replace(board, ram=(bank,))


def near_its_limits(fit: BoardFit) -> list[BoardFit]:
    """The fit on its board, and on boards with as much RAM or flash as it takes in any case, and with too little."""
    share = fit.board.share
    assert share is not None
    ram, flash = fit.measured.minimum_arena_bytes + fit.other_ram.high, fit.flash_taken.high + share.reserved_bytes
    least_ram, least_flash = ram - fit.other_ram.high + fit.other_ram.low, fit.flash_taken.low
    slack = 64  # TFLM's code is known to so many bytes
    found = [fit]
    for of_ram, of_flash in ((ram, flash), (least_ram - slack, flash), (ram, least_flash - slack)):
        bank = replace(fit.board.ram[0], bytes=of_ram)
        bare = replace(share, static={}, heap={}, program=None, reserved_bytes=0)
        found.append(_with_share(replace(fit, board=replace(fit.board, ram=(bank,), flash_bytes=of_flash)), bare))
    return found


def _with_share(fit: BoardFit, share: SdkShare) -> BoardFit:
    class Resized(Board):
        """A board whose SDK leaves its whole memories."""

        @property
        def share(self) -> SdkShare:
            """What the SDK takes."""
            return share

    fields = {name: getattr(fit.board, name) for name in fit.board.__dataclass_fields__}
    return replace(fit, board=Resized(**fields))


@pytest.mark.parametrize("name", some(BOARDS, "nucleo-f401re", "pico"))
def test_what_fits_links_and_what_does_not_fit_does_not(
    name: str, linked: dict[tuple[str, str, frozenset[str]], Linked], corpus: Path, tmp_path: Path
) -> None:
    """With the smallest SDK and the largest that are known, by the linker itself."""
    board, pairs = one_bank(by_name(name)), 0
    share = board.share
    assert share is not None
    for path in MODELS:
        model = tflm.Model.from_file(corpus / "models" / f"{path}.tflite")
        operators = frozenset(map(resolver_method, operators_of(model)))
        firmware = linked.get((board.target.name, "cmsis-nn", operators))
        if firmware is None:
            continue
        for fit in near_its_limits(board_fit(model, board, kernels="cmsis-nn")):
            least = links(fit, firmware, share.ram.low, share.code.low, tmp_path)
            most = links(fit, firmware, share.ram.high, max(share.code.high - 64, 0), tmp_path)
            assert most <= least
            answer = verdict_of(fit).answer
            assert answer is not Answer.YES or most, (path, verdict_of(fit).line)
            assert answer is not Answer.NO or not least, (path, verdict_of(fit).line)
            pairs += 1
    assert pairs >= 36
