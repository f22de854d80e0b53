"""Projects that `tflm export` and `tflm fit` write: sources compile, build files are read, start-up code runs."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from example_models import FLOAT_MODEL, INT8_MODEL
from image_graphs import shrinking_network
from recorded_reports import figures_of_text, require_recorded
from test_cli import refusal, run
from test_export import STAND_INS, STRICT, compiler  # noqa: F401  # a fixture
from test_fit import ARENA, M4, MODEL, board

import tflm
from tflm.application.errors import RequestError
from tflm.application.export import Firmware
from tflm.application.machine import Machine, MachineOptions, libraries_for
from tflm.application.projects import (
    machine_of_project,
    origin_of_project,
    project_files,
    project_kinds,
    usual_kind,
)
from tflm.application.projects.bare import stm32_parts
from tflm.application.projects.compiled import compiled_project_files
from tflm.application.projects.parts import PINNED, PROCESSORS, board_ids
from tflm.atomic_write import write_files
from tflm.boards import Board, boards, by_name, chips
from tflm.boards.sdks import sdks_for
from tflm.firmware.board_fit import board_fit, fits_of
from tflm.libraries import library_for
from tflm.release import TFLM_COMMIT
from tflm.releases import TODAY
from tflm.schema import BuiltinOperator, TensorType, quantized

TINY, FLOATS = map(tflm.Model.from_file, (INT8_MODEL, FLOAT_MODEL))

CASES = {
    "esp-idf": "esp32-s3-eye",
    "arduino": "nano33ble",
    "zephyr": "nrf52840dk",
    "platformio": "nucleo-f746zg",
    "qemu": "nrf52dk",
    "pico": "pico",
    "stm32": "nucleo-f401re",
}
"""A board for each kind."""

PLATFORMIO = {"esp32-cam": "espidf", "nano33ble": "arduino", "nrf52dk": "arduino"}
"""Frameworks of PlatformIO."""

CMAKE_STUBS = """
set(ENV{IDF_PATH} ${STUBS})
set(ENV{ZEPHYR_BASE} ${STUBS})
set(ENV{PICO_SDK_PATH} ${STUBS})
set(CMAKE_CURRENT_LIST_DIR ${DIR})
function(need)
  foreach(file IN LISTS ARGN)
    if(NOT EXISTS ${DIR}/${file})
      message(FATAL_ERROR "lacks ${file}")
    endif()
  endforeach()
endfunction()
function(add_executable name)
  need(${ARGN})
endfunction()
function(add_library name)
  file(WRITE ${STUBS}/library "${ARGN}")
endfunction()
function(target_sources target visibility)
  need(${ARGN})
endfunction()
function(idf_component_register)
  cmake_parse_arguments(GIVEN "" "" "SRCS;INCLUDE_DIRS" ${ARGN})
  need(${GIVEN_SRCS})
endfunction()
function(get_target_property variable target property)
  set(${variable} "/c/kernels/esp_nn/add.cc;/c/kernels/sub.cc" PARENT_SCOPE)
endfunction()
function(idf_component_get_property variable component property)
  set(${variable} /c PARENT_SCOPE)
endfunction()
function(set_target_properties target)
  file(APPEND ${STUBS}/properties "${ARGN}")
endfunction()
foreach(command project find_package pico_enable_stdio_uart set_source_files_properties add_custom_command
    add_subdirectory pico_sdk_init pico_enable_stdio_usb pico_add_extra_outputs
    target_link_libraries target_link_options target_compile_options target_compile_definitions
    target_include_directories)
  cmake_language(EVAL CODE "function(${command})\\nendfunction()")
endforeach()
include(${FILE})
"""
"""A script that reads a CMakeLists.txt, with the commands that only a build has."""

TFLM_FILES = (
    "tensorflow/lite/micro/micro_interpreter.h",
    "tensorflow/lite/micro/micro_interpreter.cc",
    "tensorflow/lite/micro/micro_interpreter_test.cc",
    "tensorflow/lite/micro/debug_log.cc",
    "tensorflow/lite/micro/cortex_m_generic/debug_log.cc",
    "tensorflow/lite/micro/kernels/conv.cc",
    "tensorflow/lite/micro/kernels/cmsis_nn/conv.cc",
    "tensorflow/lite/micro/kernels/cast.cc",
    "tensorflow/lite/micro/tools/make/downloads/flatbuffers/include/f.h",
    "tensorflow/lite/micro/tools/make/downloads/cmsis_nn/Source/Conv/convolve.c",
    "tensorflow/lite/micro/tools/make/downloads/cmsis_nn/Source/Conv/convolve_f32.c",
)


def machine(name: str, kernels: str | None = None, release: str | None = None) -> Machine:
    return MachineOptions(board=name, kernels=kernels, release=release).machine()


def written(folder: Path, kind: str, on: Machine, model: tflm.Model = TINY) -> dict[str, str]:
    files = project_files(Firmware(model, "my model", on, "a test"), kind)
    write_files(folder, files)
    return files


def syntax_check(compiler: str, folder: Path, *options: str) -> int:  # noqa: F811
    """Compile every C++ source without writing objects, and return their number."""
    sources = [path for path in sorted(folder.rglob("*")) if path.suffix in (".cc", ".cpp", ".ino")]
    for source in sources:
        command = [
            compiler,
            *STRICT,
            *options,
            "-Wno-attributes",
            f"-I{STAND_INS}",
            f"-I{source.parent}",
            "-x",
            "c++",
            str(source),
        ]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert answer.returncode == 0, answer.stderr
    return len(sources)


def read_by_cmake(folder: Path, stubs: Path, file: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Let CMake read a file of a project, in a script."""
    cmake = shutil.which("cmake")
    if cmake is None:
        pytest.skip("no cmake in $PATH")
    for stub in ("tools/cmake/project.cmake", "external/pico_sdk_import.cmake"):
        (stubs / stub).parent.mkdir(parents=True, exist_ok=True)
        (stubs / stub).write_text("")
    (stubs / "script.cmake").write_text(CMAKE_STUBS)
    path = folder / file
    defined = [f"-DFILE={path}", f"-DDIR={path.parent}", f"-DSTUBS={stubs}", *options]
    command = [cmake, "--warn-uninitialized", *defined, "-P", str(stubs / "script.cmake")]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=path.parent)


