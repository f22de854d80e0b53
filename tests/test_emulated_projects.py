"""Projects built with the sources of TFLM, the Pico SDK and ST, and run under emulation.

`make projects TFLM_TREE=FOLDER PICO_SDK=FOLDER STM32=FOLDER IDF_TREE=FOLDER` names the sources and skips what it lacks;
STM32 holds ST's repositories, such as cmsis_device_f4.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from example_models import INT8_MODEL

import tflm
from tflm.application.export import Firmware
from tflm.application.flash_report import linked_fit
from tflm.application.machine import Machine, MachineOptions
from tflm.application.projects import project_files
from tflm.application.projects.bare import stm32_parts
from tflm.application.projects.parts import PROCESSORS
from tflm.atomic_write import write_files
from tflm.boards import Bank, by_name
from tflm.firmware.board_fit import Answer, board_fit
from tflm.firmware.linked import read_linked

BUILT = Path(__file__).parents[1] / "build" / "projects"
"""Where TFLM is compiled, once for each part."""

RESERVE = 5 << 10
"""Bytes of RAM for main, printing and the C library."""

FILL = "i * 37 + i / 96"
"""The inputs, in C++: of each element, by its index."""


@pytest.fixture(scope="session")
def tree() -> Path:
    """TFLM's sources with their downloads; tests are skipped without them and the tools."""
    tools = ("arm-none-eabi-gcc", "qemu-system-arm", "cmake")
    if "TFLM_TREE" not in os.environ or not all(map(shutil.which, tools)):
        pytest.skip(f"needs TFLM's sources in $TFLM_TREE, and {', '.join(tools)}")
    return Path(os.environ["TFLM_TREE"]).resolve()


def called(*command: object) -> str:
    answer = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout[-2000:] + answer.stderr[-2000:]
    return answer.stdout + answer.stderr


def library(project: Path, tree: Path, name: str) -> list[str]:
    """Options that name TFLM's sources and, once it is compiled, the library for a processor."""
    archive = BUILT / f"{name}.a"
    return [f"-DTFLM_DIR={tree}", *([f"-DTFLM_LIBRARY={archive}"] if archive.exists() else [])]


def built(project: Path, tree: Path, name: str, *options: str) -> Path:
    """Build a project as its README says, with TFLM compiled once for each processor; returns the ELF file."""
    folder = project / "build"
    called("cmake", "-S", project, "-B", folder, *library(project, tree, name), *options)
    called("cmake", "--build", folder, "-j", "2")
    if (folder / "libtflm.a").exists():
        BUILT.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / "libtflm.a", BUILT / f"{name}.a")
    (image,) = folder.glob("*.elf")
    return image


def filled(project: Path) -> None:
    """Let a project fill its input as `answers` does."""
    main = (project / "main.cc").read_text()
    assert main.count("[i] = 0;") == 1
    (project / "main.cc").write_text(main.replace("[i] = 0;", f"[i] = static_cast<int8_t>({FILL});"))


def printed(text: str) -> list[int]:
    """The integers of output 0 that a firmware prints, of its first run."""
    values = dict(reversed(re.findall(r"output 0\[(\d+)\]: (-?\d+)", text)))
    return [int(values[str(i)]) for i in range(len(values))]


