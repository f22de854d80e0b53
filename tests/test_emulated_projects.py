"""Projects of `tflm fit`, built with TFLM's sources and run under emulation: `make projects TFLM_TREE=FOLDER`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_cli import INT8_MODEL

import tflm
from tflm.application.projects.parts import PROCESSORS
from tflm.boards import Bank, by_name
from tflm.boards.board_fit import board_fit

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


def built(project: Path, folder: Path, *options: str) -> None:
    """Build a project as its README says."""
    toolchain = f"-DCMAKE_TOOLCHAIN_FILE={project / 'arm-none-eabi.cmake'}"
    called("cmake", "-S", project, "-B", folder, toolchain, "-DCMAKE_BUILD_TYPE=Release", *options)
    called("cmake", "--build", folder, "-j", "2")


def answers(model: tflm.Model) -> list[int]:
    """What the runtime answers to the inputs that the firmware has."""
    interpreter = tflm.MicroInterpreter(model, tflm.AllOpsResolver(), bytearray(1 << 20))
    interpreter.allocate_tensors()
    data = interpreter.input(0).data
    i = np.arange(data.size)
    data[...] = (i * 37 + i // 96).astype(np.int8).reshape(data.shape)
    interpreter.invoke()
    return [int(value) for value in interpreter.output(0).data.ravel()]


def firmware_answers(found: tflm.Fit, name: str, tree: Path, folder: Path) -> list[int]:
    """What the firmware of a fitted model prints, with the inputs of `answers`."""
    found.write(folder, name)
    project, part = folder / "firmware", found.board.target.name
    main = (project / "main.cc").read_text()
    assert main.count("[i] = 0;") == 1
    (project / "main.cc").write_text(main.replace("[i] = 0;", f"[i] = static_cast<int8_t>({FILL});"))
    library = BUILT / f"{part}-{found.kernels.name.replace(':', '-')}"
    if not (library / "libtflm.a").exists():
        built(project, library, f"-DTFLM_DIR={tree}")
    built(project, folder / "build", f"-DTFLM_DIR={tree}", f"-DTFLM_LIBRARY={library / 'libtflm.a'}")
    (image,) = (folder / "build").glob("*.elf")
    shown = called("qemu-system-arm", "-M", PROCESSORS[part].machine, "-nographic", "-semihosting", "-kernel", image)
    return [int(value) for value in re.findall(r"-?\d+", shown)]


@pytest.mark.parametrize("name", ["hello_world", "person_detect"])
@pytest.mark.parametrize("board", ["nrf52dk", "nucleo-f746zg", "corstone-300"])
def test_a_fitted_firmware_answers_as_the_original_model(
    tree: Path, corpus: Path, board: str, name: str, tmp_path: Path
) -> None:
    """The linker script has the memories of the board: the firmware runs in them, with its stack."""
    path = INT8_MODEL if name == "hello_world" else corpus / "models" / f"{name}.tflite"
    original = tflm.Model.from_file(path)
    found = tflm.fit(original, board=board)
    assert found.fits
    assert firmware_answers(found, name, tree, tmp_path) == answers(original)


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
    original, where = tflm.Model.from_file(corpus / "models" / f"{name}.tflite"), by_name(board)
    planned = tflm.plan(original, target=where.target, kernels="cmsis-nn", overlap="cmsis-nn")
    beside = board_fit(planned.model, where, reserve=RESERVE).firmware_ram
    assert beside is not None
    small = replace(where, ram=(Bank("RAM", planned.after.minimum_arena_bytes + beside.bytes),))
    found = tflm.fit(original, board=small, kernels="cmsis-nn", reserve=RESERVE)
    assert found.chosen.name == "overlapping tensors"
    assert firmware_answers(found, name, tree, tmp_path) == answers(original)