def test_downloads_are_configured_without_a_warning(tmp_path: Path) -> None:
    """Empty folders replace the downloads; pins are as in TFLM's makefiles."""
    cmake = shutil.which("cmake")
    if cmake is None:
        pytest.skip("no cmake in $PATH")
    written(tmp_path, "stm32", machine("nucleo-f401re"))
    names = ("tflm", "gemmlowp", "ruy", "flatbuffers", "kissfft", "cmsis", "cmsis_nn", "cmsis_device")
    for name in names:
        (tmp_path / "downloaded" / name).mkdir(parents=True)
    make = tmp_path / "downloaded/tflm/tensorflow/lite/micro/tools/make"
    (make / "ext_libs").mkdir(parents=True)
    pins = "".join(f'{name.upper()}_URL := "https://example.org/{name}.zip"\n' for name in names)
    for file in ("third_party_downloads.inc", "ext_libs/cmsis_download.sh", "ext_libs/cmsis_nn_download.sh"):
        (make / file).write_text(pins)
    for source in ("gcc/startup_stm32f401xe.s", "system_stm32f4xx.c"):
        path = tmp_path / "downloaded/cmsis_device/Source/Templates" / source
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    head = "cmake_minimum_required(VERSION 3.18)\nproject(p LANGUAGES NONE)\n"
    script = f"{head}include(../tflm.cmake)\ninclude(../stm32.cmake)\n"
    (tmp_path / "project").mkdir()
    (tmp_path / "project/CMakeLists.txt").write_text(script)
    folders = [f"-DFETCHCONTENT_SOURCE_DIR_{name.upper()}={tmp_path}/downloaded/{name}" for name in names]
    command = [cmake, "-S", "project", "-B", "build", f"-DTFLM_LIBRARY={tmp_path}/library.a", *folders]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("kind", CASES)
def test_sources_compile(compiler: str, kind: str, tmp_path: Path) -> None:  # noqa: F811
    written(tmp_path, kind, machine(CASES[kind]))
    assert syntax_check(compiler, tmp_path) == 2


WIRES = [
    *((kind, "MOVED=0") for kind in CASES),
    *(("qemu", f"MOVED={moved}") for moved in (1, 2)),
    ("esp-idf", "CONFIG_ESP_CONSOLE_USB_SERIAL_JTAG"),
    ("stm32", "USART_SR_TXE"),
    ("zephyr", "CONFIG_THREAD_STACK_INFO"),
    ("zephyr", "CONFIG_THREAD_STACK_INFO -DCONFIG_INIT_STACKS"),
]
"""Kinds of projects, with macros that choose their wire, and where TFLM's names are."""


@pytest.mark.parametrize(("kind", "macros"), WIRES)
def test_sources_that_serve_compile(compiler: str, kind: str, macros: str, tmp_path: Path) -> None:  # noqa: F811
    files = project_files(Firmware(TINY, "my model", machine(CASES[kind]), "a test"), kind, serve=True)
    write_files(tmp_path, files)
    assert syntax_check(compiler, tmp_path, *f"-D{macros}".split()) == 2


@pytest.mark.parametrize(
    "name", ["nucleo-h743zi", "stm32h747i-disco", "nucleo-f446re", "nucleo-f746zg", "nucleo-l4r5zi"]
)
def test_projects_of_a_series_with_two_cores_name_one(name: str, tmp_path: Path) -> None:
    texts = "".join(written(tmp_path, "stm32", machine(name)).values())
    assert ("CORE_CM7" in texts) is ("-h7" in name or "stm32h7" in name)


