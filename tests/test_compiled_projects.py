"""Projects that run a model as C: sources compile, build files are read, firmware runs under emulation."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from checked_program import needs_compiler
from example_models import INT8_MODEL
from test_cli import run
from test_export import STAND_INS
from test_fit import MODEL, board
from test_projects import CASES, TINY, machine, read_by_cmake

import tflm
from tflm.application.compiled_fit import compiled_fit
from tflm.application.export import Firmware
from tflm.application.machine import Machine
from tflm.application.projects import project_kinds
from tflm.application.projects.build import TAKEN_NAMES
from tflm.application.projects.compiled import compiled_name, compiled_project_files, compiled_sources
from tflm.atomic_write import write_files
from tflm.boards import Board, by_name
from tflm.libraries import library_for

STRICT = ("-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Wno-attributes")
LANGUAGES = {".c": ("cc", "-std=c99"), ".cpp": ("c++", "-std=c++17"), ".ino": ("c++", "-std=c++17")}

pytestmark = needs_compiler


def syntax_check(folder: Path) -> int:
    """Compile the main file and the model without writing objects, and return the number of files."""
    sources = [
        path for path in folder.rglob("*") if path.suffix in LANGUAGES and path.name not in ("startup.c", "board.c")
    ]
    for source in sources:
        compiler, language = LANGUAGES[source.suffix]
        kind = [f"-I{STAND_INS}", "-x", "c" if compiler == "cc" else "c++"]
        command = [compiler, language, *STRICT, *kind, str(source)]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert answer.returncode == 0, answer.stderr
    return len(sources)


def on_board(where: Board) -> Machine:
    return Machine(where.target, library_for(where.kernels, where.target), where)


@pytest.mark.parametrize("kind", CASES)
def test_sources_that_serve_compile(kind: str, tmp_path: Path) -> None:
    write_files(
        tmp_path, compiled_project_files(Firmware(TINY, "my model", machine(CASES[kind]), "a test"), kind, serve=True)
    )
    assert syntax_check(tmp_path) == 2


@pytest.mark.parametrize("serve", [True, False])
def test_a_program_that_serves_has_what_answers_requests(serve: bool, tmp_path: Path) -> None:
    answer = run("compile", INT8_MODEL, tmp_path, *["--serve"] * serve)
    assert answer.returncode == 0, answer.stderr
    main = (tmp_path / "main.c").read_text() if serve else ""
    assert ('#include "serve.h"' in main) is (tmp_path / "serve.h").exists() is serve


@pytest.mark.parametrize(("kind", "name"), [*CASES.items(), ("platformio", "esp32-cam")])
def test_projects_are_complete(kind: str, name: str, tmp_path: Path) -> None:
    files = compiled_project_files(Firmware(TINY, "my model", machine(name), "a test"), kind)
    write_files(tmp_path / "p", files)
    assert syntax_check(tmp_path / "p") == 2
    if kind == "platformio":
        uses_partitions = "\nboard_build.partitions = partitions.csv\n" in files["platformio.ini"]
        assert uses_partitions == ("partitions.csv" in files)
    assert not re.search(
        "tensorflow|tflite" if kind == "stm32" else "tensorflow|tflite|cmsis", "".join(files.values()), re.IGNORECASE
    )
    for path in files:
        if path.endswith("CMakeLists.txt"):
            answer = read_by_cmake(
                tmp_path / "p",
                tmp_path / "stubs",
                path,
                f"-DSTM32_DIR={tmp_path}",
                f"-DCMSIS_DIR={tmp_path}",
                "-DCMAKE_OBJCOPY=objcopy",
            )
            assert answer.stderr == ""


def test_every_kind_is_tried() -> None:
    assert {*CASES} == {*project_kinds()}


@pytest.mark.parametrize("stem", ["main", "string", "StdIO"])
def test_no_file_has_the_name_of_another(stem: str, tmp_path: Path) -> None:
    assert compiled_name(stem) not in TAKEN_NAMES
    write_files(tmp_path, compiled_sources(Firmware(TINY, stem, machine("pico"), "a test")))
    assert syntax_check(tmp_path) == 2


def test_firmware_gives_the_answers_of_the_interpreter(tmp_path: Path) -> None:
    if None in [shutil.which(tool) for tool in ("cmake", "arm-none-eabi-gcc", "qemu-system-arm")]:
        pytest.skip("needs cmake, arm-none-eabi-gcc and qemu-system-arm")
    answer = run("export", INT8_MODEL, tmp_path / "p", "--board", "nrf52dk", "--compiled", "--project", "qemu")
    assert answer.returncode == 0, answer.stderr
    assert "fits nrf52dk as C without an interpreter" in answer.stderr
    for command in (["cmake", "-B", "build"], ["cmake", "--build", "build"]):
        subprocess.run(command, cwd=tmp_path / "p", check=True, capture_output=True, timeout=120)
    (image,) = (tmp_path / "p" / "build").glob("*.elf")
    emulate = ["qemu-system-arm", "-M", "mps2-an386", "-nographic", "-semihosting", "-kernel", str(image)]
    ended = subprocess.run(emulate, capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL)
    interpreter = tflm.MicroInterpreter(TINY, tflm.AllOpsResolver(), bytearray(4096))
    interpreter.allocate_tensors()
    interpreter.input(0).data[...] = 0
    interpreter.invoke()
    (value,) = interpreter.output(0).data.reshape(-1).tolist()
    real = float(interpreter.output(0).dequantized().item())
    printed = re.fullmatch(r"output 0\[0\]: (-?\d+) stands for (-?\d+\.\d+)\n", ended.stdout + ended.stderr)
    assert printed is not None
    assert (int(printed[1]), float(printed[2])) == (value, pytest.approx(real, abs=1e-6))


def test_ram_in_a_memory_of_its_own_has_a_section(tmp_path: Path) -> None:
    ram = tflm.compile_model(MODEL).ram_bytes
    where = board(("DTCM", ram), ("SRAM", 64 << 10))
    found = compiled_fit(MODEL, where, name="m", reserve=1 << 10)
    files = compiled_project_files(Firmware(MODEL, "m", on_board(where), "a test"), "qemu", found)
    assert '#define M_RAM_MEMORY __attribute__((section(".dtcm")))' in files["main.c"]
    assert "} ram M_RAM_MEMORY;" in files["main.c"]
    assert re.search(r"\.dtcm \(NOLOAD\) : \{ \*\(\.dtcm\*\) \} > DTCM", files["memory.ld"])
    write_files(tmp_path, files)
    assert syntax_check(tmp_path) == 2


def test_a_board_holds_ram_stack_and_reserve() -> None:
    compiled = tflm.compile_model(TINY)
    assert compiled.stack_bytes is not None
    needed = compiled.ram_bytes + compiled.stack_bytes + 100
    for room in (needed - 1, needed):
        found = compiled_fit(TINY, board(("RAM", room)), reserve=100)
        assert found.fits == (room == needed)
        assert found.missing_bytes == needed - room
    small = replace(by_name("nrf52dk"), flash_bytes=compiled.constant_bytes)
    assert not compiled_fit(TINY, small).fits_flash


def test_fit_offers_c_where_the_interpreter_does_not_fit(tmp_path: Path) -> None:
    room = tflm.compile_model(MODEL).ram_bytes + (4 << 10)
    found = tflm.fit(MODEL, board=board(("RAM", room)), kernels="reference", reserve=0)
    assert not found.fits
    assert found.compiled is not None
    assert found.compiled.fits
    found.write(tmp_path, "net")
    assert "as C without an interpreter" in (tmp_path / "report.md").read_text()
    assert syntax_check(tmp_path / "firmware") == 2
    assert tflm.fit(MODEL, board="nrf52dk").compiled is None


def test_fit_prints_what_c_takes(tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(MODEL.data)
    answer = run("fit", path, "--target", "cortex-m4", "--ram", "4K", "--reserve", "0", "--json")
    assert answer.returncode == 1
    assert f"tflm compile {path} firmware/" in answer.stderr
    compiled = json.loads(answer.stdout)["compiled"]
    assert compiled["ram_bytes"] == tflm.compile_model(MODEL).ram_bytes
    assert compiled["fits"] == (compiled["memory"] is not None)


@pytest.mark.parametrize("option", [("--typed",), ("--dump",)])
def test_options_of_tflm_are_refused(tmp_path: Path, option: tuple[str, ...]) -> None:
    answer = run("export", INT8_MODEL, tmp_path / "out", "--board", "nrf52dk", "--compiled", *option)
    assert answer.returncode == 2
    assert f"leave out {option[0]}" in answer.stderr
    assert not (tmp_path / "out").exists()


def exported(folder: Path, *options: str) -> dict[str, str]:
    """The files that `tflm export --compiled` writes for a model, by path."""
    (folder / "net.tflite").write_bytes(MODEL.data)
    answer = run("export", folder / "net.tflite", folder / "p", "--compiled", *options)
    assert answer.returncode == 0, answer.stderr
    return {str(path.relative_to(folder / "p")): path.read_text() for path in (folder / "p").rglob("*.*")}


def test_ram_of_a_project_is_limited(tmp_path: Path) -> None:
    ram = tflm.compile_model(MODEL).ram_bytes
    files = exported(tmp_path, "--target", "cortex-m4", "--ram", str(4 * ram))
    assert files["net.h"] == tflm.compile_model(MODEL, "net", ram=4 * ram).files["net.h"]
    answer = run(
        "export", tmp_path / "net.tflite", tmp_path / "q", "--compiled", "--target", "cortex-m4", "--ram", "16"
    )
    assert answer.returncode == 1
    assert "the smallest plan" in answer.stderr
    assert not (tmp_path / "q").exists()


@pytest.mark.parametrize("kind", ["qemu", pytest.param("none", marks=pytest.mark.long)])
def test_blocks_of_ram_are_in_the_memories_that_are_named(tmp_path: Path, kind: str) -> None:
    files = exported(tmp_path, "--board", "nucleo-h743zi", "--project", kind, "--memories", "DTCM:256,AXI SRAM:64K")
    assert "static void *const ram[] = {ram_0.bytes, ram_1.bytes};" in files["main.c"]
    assert "net_invoke(ram)" in files["main.c"]
    assert syntax_check(tmp_path / "p") == 2


def test_projects_build_the_library_that_a_model_calls(tmp_path: Path) -> None:
    files = exported(tmp_path, "--target", "cortex-m55", "--project", "qemu", "--kernels", "cmsis-nn")
    assert "arm_nnfunctions.h" in files["net.c"]
    assert "target_sources(net PRIVATE ${CMSIS_NN_SOURCES})" in files["CMakeLists.txt"]
    assert "-DCMSIS_NN=FOLDER" in files["README.md"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--board", "nrf52dk", "--kernels", "reference"), "use generated or cmsis-nn"),
        (("--board", "esp32-cam", "--kernels", "cmsis-nn"), "not for target"),
        (("--board", "nrf52dk", "--memories", "DTCM:1K"), "nrf52dk has no memory 'DTCM'"),
        (("--board", "nrf52dk", "--memories", "RAM:1K", "--ram", "1K"), "use either --ram, for one memory"),
    ],
)
def test_options_that_cannot_be_met_are_refused(tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    answer = run("export", INT8_MODEL, tmp_path / "out", "--compiled", *options)
    assert answer.returncode == 2
    assert message in answer.stderr
    assert not (tmp_path / "out").exists()


def test_memory_options_are_for_compiled_models(tmp_path: Path) -> None:
    answer = run("export", INT8_MODEL, tmp_path / "out", "--target", "cortex-m4", "--ram", "1K")
    assert answer.returncode == 2
    assert "--ram is for --compiled" in answer.stderr