def answers(model: tflm.Model) -> list[int]:
    """Return the runtime's results for the firmware's inputs."""
    interpreter = tflm.MicroInterpreter(model, tflm.AllOpsResolver(), bytearray(1 << 20))
    interpreter.allocate_tensors()
    data = interpreter.input(0).data
    i = np.arange(data.size)
    data[...] = (i * 37 + i // 96).astype(np.int8).reshape(data.shape)
    interpreter.invoke()
    return [int(value) for value in interpreter.output(0).data.ravel()]


def shrink_arena(project: Path, less: int) -> None:
    """Take bytes from the arena of a project."""
    size = (project / "arena_size.h").read_text()
    (project / "arena_size.h").write_text(re.sub(r"= (\d+);", lambda found: f"= {int(found[1]) - less};", size))


def firmware_prints(found: tflm.Fit, name: str, tree: Path, folder: Path, less: int = 0) -> str:
    """Return the output of a fitted model's firmware, with the inputs of `answers` and an arena that is smaller by
    `less` bytes."""
    part = found.board.target.name
    machine = Machine(found.board.target, found.kernels, found.board)
    write_files(folder, project_files(Firmware(found.model, name, machine, "a test"), "qemu", found=found.found))
    filled(folder)
    shrink_arena(folder, less)
    image = built(folder, tree, f"{part}-{found.kernels.name.replace(':', '-')}")
    command = ["qemu-system-arm", "-M", PROCESSORS[part].machine, "-nographic", "-semihosting", "-kernel", str(image)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode == 0) == (not less)
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", ["hello_world", "person_detect"])
@pytest.mark.parametrize("board", ["nrf52dk", "nucleo-f746zg", "corstone-300"])
def test_a_fitted_firmware_answers_as_the_original_model(
    tree: Path, corpus: Path, board: str, name: str, tmp_path: Path
) -> None:
    """The firmware uses the memories of the board, with its stack. With an arena that is 16 bytes smaller, allocation
    fails."""
    path = INT8_MODEL if name == "hello_world" else corpus / "models" / f"{name}.tflite"
    original = tflm.Model.from_file(path)
    found = tflm.fit(original, board=by_name(board, "bare-metal"))
    assert found.fits
    assert printed(firmware_prints(found, name, tree, tmp_path)) == answers(original)
    shown = firmware_prints(found, name, tree, tmp_path, less=16)
    assert "AllocateTensors() failed" in shown
    assert "output" not in shown


@pytest.mark.parametrize(
    ("board", "name"),
    [
        ("nrf52dk", "pretrainedResnet_quant"),
        ("corstone-300", "person_detect"),
        ("corstone-300", "pretrainedResnet_quant"),
    ],
)
def test_a_firmware_whose_tensors_overlap_answers_as_the_original_model(
    tree: Path, corpus: Path, board: str, name: str, tmp_path: Path
) -> None:
    """A memory that only the plan with overlap fits, and CMSIS-NN's kernels with the part's instructions."""
    original, where = tflm.Model.from_file(corpus / "models" / f"{name}.tflite"), by_name(board, "bare-metal")
    planned = tflm.plan(original, target=where.target, kernels="cmsis-nn", overlap="cmsis-nn")
    others = board_fit(planned.model, where, reserve=RESERVE).other_ram.high
    small = replace(where, ram=(Bank("RAM", planned.after.minimum_arena_bytes + others),))
    found = tflm.fit(original, board=small, kernels="cmsis-nn", reserve=RESERVE)
    assert found.chosen.name == "overlapping tensors"
    assert printed(firmware_prints(found, name, tree, tmp_path)) == answers(original)


# --- Projects for real parts ----------------------------------------------------------------------------------------


def named(variable: str) -> Path:
    """A folder that a variable names; tests are skipped without it."""
    if not os.environ.get(variable):
        pytest.skip(f"needs a folder in ${variable}")
    return Path(os.environ[variable]).resolve()


def exported(folder: Path, model: Path, board: str, kind: str) -> Machine:
    on = MachineOptions(board=board).machine()
    write_files(folder, project_files(Firmware(tflm.Model.from_file(model), "net", on, "a test"), kind))
    return on


def fits_as_linked(model: Path, on: Machine, image: Path) -> None:
    """The linker's figures are among those that were predicted, and so is each part of them."""
    assert on.board is not None
    assert on.board.share is not None
    predicted, linked = board_fit(tflm.Model.from_file(model), on.board, kernels=on.kernels), read_linked(image)
    beside, share = predicted.firmware_ram, on.board.share
    assert predicted.answer is Answer.YES
    assert linked_fit(predicted, linked).answer is Answer.YES
    assert linked.ram["arena"] == predicted.measured.minimum_arena_bytes
    assert linked.flash["model"] == predicted.model_bytes
    flash, static = predicted.flash_taken, linked.ram_bytes - linked.ram["arena"]
    print(f"{on.place}: flash {linked.flash_bytes:,} of {flash}, RAM beside the arena {static:,}; {linked}")
    assert flash.low <= linked.flash_bytes <= flash.high
    assert beside.static_bytes - beside.unsure_bytes + share.ram.low <= static <= beside.static_bytes + share.ram.high


@pytest.mark.parametrize(("pico_board", "board"), [("pico", "pico"), ("pico_w", "pico"), ("pico2", "pico2")])
def test_pico_projects_build_as_predicted(tree: Path, pico_board: str, board: str, tmp_path: Path) -> None:
    on = exported(tmp_path, INT8_MODEL, board, "pico")
    options = f"-DPICO_SDK_PATH={named('PICO_SDK')}", f"-DPICO_BOARD={pico_board}", "-DPICO_NO_PICOTOOL=1"
    fits_as_linked(INT8_MODEL, on, built(tmp_path, tree, f"sdk-{board}", *options))


def stm32_image(folder: Path, tree: Path, chip: str) -> Path:
    series = stm32_parts()[chip].series.lower()
    target = by_name(chip).target.name
    return built(folder, tree, f"{target}-cmsis-nn", f"-DSTM32_DIR={named('STM32') / f'cmsis_device_{series}'}")


@pytest.mark.parametrize("chip", ["STM32F401", "STM32F446", "STM32L476", "STM32F746", "STM32H743"])
def test_stm32_projects_build_as_predicted(tree: Path, chip: str, tmp_path: Path) -> None:
    on = exported(tmp_path, INT8_MODEL, chip, "stm32")
    fits_as_linked(INT8_MODEL, on, stm32_image(tmp_path, tree, chip))


@pytest.mark.parametrize("chip", ["STM32F401"])
def test_stm32_projects_link_where_the_verdict_is_yes_and_never_where_it_is_no(
    tree: Path, chip: str, tmp_path: Path
) -> None:
    """With as much flash as the firmware takes at most, and with a byte less than it takes at least."""
    on = exported(tmp_path, INT8_MODEL, chip, "stm32")
    assert on.board is not None
    stm32_image(tmp_path, tree, chip)
    script = (tmp_path / "memory.ld").read_text()
    model, whole = tflm.Model.from_file(INT8_MODEL), f"LENGTH = {on.board.flash_bytes}"
    assert script.count(whole) == 1
    taken = board_fit(model, on.board, kernels=on.kernels).flash_taken
    for flash, answer in ((taken.high, Answer.YES), (taken.low - 1, Answer.NO)):
        assert board_fit(model, replace(on.board, flash_bytes=flash), kernels=on.kernels).answer is answer
        (tmp_path / "memory.ld").write_text(script.replace(whole, f"LENGTH = {flash}"))
        (tmp_path / "main.cc").touch()
        link = ["cmake", "--build", str(tmp_path / "build")]
        done = subprocess.run(link, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) == (answer is Answer.YES)
        assert answer is Answer.YES or "overflowed by" in done.stderr + done.stdout


@pytest.mark.parametrize("less", [0, 16])
def test_an_stm32f405_prints_the_predicted_integers(tree: Path, less: int, tmp_path: Path) -> None:
    """With an arena that is 16 bytes smaller than stated, allocation fails."""
    exported(tmp_path, INT8_MODEL, "STM32F405", "stm32")
    filled(tmp_path)
    shrink_arena(tmp_path, less)
    image = stm32_image(tmp_path, tree, "STM32F405")
    options = "-M netduinoplus2 -display none -monitor none -serial stdio -kernel"
    command = ["timeout", "5", "qemu-system-arm", *options.split(), str(image)]
    shown = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL).stdout
    if less:
        assert shown.splitlines()[0] == "AllocateTensors() failed"
        assert "output" not in shown
    else:
        assert printed(shown) == answers(tflm.Model.from_file(INT8_MODEL))
        assert shown.count("output 0[0]") > 1  # it runs again and again