@pytest.mark.parametrize("name", PLATFORMIO)
def test_platformio_has_the_framework_of_the_board(compiler: str, name: str, tmp_path: Path) -> None:  # noqa: F811
    files = written(tmp_path, "platformio", machine(name))
    assert syntax_check(compiler, tmp_path) == 2
    settings = configparser.ConfigParser()
    settings.read_string(files["platformio.ini"])
    (environment,) = settings.sections()
    assert settings[environment]["framework"] == PLATFORMIO[name]
    assert environment == f"env:{board_ids()[name].platformio}"
    needs_component = PLATFORMIO[name] == "espidf"
    assert ("src/idf_component.yml" in files) is needs_component
    assert ("lib/tflm/library.json" in files) is (name == "nrf52dk")
    assert ("lib_deps" in settings[environment]) is (name == "nano33ble")


@pytest.mark.parametrize("make", [project_files, compiled_project_files])
@pytest.mark.parametrize("kind", ["platformio", "esp-idf"])
@pytest.mark.parametrize("flash", [None, 4 << 20])
def test_flash_of_a_known_size_has_a_table_of_partitions(make: Any, kind: str, flash: int | None) -> None:
    on = machine("esp32-cam")
    assert on.board is not None
    files = make(Firmware(TINY, "net", on._replace(board=replace(on.board, flash_bytes=flash)), "a test"), kind)
    assert ("partitions.csv" in files) is (flash is not None)
    names = [line for text in files.values() for line in text.splitlines() if '="partitions.csv"' in line]
    lines = [line for line in files.get("platformio.ini", "").splitlines() if "partitions.csv" in line]
    assert (len(names), len(lines)) == ((1, int(kind == "platformio")) if flash else (0, 0))


@pytest.mark.parametrize("kernels", ["reference", "cmsis-nn", "cmsis-nn:size"])
def test_platformio_builds_tflm_with_the_kernels_of_the_firmware(kernels: str, tmp_path: Path) -> None:
    texts = "\n".join(written(tmp_path, "platformio", machine("nrf52dk", kernels)).values())
    is_optimized = kernels != "reference"
    assert ("OPTIMIZED_KERNEL_DIR=cmsis_nn" in texts) is ("-DCMSIS_NN" in texts) is is_optimized
    assert ("-DKERNELS_OPTIMIZED_FOR_SIZE" in texts) is (kernels == "cmsis-nn:size")
    assert "TARGET_ARCH=cortex-m4" in texts


@pytest.mark.parametrize("kind", CASES)
def test_build_files_are_read_without_errors(kind: str, tmp_path: Path) -> None:
    files = written(tmp_path / "p", kind, machine(CASES[kind]))
    for name, text in files.items():
        if name.endswith(".yml"):
            versions = yaml.safe_load(text)["dependencies"].values()
            assert all(re.fullmatch(r"==\d+\.\d+\.\d+(~\d+)?", version) for version in versions)
        elif name.endswith(".json"):
            assert json.loads(text)["name"] == "tflm"
        elif name.endswith((".conf", "sdkconfig.defaults")):
            lines = [line for line in text.splitlines() if not line.startswith("#")]
            assert all(re.fullmatch(r'CONFIG_[A-Z0-9_]+=(y|[0-9]+|".+")', line) for line in lines), text
        elif name.endswith("CMakeLists.txt"):
            tree = tmp_path / "tflm"
            for file in TFLM_FILES:
                (tree / file).parent.mkdir(parents=True, exist_ok=True)
                (tree / file).write_text("")
            folders = f"-DTFLM_DIR={tree}", f"-DSTM32_DIR={tmp_path}", "-DCMAKE_OBJCOPY=objcopy"
            answer = read_by_cmake(tmp_path / "p", tmp_path / "stubs", name, *folders)
            assert (answer.returncode, answer.stderr) == (0, "")


def test_the_library_has_kernels_of_cmsis_nn_in_place_of_tflms(tmp_path: Path) -> None:
    tree = tmp_path / "tflm"
    for file in TFLM_FILES:
        (tree / file).parent.mkdir(parents=True, exist_ok=True)
        (tree / file).write_text("")
    compiled = {}
    for kernels in ("cmsis-nn", "cmsis-nn:size", "reference"):
        folder = tmp_path / kernels
        files = written(folder, "qemu", machine("nrf52dk", kernels))
        answer = read_by_cmake(folder, tmp_path / "stubs", "CMakeLists.txt", f"-DTFLM_DIR={tree}")
        assert answer.returncode == 0, answer.stderr
        listed = (tmp_path / "stubs" / "library").read_text().split(";")
        compiled[kernels] = {Path(path).relative_to(tree).as_posix() for path in listed[1:]}
        assert ("KERNELS_OPTIMIZED_FOR_SIZE" in files["tflm.cmake"]) is (kernels == "cmsis-nn:size")
    excluded = {TFLM_FILES[0], TFLM_FILES[2], TFLM_FILES[3], TFLM_FILES[8], TFLM_FILES[10]}
    assert compiled["cmsis-nn"] == {*TFLM_FILES} - excluded - {TFLM_FILES[5]}
    assert compiled["cmsis-nn:size"] == compiled["cmsis-nn"]
    assert compiled["reference"] == {*TFLM_FILES} - excluded - {TFLM_FILES[6], TFLM_FILES[9]}


