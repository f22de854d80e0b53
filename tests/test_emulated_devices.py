"""Firmware that serves, with TFLM and as C: on five emulated processors and on this machine, compared by `tflm device`.

`make devices TFLM_TREE=FOLDER STM32=FOLDER` names the sources; see `test_emulated_projects`.
"""

from __future__ import annotations

import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from test_cli import FLOAT_MODEL, INT8_MODEL
from test_device import model_with_state
from test_emulated_projects import built, named, tree

import tflm
from tflm.application.compile_options import compile_options
from tflm.application.device_run import DeviceRun, random_steps, run_device
from tflm.application.export import sources
from tflm.application.machine import Machine, MachineOptions
from tflm.application.progress import silent
from tflm.application.projects import project_files
from tflm.application.projects.compiled import compiled_name, compiled_project_files, compiled_sources
from tflm.atomic_write import write_files
from tflm.c.compile import compiled_with
from tflm.device.verdict import Status

__all__ = ["tree"]


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
    folder: Path,
    change: Callable[[Path], None] = lambda folder: None,
) -> Path:
    """Build TFLM's firmware of a model, whose files `change` may change; returns the program."""
    machine, kind = machine_of(name, kernels), MACHINES[name].kind
    if kind == "none":
        files = sources(model, "net", machine, "a test", serve=True)
        values = project_files(model, "net", MachineOptions(target="cortex-m3", kernels=kernels).machine(), "", "qemu")
        files |= {"tflm.cmake": values["tflm.cmake"], "CMakeLists.txt": HOST_PROJECT}
    else:
        files = project_files(model, "net", machine, "a test", kind, serve=True)
    write_files(folder, files)
    change(folder)
    options = [f"-DSTM32_DIR={named('STM32') / 'cmsis_device_f4'}"] if kind == "stm32" else []
    return built(folder, tree, f"{machine.target.name}-{kernels}", *options)


def served_as_c(model: tflm.Model, name: str, kernels: str, tree: Path, folder: Path) -> Path:
    """Build the firmware of a model as C, which may call CMSIS-NN; returns the program."""
    machine, kind = machine_of(name, "reference"), MACHINES[name].kind
    downloads = tree / "tensorflow/lite/micro/tools/make/downloads"
    if kind == "none":
        compiled = compiled_with(compile_options(None, None, None, None), model, compiled_name("net"))
        write_files(folder, compiled_sources(model, "net", machine, "a test", compiled, serve=True))
        options = ["-std=c99", "-D_POSIX_C_SOURCE=200809L", "-O2", "-Wall", "-Wextra", "-Werror"]
        subprocess.run(
            ["cc", *options, *map(str, folder.glob("*.c")), "-o", str(folder / "net"), "-lm"], check=True, timeout=300
        )
        return folder / "net"
    called = (None, None) if kernels == "reference" else (kernels, machine.target)
    compiled = compiled_with(compile_options(None, None, *called), model, compiled_name("net"))
    write_files(folder, compiled_project_files(model, "net", machine, "a test", kind, None, compiled, serve=True))
    return built(folder, tree, "none", f"-DCMSIS_NN={downloads / 'cmsis_nn'}", *stm32_options(kind, downloads))


def stm32_options(kind: str, downloads: Path) -> list[str]:
    """Where a project of ST's parts finds their headers."""
    if kind != "stm32":
        return []
    return [f"-DSTM32_DIR={named('STM32') / 'cmsis_device_f4'}", f"-DCMSIS_DIR={downloads / 'cmsis'}"]


@contextmanager
def port_of(image: Path, name: str) -> Iterator[str]:
    """Run a firmware, with its serial port at a socket; on this machine, `tflm device` starts the program."""
    if name == "host":
        yield f"exec:{shlex.quote(str(image))}"
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "serial"
        serial = f"unix:{path},server=on,wait=on"
        options = ["-display", "none", "-monitor", "none", "-semihosting", "-serial", serial]
        with subprocess.Popen(["qemu-system-arm", "-M", name, *options, "-kernel", str(image)]) as process:
            try:
                end = time.monotonic() + 20
                while not path.exists() and time.monotonic() < end and process.poll() is None:
                    time.sleep(0.02)
                yield f"unix:{path}"
            finally:
                process.kill()


def connected(port: str, model: tflm.Model, tries: int = 20) -> tflm.device.Device:
    """A device; an emulator on a busy machine takes longer to start than a board."""
    for left in reversed(range(tries)):
        try:
            return tflm.device.connect(port, model)
        except tflm.DeviceError:
            if not left:
                raise
    raise AssertionError


def ran(model: tflm.Model, image: Path, name: str, count: int = 3) -> DeviceRun:
    """Compare a firmware; what it says of itself names the part and the kernels."""
    with port_of(image, name) as port, connected(port, model) as device:
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
    tmp_path: Path,
) -> None:
    """Every operator, the state that lasts over invokes, and the arena."""
    net = model_named(model, corpus)
    run = ran(net, build(net, name, kernels, tree, tmp_path), name)
    verdict = run.verdict
    assert verdict.status is Status.EQUAL or (verdict.status is Status.DOCUMENTED and kernels != "reference"), verdict
    assert verdict.invokes == 3
    if build is served:
        assert verdict.compared == len(net.subgraphs[0].operators)
        assert run.facts.arena_used_bytes == run.predicted_arena_bytes
    assert np.all(np.isfinite([each.microseconds for each in run.operators if each.microseconds is not None]))
