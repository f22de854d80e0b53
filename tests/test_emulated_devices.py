"""Firmware that serves, with TFLM and as C: on five emulated processors and on this machine, compared by `tflm device`.

`make devices TFLM_TREE=FOLDER STM32=FOLDER` names the sources; see `test_emulated_projects`.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from example_models import FLOAT_MODEL, INT8_MODEL
from test_device import model_with_state
from test_emulated_projects import BUILT, built, named, tree

import tflm
from tflm.application.compile_options import compile_options
from tflm.application.device_run import DeviceRun, random_steps, run_device
from tflm.application.export import Firmware, sources
from tflm.application.machine import Machine, MachineOptions
from tflm.application.progress import silent
from tflm.application.projects import project_files
from tflm.application.projects.compiled import compiled_name, compiled_project_files, compiled_sources
from tflm.atomic_write import write_files
from tflm.c.compile import compiled_with
from tflm.device.device import Device
from tflm.device.transports import FileWire
from tflm.device.verdict import Status

__all__ = ["tree"]

DOWNLOADS = "tensorflow/lite/micro/tools/make/downloads"


class Emulated(NamedTuple):
    """A machine of QEMU, or this one: what `MachineOptions` has for it, and the kind of project."""

    options: dict[str, str]
    kind: str


MACHINES = {
    "netduinoplus2": Emulated({"board": "STM32F405"}, "stm32"),
    "mps2-an386": Emulated({"target": "cortex-m4"}, "qemu"),
    "mps2-an385": Emulated({"target": "cortex-m3"}, "qemu"),
    "mps2-an505": Emulated({"target": "cortex-m33"}, "qemu"),
    "mps3-an547": Emulated({"target": "cortex-m55"}, "qemu"),
    "host": Emulated({"target": "host"}, "none"),
}

FILES = {"hello_world": INT8_MODEL, "hello_world_float": FLOAT_MODEL}
MODELS = [
    *FILES,
    "state",
    *("keyword_scrambled_8bit", "okay_nabu_v2", "kws_ref_model", "micro_speech_quantized", "ad01_int8"),
    *("person_detect", "pretrainedResnet_quant"),
]
"""Three of them have state that lasts over invokes."""

HOST_PROJECT = """\
cmake_minimum_required(VERSION 3.18)
project(net LANGUAGES C CXX ASM)
include(tflm.cmake)
add_executable(net main.cc model_data.cc)
target_link_libraries(net PRIVATE tflm)
set_target_properties(net PROPERTIES SUFFIX .elf)
"""

HOST_PROJECT_OF_C = """\
cmake_minimum_required(VERSION 3.18)
project(net LANGUAGES C)
set(CMAKE_C_STANDARD 99)
set(CMAKE_C_EXTENSIONS OFF)
add_compile_definitions(_POSIX_C_SOURCE=200809L)
add_compile_options(-O2 -Wall -Wextra -Werror)
add_executable(net main.c net.c)
target_link_libraries(net PRIVATE m)
set_target_properties(net PROPERTIES SUFFIX .elf)
"""


def model_named(name: str, corpus: Path) -> tflm.Model:
    """A model of the list."""
    if name == "state":
        return model_with_state()
    return tflm.Model.from_file(FILES.get(name, corpus / "models" / f"{name}.tflite"))


def machine_of(name: str, kernels: str) -> Machine:
    """A machine with a kernel library."""
    return MachineOptions(**MACHINES[name].options, kernels=kernels).machine()


def served(
    model: tflm.Model,
    name: str,
    kernels: str,
    tree: Path,
    change: Callable[[dict[str, str]], None] = lambda files: None,
) -> Path:
    """Build TFLM's firmware of a model, whose files `change` may change; returns the program."""
    machine, kind = machine_of(name, kernels), MACHINES[name].kind
    if kind == "none":
        files = sources(Firmware(model, "net", machine, "a test"), serve=True)
        values = project_files(
            Firmware(model, "net", MachineOptions(target="cortex-m3", kernels=kernels).machine(), ""), "qemu"
        )
        files |= {"tflm.cmake": values["tflm.cmake"], "CMakeLists.txt": HOST_PROJECT}
    else:
        files = project_files(Firmware(model, "net", machine, "a test"), kind, serve=True)
    change(files)
    options = [f"-DSTM32_DIR={named('STM32') / 'cmsis_device_f4'}"] if kind == "stm32" else []
    return image_of(
        files, f"{name}-{kernels}", sources_of_models(tree), f"models-{machine.target.name}-{kernels}", options
    )


def served_as_c(model: tflm.Model, name: str, kernels: str, tree: Path) -> Path:
    """Build the firmware of a model as C, which may call CMSIS-NN; returns the program."""
    machine, kind = machine_of(name, "reference"), MACHINES[name].kind
    downloads = tree / DOWNLOADS
    if kind == "none":
        compiled = compiled_with(compile_options(None, None, None, None), model, compiled_name("net"))
        files = compiled_sources(Firmware(model, "net", machine, "a test"), compiled, serve=True)
        return image_of({**files, "CMakeLists.txt": HOST_PROJECT_OF_C}, f"{name}-c", tree, "none", [])
    called = (None, None) if kernels == "reference" else (kernels, machine.target)
    compiled = compiled_with(compile_options(None, None, *called), model, compiled_name("net"))
    files = compiled_project_files(Firmware(model, "net", machine, "a test"), kind, None, compiled, serve=True)
    options = [f"-DCMSIS_NN={downloads / 'cmsis_nn'}", *stm32_options(kind, downloads)]
    return image_of(files, f"{name}-{kernels}-c", tree, "none", options)