@pytest.mark.parametrize(("board", "has_helium"), [("corstone-300", True), ("nrf52dk", False), ("pico", False)])
def test_conditional_conversions_are_avoided_with_helium(board: str, has_helium: bool, tmp_path: Path) -> None:
    """GCC 12's assembler rejects them; other parts have the code whose size was measured."""
    files = written(tmp_path / "p", "qemu", machine(board))
    condition = re.search(r"if\((TRUE|FALSE)\)  # GCC 12 .*\n.*resize_nearest_neighbor", files["tflm.cmake"])
    assert condition is not None
    assert condition[1] == str(has_helium).upper()


def test_a_missing_tflm_is_told(tmp_path: Path) -> None:
    written(tmp_path / "p", "qemu", machine("nrf52dk"))
    answer = read_by_cmake(tmp_path / "p", tmp_path / "stubs", "CMakeLists.txt", f"-DTFLM_DIR={tmp_path}")
    assert answer.returncode == 1
    assert "lacks TFLM's sources" in answer.stderr


def test_esp_idf_builds_reference_kernels_in_place_of_esp_nns(tmp_path: Path) -> None:
    written(tmp_path / "p", "esp-idf", machine("esp32-s3-eye", "reference"))
    answer = read_by_cmake(tmp_path / "p", tmp_path / "stubs", "CMakeLists.txt")
    assert answer.returncode == 0, answer.stderr
    sources = (tmp_path / "stubs" / "properties").read_text()
    assert "esp_nn" not in sources
    assert "/c/kernels/sub.cc" in sources
    assert "/c/tensorflow/lite/micro/kernels/conv.cc" in sources


def test_versions_are_pinned_where_they_are_named() -> None:
    on = machine("esp32-s3-eye", "esp-nn@1.1.2", "esp-tflite-micro 1.3.3.1")
    manifest = project_files(Firmware(TINY, "m", on, ""), "esp-idf")["main/idf_component.yml"]
    assert yaml.safe_load(manifest)["dependencies"] == {
        "espressif/esp-tflite-micro": "==1.3.3~1",
        "espressif/esp-nn": "==1.1.2",
    }


def test_what_is_pinned_is_all_that_boards_have() -> None:
    platforms = {ids.platform for ids in board_ids().values()}
    cores = {ids.fqbn.rpartition(":")[0] for ids in board_ids().values()}
    assert set(PINNED) == (platforms | cores) - {""}


@pytest.mark.parametrize("name", sorted({ids.platform or ids.fqbn: name for name, ids in board_ids().items()}.values()))
def test_platforms_and_cores_are_pinned(name: str) -> None:
    """One board of each; projects with TFLM and with the model as C."""
    ids, wanted = board_ids()[name], re.compile(r"^(?:platform =|arduino-cli core install) (.*)$", re.MULTILINE)
    for kind in [*["platformio"] * bool(ids.platformio), *["arduino"] * bool(ids.fqbn)]:
        on = machine(name, "arduino" if kind == "arduino" else None)
        for files in (project_files, compiled_project_files):
            (pin,) = wanted.findall("\n".join(files(Firmware(TINY, "m", on, ""), kind).values()))
            assert re.fullmatch(r"[\w:-]+@\d+\.\d+\.\d+(-[\w.]+)?", pin)


@pytest.mark.parametrize("name", [*boards(), *chips()])
def test_every_board_has_a_project(name: str) -> None:
    on = machine(name)
    kind = usual_kind(on)
    if on.target.family not in ("cortex-m", "espressif"):
        assert kind is None
        return
    assert kind is not None
    files = project_files(Firmware(TINY, "m", on, "a test"), kind)
    assert "README.md" in files
    chip, ids = boards()[name].chip if name in boards() else name, board_ids().get(name)
    usual = {"arduino": "arduino", "espressif": "esp-idf"}
    others = "pico" if chip in ("RP2040", "RP2350") else "stm32" if chip in stm32_parts() else "qemu"
    if on.board is not None and on.board.sdk == "zephyr":
        others = "zephyr"
    elif others == "qemu" and ids is not None and ids.platformio:
        others = "platformio"
    assert kind == usual.get("arduino" if on.kernels.name == "arduino" else on.target.family, others)


@pytest.mark.parametrize("name", board_ids())
def test_identifiers_of_boards_are_names_of_boards(name: str) -> None:
    """Two boards that a build system does not tell apart have the same chip."""
    ids = board_ids()[name]
    for identifier in filter(None, (ids.platformio, ids.zephyr, ids.fqbn)):
        assert by_name(identifier).chip == boards()[name].chip
    assert bool(ids.platform) is bool(ids.platformio)


# --- Memory -----------------------------------------------------------------------------------------------------


