"""Verdicts beside the links of whole projects, with the sources that `test_emulated_projects` names.

A project that fits links, also with variables that take all RAM, or constants that take all flash, that the verdict
leaves. A project that does not fit does not link, nor does one with so many of them that the verdict is "no".
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from example_models import INT8_MODEL
from test_emulated_projects import called, library, named, tree  # noqa: F401  # a fixture

import tflm
from tflm.application.export import Firmware
from tflm.application.machine import Machine, MachineOptions
from tflm.application.projects import project_files
from tflm.application.projects.bare import stm32_parts
from tflm.application.projects.parts import PROCESSORS
from tflm.atomic_write import write_files
from tflm.firmware.board_fit import Answer, BoardFit, board_fit
from tflm.firmware.verdict import verdict_of

PICOS = ["pico", "pico2"]
STM32 = ["nucleo-f401re", "nucleo-f411re", "nucleo-f446re", "nucleo-l4r5zi", "nucleo-l476rg", "b-l475e-iot01a"]
STM32 += ["stm32f4-discovery"]
BARE = ["nrf52dk", "nrf52840dk", "wio-terminal"]
MODELS = ["hello_world_int8", "kws_ref_model", "okay_nabu_v2", "person_detect", "vww_96_int8", "trained_lstm"]

STEP = 64
"""Limits are found to so many bytes: an alignment of the linker may take some."""


@dataclass
class Bench:
    """The project of a board, configured once, for one model after the other."""

    folder: Path
    kind: str
    on: Machine

    def configured(self, *options: object) -> None:
        called("cmake", "-S", self.folder, "-B", self.folder / "build", *options)

    def write(self, fit: BoardFit, model: tflm.Model) -> None:
        """Write the project of a model, and leave files as they are that do not change."""
        files = project_files(Firmware(model, "net", self.on, "a test"), self.kind, found=fit)
        ballast = f"{self.folder / 'ballast.o'} -Wl,-u,more_variables,-u,more_constants"
        files["CMakeLists.txt"] += f"target_link_options(net PRIVATE {ballast})\n"
        now = {name: text for name, text in files.items() if not _has(self.folder / name, text)}
        write_files(self.folder, now)

    def links(self, ram: int = 0, flash: int = 0) -> bool:
        """Whether the project links with this many bytes of other variables and constants."""
        (self.folder / "ballast.s").write_text(
            f'.section .bss.more,"aw",%nobits\n.global more_variables\nmore_variables: .space {ram}\n'
            f'.section .rodata.more,"a"\n.global more_constants\nmore_constants: .space {flash}\n'
        )
        part = PROCESSORS[self.on.target.name].flags.split()[0]
        called("arm-none-eabi-gcc", part, "-c", self.folder / "ballast.s", "-o", self.folder / "ballast.o")
        image = self.folder / "build" / "net.elf"
        image.unlink(missing_ok=True)
        command = ["cmake", "--build", str(self.folder / "build"), "-j", "2"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        said = done.stdout + done.stderr
        assert done.returncode == 0 or "overflowed" in said or "are left for the stack" in said, said[-2000:]
        return done.returncode == 0


def _has(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


def last_with(answers: set[Answer], changed: Callable[[int], BoardFit], most: int) -> int:
    """Return the largest size, a multiple of STEP, that has one of these answers, as 0 has."""
    low, high = 0, most // STEP
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if changed(middle * STEP).answer in answers else (low, middle)
    return low * STEP


def with_reserve(fit: BoardFit, ram: int) -> BoardFit:
    return replace(fit, firmware_ram=replace(fit.firmware_ram, reserve_bytes=ram))


def with_less_flash(fit: BoardFit, flash: int) -> BoardFit:
    assert fit.board.flash_bytes is not None
    return replace(fit, board=replace(fit.board, flash_bytes=fit.board.flash_bytes - flash))


def limits(fit: BoardFit) -> Iterator[tuple[BoardFit, int, int]]:
    """Return the last fits with a "yes" and the first with a "no", by RAM and by flash, with the bytes added to the
    project."""
    ram, flash = sum(bank.bytes for bank in fit.board.ram), fit.board.flash_bytes
    assert flash is not None
    for answers, more in (({Answer.YES}, 0), ({Answer.YES, Answer.UNKNOWN}, STEP)):
        size = last_with(answers, lambda size: with_reserve(fit, size), ram) + more
        yield with_reserve(fit, size), size, 0
        size = last_with(answers, lambda size: with_less_flash(fit, size), flash) + more
        yield with_less_flash(fit, size), 0, size


def bench_of(board: str, folder: Path, tree: Path) -> Bench:  # noqa: F811
    """The project of a board, configured with a small model."""
    kind = "pico" if board in PICOS else "stm32" if board in STM32 else "qemu"
    on = MachineOptions(board=board, sdk=None if kind == "pico" else "bare-metal").machine()
    assert on.board is not None
    name, options = f"{on.target.name}-{on.kernels.name}", []
    if kind == "pico":
        name = f"sdk-{board}"
        options = [f"-DPICO_SDK_PATH={named('PICO_SDK')}", "-DPICO_NO_PICOTOOL=1"]
    elif kind == "stm32":
        series = stm32_parts()[on.board.chip].series.lower()
        options = [f"-DSTM32_DIR={named('STM32') / f'cmsis_device_{series}'}"]
    bench = Bench(folder, kind, on)
    model = tflm.Model.from_file(INT8_MODEL)
    bench.write(board_fit(model, on.board, kernels=on.kernels), model)
    bench.configured(*library(folder, tree, name), *options)
    return bench


@pytest.mark.parametrize("board", [*PICOS, *STM32, *BARE])
def test_projects_link_if_they_fit_and_not_if_they_do_not(
    board: str,
    tree: Path,  # noqa: F811
    corpus: Path,
    tmp_path: Path,
) -> None:
    bench, wrong = bench_of(board, tmp_path, tree), []
    assert bench.on.board is not None
    for name in MODELS:
        model = tflm.Model.from_file(corpus / "models" / f"{name}.tflite")
        whole = board_fit(model, bench.on.board, kernels=bench.on.kernels)
        for fit, ram, flash in [(whole, 0, 0), *(limits(whole) if whole.fits else ())]:
            bench.write(fit, model)
            links = bench.links(ram, flash)
            line = f"{name} and {ram:,} B of RAM, {flash:,} B of flash: {verdict_of(fit).line}; links: {links}"
            print(line)
            if fit.answer is not Answer.UNKNOWN and links is not (fit.answer is Answer.YES):
                wrong.append(line)
    assert not wrong