def stm32_options(kind: str, downloads: Path) -> list[str]:
    """Return the options with which a project for ST's parts finds their headers."""
    if kind != "stm32":
        return []
    return [f"-DSTM32_DIR={named('STM32') / 'cmsis_device_f4'}", f"-DCMSIS_DIR={downloads / 'cmsis'}"]


def image_of(files: Mapping[str, str], name: str, tree: Path, library: str, options: list[str]) -> Path:
    """The program of a project: built in a folder that those of other models share, or before, of the same files."""
    key = hashlib.sha256(repr((sorted(files.items()), str(tree), library, options)).encode()).hexdigest()
    folder, image = BUILT / "devices" / name, BUILT / "devices" / f"{key[:24]}.elf"
    if not image.exists():
        write_files(folder, {each: text for each, text in files.items() if not has_text(folder / each, text)})
        shutil.copy(built(folder, tree, library, *options), image)
    return image


def has_text(path: Path, text: str) -> bool:
    """Whether a file already has this text: unchanged files are not compiled again."""
    return path.exists() and path.read_text() == text


def sources_of_models(tree: Path) -> Path:
    """TFLM's sources without the kernels that no model uses, as links: they take most of the time."""
    folder, kernels = BUILT / "sources", Path("tensorflow/lite/micro/kernels")
    if not folder.exists():
        link(tree, folder, {kernels, kernels / "cmsis_nn", Path("signal/micro/kernels")})
    return folder


def link(tree: Path, folder: Path, chosen: set[Path], below: Path = Path()) -> None:
    """Link a tree; of the folders that are chosen, only the kernels that the models use."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in (tree / below).iterdir():
        place = below / path.name
        if any(place in (each, *each.parents) for each in chosen):
            link(tree, folder / path.name, chosen, place)
        elif below not in chosen or path.suffix != ".cc" or is_used(path):
            (folder / path.name).symlink_to(path)


USED = re.compile(
    r"^(ADD|CALL_ONCE|CONCATENATION|(DEPTHWISE_)?CONV_2D|DEQUANTIZE|FULLY_CONNECTED|(AVERAGE|MAX)_POOL_2D|LOGISTIC|QUANTIZE"
    r"|RELU|RESHAPE|SOFTMAX|SPLIT_V|STRIDED_SLICE|SVDF|(VAR|READ|ASSIGN)_\w+)$"
)
"""The operators of the models."""


def is_used(path: Path) -> bool:
    """Whether a source file of kernels has those of a model, or is shared by several."""
    operators = re.findall(r"^TFLM\w*Registration\b.* Register_(\w+)\(", path.read_text(), re.MULTILINE)
    return not operators or any(map(USED.match, operators))


class EmulatedWire(FileWire):
    """A wire to an emulator. Its clock is the emulator's processor time, which does not depend on other programs."""

    def __init__(self, path: Path, process: int):
        self._process = process
        other = socket.socket(socket.AF_UNIX)
        try:
            other.connect(str(path))
        except OSError as error:
            other.close()
            raise tflm.DeviceError(f"unix:{path}: {error}") from None
        super().__init__(f"unix:{path}", other.fileno(), other.fileno(), other)

    def now(self) -> float:
        """Seconds that the emulator has computed, and a few of those that passed."""
        times = Path(f"/proc/{self._process}/stat").read_text().rpartition(")")[2].split()
        return (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK") + time.monotonic() / 20


@contextmanager
def device_of(image: Path, name: str, model: tflm.Model) -> Iterator[tflm.device.Device]:
    """Run a firmware, with its serial port at a socket; on this machine, `tflm device` starts the program."""
    if name == "host":
        with tflm.device.connect(f"exec:{shlex.quote(str(image))}", model) as device:
            yield device
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "serial"
        serial = f"unix:{path},server=on,wait=on"
        options = ["-display", "none", "-monitor", "none", "-semihosting", "-serial", serial]
        with subprocess.Popen(["qemu-system-arm", "-M", name, *options, "-kernel", str(image)]) as process:
            try:
                while not is_listening(path) and process.poll() is None:
                    time.sleep(0.02)
                with Device(lambda: EmulatedWire(path, process.pid), model) as device:
                    yield device
            finally:
                process.kill()


def is_listening(path: Path) -> bool:
    """Whether a socket takes connections, which it does not yet when its file is made."""
    listening = " 00010000 "
    return any(
        listening in line and line.endswith(f" {path}") for line in Path("/proc/net/unix").read_text().splitlines()
    )


def ran(model: tflm.Model, image: Path, name: str, count: int = 3) -> DeviceRun:
    """Compare a firmware, and check that it reports the part and the kernels."""
    with device_of(image, name, model) as device:
        return run_device(device, random_steps(model, count, 0), MachineOptions(), silent)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kernels", ["reference", "cmsis-nn"])
@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("build", [served, served_as_c])
def test_served_firmware_is_equal(
    tree: Path,
    corpus: Path,
    build: Callable[..., Path],
    name: str,
    kernels: str,
    model: str,
) -> None:
    """Every operator, the state that lasts over invokes, and the arena."""
    if (build, name, kernels) == (served, "host", "cmsis-nn"):
        pytest.skip("TFLM has no CMSIS-NN for this machine")
    net = model_named(model, corpus)
    run = ran(net, build(net, name, kernels, tree), name)
    verdict = run.verdict
    assert verdict.status is Status.EQUAL or (verdict.status is Status.DOCUMENTED and kernels != "reference"), verdict
    assert verdict.invokes == 3
    if build is served:
        assert verdict.compared == len(net.subgraphs[0].operators)
        assert run.facts.arena_used_bytes == run.predicted_arena_bytes
    assert np.all(np.isfinite([each.microseconds for each in run.operators if each.microseconds is not None]))