def fitted(where: Board) -> tuple[Machine, dict[str, str]]:
    on = Machine(where.target, library_for(where.kernels, where.target), where)
    return on, project_files(Firmware(MODEL, "m", on, "a test"), "qemu", found=board_fit(MODEL, where))


def test_an_arena_beside_all_else_needs_no_section() -> None:
    _, files = fitted(M4)
    assert f"kMArenaSize = {ARENA};" in files["arena_size.h"]
    assert "section" not in files["arena_size.h"]


def test_an_arena_in_a_memory_of_its_own_has_a_section(compiler: str, tmp_path: Path) -> None:  # noqa: F811
    _, files = fitted(board(("DTCM", ARENA), ("SRAM", 64 << 10)))
    assert '#define M_ARENA_MEMORY __attribute__((section(".dtcm")))' in files["arena_size.h"]
    assert "alignas(16) M_ARENA_MEMORY uint8_t tensor_arena[kMArenaSize];" in files["main.cc"]
    assert re.search(r"\.dtcm \(NOLOAD\) : \{ \*\(\.dtcm\*\) \} > DTCM", files["memory.ld"])
    assert f"DTCM (rwx) : ORIGIN = 0x20000000, LENGTH = {ARENA}" in files["memory.ld"]
    write_files(tmp_path, files)
    assert syntax_check(compiler, tmp_path) == 2


def test_head_and_tail_in_two_memories_are_two_arenas(compiler: str, tmp_path: Path) -> None:  # noqa: F811
    separate = board_fit(MODEL, board(("A", 1 << 20), ("B", 1 << 20))).separate
    assert separate is not None
    where = board(("DTCM", separate.head_arena_bytes), ("SRAM", separate.tail_arena_bytes + 4_000))
    _, files = fitted(where)
    assert f"kMHeadArenaSize = {separate.head_arena_bytes};" in files["arena_size.h"]
    assert f"kMTailArenaSize = {separate.tail_arena_bytes};" in files["arena_size.h"]
    created = re.search(r"MicroAllocator::Create\((.*?)\);", files["main.cc"])
    assert created is not None
    assert created[1] == "tail_arena, kMTailArenaSize, head_arena, kMHeadArenaSize"  # the persistent one first
    assert re.search(
        r"its [a-z ]*head of [0-9,]+ B.* in DTCM, its [a-z ]*tail of [0-9,]+ B.* in SRAM", files["README.md"]
    )
    write_files(tmp_path, files)
    assert syntax_check(compiler, tmp_path) == 2


@pytest.mark.parametrize(
    ("board", "memories", "kind", "section"),
    [
        ("esp32-s3-eye", "SRAM:20K,PSRAM", "esp-idf", "EXT_RAM_BSS_ATTR"),
        ("esp-eye", "DRAM:20K,PSRAM", "platformio", "EXT_RAM_BSS_ATTR"),
        ("nucleo-h743zi", "DTCM:20K,AXI SRAM", "stm32", '__attribute__((section(".axi_sram")))'),
        ("nucleo-h743zi", "DTCM:20K,AXI SRAM", "platformio", '__attribute__((section(".axi_sram")))'),
        ("mimxrt1060-evk", "DTCM:20K,SDRAM", "zephyr", "__dtcm_bss_section"),
        ("mimxrt1060-evk", "DTCM:20K,OCRAM", "zephyr", "Z_GENERIC_SECTION(OCRAM)"),
        ("mimxrt1060-evk", "DTCM:20K,OCRAM", "qemu", '__attribute__((section(".ocram")))'),
    ],
)
def test_buffers_in_several_memories_have_a_section_in_each(
    compiler: str,  # noqa: F811
    board: str,
    memories: str,
    kind: str,
    section: str,
    tmp_path: Path,
) -> None:
    path = tmp_path / "image.tflite"
    path.write_bytes(shrinking_network(96).data)
    folder = tmp_path / "project"
    answer = run("export", path, folder, "--board", board, "--memories", memories, "--project", kind)
    assert answer.returncode == 0, answer.stderr
    (arena_size,) = folder.rglob("arena_size.h")
    assert section in arena_size.read_text()
    in_psram = "CONFIG_SPIRAM_ALLOW_BSS_SEG_EXTERNAL_MEMORY=y"
    assert any(in_psram in path.read_text() for path in folder.rglob("sdkconfig*")) is (section == "EXT_RAM_BSS_ATTR")
    (main,) = [file for file in folder.rglob("*") if file.stem == "main" and file.is_file()]
    created = re.search(r"ImageMemoryPlan memory_plan\((.*?)\);\n.*Create\((.*?)\);", main.read_text())
    assert created is not None
    assert created[1].split(", ")[0] == created[2].split(", ")[0] == "tensor_arena"
    assert created[2].endswith("&memory_plan")
    assert syntax_check(compiler, folder) == 2


def test_a_plan_in_one_of_several_memories_needs_no_array_in_the_others(compiler: str, tmp_path: Path) -> None:  # noqa: F811
    run("export", INT8_MODEL, tmp_path, "--board", "esp32-s3-eye", "--memories", "SRAM,PSRAM")
    assert "memory_plan(tensor_arena, nullptr);" in (tmp_path / "main" / "main.cc").read_text()
    assert syntax_check(compiler, tmp_path) == 2