# --- Projects for ESP-IDF, beside its sources -------------------------------------------------------------------------


@pytest.mark.parametrize("board", ["esp32-devkitc", "esp32-s3-eye", "esp32-c3-devkitm-1", "esp32-p4-function-ev"])
def test_settings_are_those_of_esp_idf(board: str, corpus: Path) -> None:
    """Every symbol is declared in a Kconfig file, and headers and functions exist."""
    idf, on = named("IDF_TREE"), MachineOptions(board=board).machine()
    files = project_files(Firmware(tflm.Model.from_file(INT8_MODEL), "net", on, "a test"), "esp-idf")
    declared = "\n".join(
        path.read_text(errors="replace") for path in (idf / "components").rglob("Kconfig*") if path.is_file()
    )
    declared += "\n".join(path.read_text(errors="replace") for path in idf.glob("Kconfig*"))
    for symbol in re.findall(r"^CONFIG_(\w+)=", files["sdkconfig.defaults"], re.MULTILINE):
        assert re.search(rf"config {symbol}\b", declared), symbol
    assert (idf / "components" / "soc" / on.target.name).is_dir()
    assert "void *heap_caps_aligned_alloc(" in (idf / "components/heap/include/esp_heap_caps.h").read_text()
    assert "define EXT_RAM_BSS_ATTR" in (idf / "components/esp_common/include/esp_attr.h").read_text()