def on_esp(arena: int) -> dict[str, str]:
    """Return the files of an ESP-IDF project for a model whose arena has at least this many bytes."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, arena // 2), TensorType.INT8, quantized(0.1))
    y = main.tensor("y", (1, arena // 2), TensorType.INT8, quantized(0.1))
    main.operator(BuiltinOperator.RELU, [x], [y])
    main.output(y)
    return project_files(Firmware(tflm.Model(builder.build()), "m", machine("esp32-s3-eye"), "a test"), "esp-idf")


def test_an_arena_in_psram_has_the_attribute_of_esp_idf(compiler: str, tmp_path: Path) -> None:  # noqa: F811
    files = on_esp(1 << 20)
    write_files(tmp_path, files)
    assert "#define M_ARENA_MEMORY EXT_RAM_BSS_ATTR" in files["main/arena_size.h"]
    assert "CONFIG_SPIRAM_ALLOW_BSS_SEG_EXTERNAL_MEMORY=y" in files["sdkconfig.defaults"]
    assert syntax_check(compiler, tmp_path) == 2


def test_partitions_of_an_esp32_end_where_its_flash_ends() -> None:
    """They follow each other, after the boot loader and the table itself."""
    files = on_esp(1000)
    rows = [line.split(", ") for line in files["partitions.csv"].splitlines()[1:]]
    places = [(int(offset, 16), int(size, 16)) for *_, offset, size in rows]
    ends = [offset + size for offset, size in places]
    assert [offset for offset, _ in places] == [0x9000, *ends[:-1]]
    assert ends[-1] == machine("esp32-s3-eye").board.flash_bytes


def test_an_arena_too_large_for_an_array_is_on_the_heap(compiler: str, tmp_path: Path) -> None:  # noqa: F811
    files = on_esp(290_000)
    write_files(tmp_path, files)
    assert "heap_caps_aligned_alloc(16, kMArenaSize, MALLOC_CAP_INTERNAL | MALLOC_CAP_8BIT)" in files["main/main.cc"]
    assert "uint8_t* tensor_arena = nullptr;" in files["main/main.cc"]
    assert "on the heap" in files["README.md"]
    assert syntax_check(compiler, tmp_path) == 2


@pytest.mark.parametrize("arena", [1_000, 290_000, 1 << 20], ids=["array", "heap", "PSRAM"])
def test_the_readme_of_a_project_names_what_places_its_arena(arena: int) -> None:
    files = on_esp(arena)
    macros = re.findall(r"#define (\w+_MEMORY)", files["main/arena_size.h"])
    assert re.findall(r"`(\w+_MEMORY)`", files["README.md"]) == macros
    assert ("## Where the arena is" in files["README.md"]) == bool(macros) == (arena == 1 << 20)
    assert ("## The heap" in files["README.md"]) == ("heap_caps" in files["main/main.cc"]) == (arena == 290_000)


# --- Start-up code, under emulation -------------------------------------------------------------------------------

FIRMWARE = """
#include <stdint.h>
void Print(const char* text);
static int initialized = 7;
static int zeroed[5];
__attribute__((section(".dtcm"))) uint8_t placed[64];
static float factor = 0.5f;
__attribute__((constructor)) static void construct(void) { zeroed[0] += 35; }
int main(void) {
  volatile float product = (float)initialized * factor;  // needs the floating-point unit where there is one
  placed[63] = 1;
  Print(initialized + zeroed[0] == 42 && product == 3.5f && placed[63] ? "runs\\n" : "fails\\n");
  return RESULT;
}
"""


@pytest.mark.parametrize("result", [0, 1])
@pytest.mark.parametrize("part", ["cortex-m0plus", "cortex-m3", "cortex-m4", "cortex-m7", "cortex-m33", "cortex-m55"])
def test_start_up_code_runs(part: str, result: int, tmp_path: Path) -> None:
    tools = [shutil.which(name) for name in ("arm-none-eabi-gcc", "qemu-system-arm")]
    if None in tools:
        pytest.skip("needs arm-none-eabi-gcc and qemu-system-arm")
    where = replace(board(("DTCM", 1_024), ("RAM", 32 << 10)), target=tflm.targets.by_name(part))
    on = Machine(where.target, library_for(where.kernels, where.target), where)
    write_files(tmp_path, project_files(Firmware(TINY, "m", on, "a test"), "qemu"))
    (tmp_path / "firmware.c").write_text(FIRMWARE.replace("RESULT", str(result)))
    processor = PROCESSORS[part]
    options = (
        f"-mthumb -nostartfiles -T{tmp_path / 'memory.ld'} --specs=nano.specs --specs=nosys.specs -Wl,--gc-sections"
    )
    sources = [str(tmp_path / "startup.c"), str(tmp_path / "firmware.c")]
    image = str(tmp_path / "m.elf")
    compile_all = [str(tools[0]), "-O1", *processor.flags.split(), *options.split(), *sources, "-o", image]
    subprocess.run(compile_all, check=True, capture_output=True, timeout=60)
    emulate = [str(tools[1]), "-M", processor.machine, "-nographic", "-semihosting", "-kernel", image]
    ended = subprocess.run(emulate, capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL)
    assert "runs" in ended.stdout + ended.stderr
    assert ended.returncode == result


# --- Commands ---------------------------------------------------------------------------------------------------


def test_a_board_has_its_project_unless_told_otherwise(tmp_path: Path) -> None:
    for options, file in (((), "p/prj.conf"), (("--project", "none"), "p/main.cc")):
        folder = tmp_path / f"{len(options)}"
        answer = run("export", INT8_MODEL, folder / "p", "--board", "nrf52dk", *options)
        assert answer.returncode == 0, answer.stderr
        assert (folder / file).is_file()
        assert (folder / "p" / "README.md").exists() is not bool(options)
        assert {*answer.stdout.split("\n")[:-1]} == {str(path) for path in folder.rglob("*") if path.is_file()}


def test_a_project_names_no_folder_of_the_machine_that_made_it(tmp_path: Path) -> None:
    typed = ["/bin/tflm", "export", str(INT8_MODEL), str(tmp_path)]
    for kind, name in CASES.items():
        folder = tmp_path / kind
        write_files(
            folder, project_files(Firmware(TINY, "m", machine(name), origin_of_project(typed, MachineOptions())), kind)
        )
        for path in folder.rglob("*"):
            if path.is_file():
                assert str(tmp_path) not in path.read_text()
                assert str(INT8_MODEL.parent) not in path.read_text()
    assert origin_of_project(["x", "export", "/a/b.tflite", "c/d"], MachineOptions()) == "tflm export b.tflite c/d"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--project make --board pico", "unknown project 'make'; use one of esp-idf"),
        ("--project arduino --board nrf52dk", "can't be built with cmsis-nn kernels"),
        ("--project esp-idf --board nrf52dk", "can't be built for nrf52dk"),
        ("--project pico --board nrf52dk", "needs a board with an RP2040"),
        ("--project platformio --board sparkfun-edge", "PlatformIO has no known board"),
        ("--project qemu --target cortex-m4 --kernels arduino", "can't be built with arduino kernels"),
        ("--project cmake", "can't be built for cortex-m"),
    ],
)
def test_what_can_not_be_built_is_refused(tmp_path: Path, options: str, message: str) -> None:
    assert message in refusal("export", INT8_MODEL, tmp_path / "out", *options.split())
    assert not (tmp_path / "out").exists()


SETTINGS = (".ld", ".ini", ".txt", ".conf", ".cmake", ".yml", ".csv", ".overlay", ".defaults", "arena_size.h", ".ino")
"""The ends of the names of files that have the figures of a project."""


@pytest.mark.parametrize("kind", CASES)
def test_a_project_has_the_recorded_figures(kind: str) -> None:
    """Stack, arena, memories and settings."""
    name = CASES[kind]
    files = project_files(Firmware(MODEL, "m", machine(name), "a test"), kind, found=board_fit(MODEL, by_name(name)))
    texts = (files[path] for path in sorted(files) if path.endswith(SETTINGS))
    require_recorded(f"project {kind} {name}", figures_of_text("\n".join(texts)))


VARIANTS = {
    "esp-idf": (
        "esp32-c3-devkitm-1",
        "esp32-cam",
        "esp32-s3-eye esp-nn@1.1.2",
        "esp-eye esp-nn:ansi",
        "esp-eye reference",
    ),
    "arduino": ("nano-rp2040",),
    "zephyr": ("mimxrt1060-evk", "nrf52dk reference"),
    "platformio": ("esp32-cam", "nano33ble", "pico", "nrf52dk reference", "nucleo-h743zi cmsis-nn:size"),
    "qemu": ("nucleo-h743zi", "corstone-300 cmsis-nn:size", "pico reference"),
    "pico": ("pico2", "feather-rp2040", "pico cmsis-nn:size"),
    "stm32": ("nucleo-f746zg", "nucleo-h743zi", "nucleo-l476rg cmsis-nn:size", "nucleo-f446re reference"),
}
"""Other boards for each kind, and kernels that are not the usual ones."""


@pytest.mark.parametrize("kind", CASES)
def test_the_files_of_a_project_are_the_recorded_ones(kind: str) -> None:
    """A change that is not meant to change projects changes none of them."""
    usual = Firmware(FLOATS, "m", machine(CASES[kind]), "a test")
    forms = {
        CASES[kind]: project_files(usual._replace(model=TINY), kind, typed=usual.machine.kernels.name == "cmsis-nn"),
        f"{CASES[kind]} dumps": project_files(usual, kind, dump=True),
        f"{CASES[kind]} serves": project_files(usual, kind, serve=True),
        **{name: project_files(usual._replace(machine=machine(*name.split())), kind) for name in VARIANTS[kind]},
    }
    for form, files in forms.items():
        digests = [f"{path}:{zlib.crc32(text.encode()):08x}" for path, text in sorted(files.items())]
        require_recorded(f"files of {kind} {form}", digests)


def test_every_kind_is_tried() -> None:
    assert {*CASES} == {*project_kinds()}
    with pytest.raises(RequestError, match="unknown project"):
        project_files(Firmware(TINY, "m", machine("pico"), ""), "no kind")


def test_fit_writes_the_model_a_report_and_the_project(compiler: str, tmp_path: Path) -> None:  # noqa: F811
    found = tflm.fit(MODEL, board="nrf52840dk")
    files = found.write(tmp_path / "a" / "b", "net")
    assert {*files} == {path for path in (tmp_path / "a").rglob("*") if path.is_file()}
    assert (tmp_path / "a/b/net.tflite").read_bytes() == bytes(found.data)
    assert "fits: " in (tmp_path / "a/b/report.md").read_text()
    assert (tmp_path / "a/b/firmware/prj.conf").exists()
    assert syntax_check(compiler, tmp_path) == 2


def test_fit_writes_no_project_for_a_model_that_does_not_fit(tmp_path: Path) -> None:
    found = tflm.fit(MODEL, board=board(("RAM", 4_096)), kernels="reference")
    assert {path.name for path in found.write(tmp_path)} == {"model.tflite", "report.md"}
    assert "does not fit" in (tmp_path / "report.md").read_text()


# --- The arena of the verdict and that of the project -----------------------------------------------------------------


def arenas_in(files: dict[str, str]) -> list[int]:
    (text,) = (text for path, text in files.items() if path.endswith("arena_size.h"))
    return [int(size) for size in re.findall(r"ArenaSize = (\d+);", text)]


def firmware_of_all_boards() -> list[MachineOptions]:
    """Yield every board and chip with each SDK that has figures, and with each kernel library for its part."""
    known = [*boards().values(), *chips().values()]
    with_sdks = [MachineOptions(board=each.name, sdk=sdk) for each in known for sdk in (None, *sdks_for(each.places))]
    kernels = [
        MachineOptions(board=each.name, kernels=name)
        for each in known[::5]
        for name in libraries_for(each.target)
        if name != each.kernels
    ]
    return with_sdks + kernels


@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.long)])
def test_verdict_counts_the_arena_that_the_project_declares(every: int) -> None:
    """Whatever TFLM the project pins."""
    wrong, compared = [], 0
    for options in firmware_of_all_boards()[::every]:
        machine = options.machine()
        kind = usual_kind(machine)
        assert machine.board is not None
        if kind is None:
            assert machine.target.family == "risc-v" or options.kernels == "arduino", options
            continue
        found = board_fit(TINY, machine.board, kernels=machine.kernels)
        declared = arenas_in(project_files(Firmware(TINY, "m", machine, "a test"), kind))
        counted = [each.bytes for each in found.placements]
        compared += 1
        if declared != counted:
            wrong.append((options, kind, counted, declared))
    assert not wrong
    assert compared > 150 // every


@pytest.mark.parametrize(("name", "pin"), [("nrf52840dk", "zephyr"), ("esp32-s3-eye", "esp-tflite-micro")])
@pytest.mark.filterwarnings("ignore::tflm.errors.VersionAssumed")
def test_arenas_are_for_the_tflm_that_the_project_pins(name: str, pin: str) -> None:
    """Without an option, that is the newest version of a distribution."""
    usual, named = (MachineOptions(board=name, release=release).machine() for release in (None, pin))
    assert usual.kernels == named.kernels
    fit, found = tflm.fit(TINY, board=name), board_fit(TINY, by_name(name))
    assert fit.kernels == found.measured.kernels == usual.kernels
    assert [each.measured.kernels for each in fits_of(TINY, [by_name(name)])] == [usual.kernels]
    today = board_fit(TINY, by_name(name), release=TFLM_COMMIT)
    assert today.measured.kernels.release.commit == TFLM_COMMIT
    if pin == "zephyr":  # built without static memory
        assert found.measured.minimum_arena_bytes > today.measured.minimum_arena_bytes


@pytest.mark.parametrize("kind", ["qemu", "platformio"])
def test_projects_that_build_tflm_itself_pin_its_commit(kind: str) -> None:
    """Whatever the board's own SDK pins."""
    on = machine_of_project(MachineOptions(board="nrf52840dk").machine(), kind)
    assert on.kernels.release == TODAY
    assert on.kernels.name == library_for("cmsis-nn", on.target, TODAY).name


def test_sdks_have_their_own_kernels() -> None:
    """Arduino's kernels are Arduino's alone, and Zephyr has no ESP-NN."""
    assert by_name("nano33ble").kernels == "arduino"
    assert by_name("nano33ble", "zephyr").kernels == "cmsis-nn"
    assert by_name("esp32-s3-eye", "zephyr").kernels == "reference"
    assert by_name("nrf52840dk", "arduino").kernels == "cmsis-nn"
