"""Firmware projects: the sources of `tflm export` plus the files of a build system.

The files are templates in `project_files/`, in a folder for each kind of project; `@name` is replaced by a value. A
template whose result is empty is not written.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, NamedTuple

import tflm
from tflm.application.errors import RequestError
from tflm.application.export import ArenaMemory, SourceStyle, names_of, sources
from tflm.application.machine import Machine
from tflm.application.project_parts import PROCESSORS, BoardIds, ids_of
from tflm.atomic_write import write_atomically
from tflm.boards import Bank
from tflm.boards.board_fit import BoardFit, Placement, board_fit
from tflm.report import with_thousands
from tflm.schema.enums import TensorType

if TYPE_CHECKING:
    from importlib.abc import Traversable

EMULATED_FLASH = EMULATED_RAM = 4 << 20
"""Flash and RAM of QEMU's machines in bytes, for a processor without a board or a board with unknown flash."""

LEAST_STACK = 2 << 10
"""Bytes of stack in a linker script if the model's stack is unknown."""

STACK_OF_MAIN = 1 << 10
"""Bytes of stack for main and printing, in addition to TFLM's."""

PARTITION_TABLE_BYTES = 64 << 10
"""Bytes before the program in an Espressif chip's flash: boot loader, partition table and settings."""

PICO_CHIPS = {"RP2040": "pico", "RP2350": "pico2"}
"""Boards of the Pico SDK, by chip."""

ESP_ENTRY = """
extern "C" void app_main() { Run(); }
"""

ARDUINO_ENTRY = """
void setup() { Run(); }

void loop() {}
"""

REGISTERING_ENTRY = """
void setup() {
  Serial.begin(115200);
  RegisterDebugLogCallback([](const char* text) { Serial.print(text); });
  Run();
}

void loop() {}
"""

REGISTERING_FIRST = """\
#include <Arduino.h>
extern "C" void RegisterDebugLogCallback(void (*print)(const char* text));  // of TFLM
"""

REFERENCE_KERNELS = """
# The component compiles ESP-NN's kernels: TFLM's own take their place.
idf_component_get_property(COMPONENT espressif__esp-tflite-micro COMPONENT_LIB)
idf_component_get_property(FOLDER espressif__esp-tflite-micro COMPONENT_DIR)
get_target_property(SOURCES ${COMPONENT} SOURCES)
list(FILTER SOURCES EXCLUDE REGEX "/kernels/esp_nn/")
foreach(KERNEL add conv depthwise_conv fully_connected mul pooling softmax)
  list(APPEND SOURCES ${FOLDER}/tensorflow/lite/micro/kernels/${KERNEL}.cc)
endforeach()
set_target_properties(${COMPONENT} PROPERTIES SOURCES "${SOURCES}")"""

TFLM_TREE = Template("""
TFLM's sources go to `lib/tflm`, by TFLM's own script. In this folder:

```sh
git clone https://github.com/tensorflow/tflite-micro
cd tflite-micro
python3 tensorflow/lite/micro/tools/project_generation/create_tflm_tree.py \\
    --makefile_options "$options" ../lib/tflm
cd ..
```
""")

TREE_INCLUDES = (
    "-Ilib/tflm",
    *(
        f"-Ilib/tflm/third_party/{folder}"
        for folder in (
            "flatbuffers/include",
            "gemmlowp",
            "kissfft",
            "ruy",
            "cmsis/CMSIS/Core/Include",
            "cmsis_nn",
            "cmsis_nn/Include",
        )
    ),
)


class FileTemplate(Template):
    """A template whose names start with @, because $ has a meaning in most of these files."""

    delimiter = "@"


class Build(NamedTuple):
    """The contents of a project.

    Attributes:
        model, machine: the model, and the firmware's machine.
        names: values for templates.
        found: the fit of the model on the board; None without a board.
        dump: whether all tensors are preserved and printed; the arena is then in one piece.
    """

    model: tflm.Model
    machine: Machine
    names: dict[str, str]
    found: BoardFit | None
    dump: bool

    @property
    def name(self) -> str:
        """The identifier in names of targets and files."""
        return self.names["name"]

    @property
    def kernels(self) -> str:
        """The kernel library without its version."""
        return self.machine.kernels.name.partition("@")[0]

    @property
    def chip(self) -> str:
        """The name of the board's chip, or of the bare chip; empty if unknown."""
        board = self.machine.board
        return "" if board is None else board.chip or board.name

    @property
    def ids(self) -> BoardIds:
        """The board's identifiers in build systems."""
        return ids_of(self.machine.board)

    @property
    def placements(self) -> tuple[Placement, ...]:
        """The placement of the arena; empty without a board or if it does not fit."""
        if self.found is None or self.dump or not self.found.fits_ram:
            return ()
        return self.found.placements

    @property
    def usual_bank(self) -> Bank | None:
        """The memory of all other variables: the one with TFLM's static RAM, or the chip's largest."""
        if self.found is None:
            return None
        largest = max(self.found.board.on_chip_ram, key=lambda bank: bank.bytes)
        return self.found.firmware_bank or largest

    def uses(self, *types: TensorType) -> bool:
        """Whether an input or output has one of these types."""
        main = self.model.subgraphs[0]
        tensors = main.tensors or []
        return any(tensors[i].type in types for i in [*(main.inputs or ()), *(main.outputs or ())])


@dataclass(frozen=True)
class Kind:
    """A kind of project.

    Attributes:
        name: its name for `--project`.
        kernels: supported kernel libraries, without versions.
        families: supported parts, as in `Target.family`; empty for all.
        folder: folder of the sources; a template.
        values: values for the templates, in addition to the common ones.
        style: style of the sources.
        memory: returns the attribute that places an array in a memory, and the header that defines it.
        main: name of the main source, if it is not the usual one.
    """

    name: str
    kernels: frozenset[str]
    families: frozenset[str]
    folder: str
    values: Callable[[Build], dict[str, str]]
    style: SourceStyle
    memory: Callable[[Bank], tuple[str, str]]
    main: str = ""

    def require(self, machine: Machine) -> None:
        """Check that such a project supports a machine and its kernels.

        Raises:
            RequestError: it does not; the message lists what it supports.
        """
        kernels = machine.kernels.name.partition("@")[0]
        if self.families and machine.target.family not in self.families:
            raise RequestError(
                f"a project for {self.name} can't be built for {machine.place}; use another --project or a board"
            )
        if kernels not in self.kernels:
            raise RequestError(
                f"a project for {self.name} can't be built with {machine.kernels.name} kernels; "
                f"it supports {' or '.join(sorted(self.kernels))}: use another --project or --kernels"
            )


def project_kinds() -> list[str]:
    """The names of all kinds."""
    return list(KINDS)


def usual_kind(machine: Machine) -> str | None:
    """The usual kind of project for a board and its kernels; None without a board.

    Arduino for its library, ESP-IDF for Espressif's chips, the Pico SDK for its chips, and CMake for others.
    """
    if machine.board is None:
        return None
    for name in ("arduino", "esp-idf", "pico", "cmake"):
        try:
            KINDS[name].require(machine)
        except RequestError:
            continue
        if name != "pico" or (machine.board.chip or machine.board.name) in PICO_CHIPS:
            return name
    return None


def project_files(
    model: tflm.Model,
    stem: str,
    machine: Machine,
    origin: str,
    kind: str,
    typed: bool = False,
    dump: bool = False,
    found: BoardFit | None = None,
) -> dict[str, str]:
    """The files of a project by path.

    Args:
        model, stem, machine, origin, typed, dump: as for `sources`.
        kind: a name from `project_kinds`.
        found: the fit of the model on the board, if known.

    Raises:
        TflmError: the model can't be laid out in an arena.
        RequestError: the kind is unknown or does not support the board or the kernels, or a tensor's type has no C++
            type.
    """
    if kind not in KINDS:
        raise RequestError(f"unknown project {kind!r}; use one of {', '.join(KINDS)}")
    how = KINDS[kind]
    how.require(machine)
    if found is None and machine.board is not None:
        found = board_fit(model, machine.board, kernels=machine.kernels)
    build = Build(model, machine, names_of(stem, origin), found, dump)
    style = how.style._replace(arenas=tuple(_arena_memory(build, each, how) for each in build.placements))
    if kind == "platformio":
        how, style = _platformio_kind(build, style)
    written = sources(model, stem, machine, origin, typed, dump, style)
    folder = Template(how.folder).substitute(build.names)
    values = {**build.names, **_common(build, style.arenas), **how.values(build)}
    main = Template(how.main).substitute(build.names)
    renamed = {main if main and name.startswith("main.") else name: text for name, text in written.items()}
    return {
        **{f"{folder}{name}": text for name, text in renamed.items()},
        **_rendered(how.name, values),
        **(_rendered("esp-idf", values, "README.md") if how.name == "platformio" and _is_esp(build) else {}),
    }


def origin_of_project(command_line: Sequence[str]) -> str:
    """The command that made a project, without local folders."""
    words = [Path(word).name if Path(word).is_absolute() else word for word in command_line[1:]]
    return shlex.join(["tflm", *words])


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> list[Path]:
    """Write files by their paths in a folder, which is created if missing; returns their full paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / name for name in files]
    for path, content in zip(written, files.values()):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content.encode() if isinstance(content, str) else content)
    return written


def _rendered(kind: str, values: dict[str, str], *without: str) -> dict[str, str]:
    """The templates of a kind, filled in."""
    found = {}
    for path, text in _templates(files("tflm.application") / "project_files" / kind, ""):
        source = values.get("source_folder", "main/")
        filled = FileTemplate(text).substitute(values).rstrip() + "\n"
        if path not in without and filled.strip():
            found[path.replace("main/", source)] = filled
    return found


def _templates(folder: Traversable, path: str) -> Iterator[tuple[str, str]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _templates(entry, f"{path}{entry.name}/")
        else:
            yield f"{path}{entry.name}", entry.read_text(encoding="utf-8")


def _common(build: Build, arenas: tuple[ArenaMemory, ...]) -> dict[str, str]:
    """Values for the templates of all kinds."""
    board = build.machine.board
    return {
        "title": build.name,
        "place": build.machine.place if board is None else board.description,
        "board": build.machine.place,
        "part": build.machine.target.description,
        "kernels": build.machine.kernels.name,
        "arena": _arena_text(build),
        "placement": _placement_text(build, arenas),
    }


def _arena_text(build: Build) -> str:
    if build.placements:
        return ", ".join(
            f"its {each.part} of {with_thousands(each.bytes)} in {each.bank.name}"
            for each in build.placements
            if each.bank is not None
        )
    missing = "" if build.found is None or build.found.fits_ram else ", which this board does not have room for"
    return f"an arena in static memory{missing}"


def _placement_text(build: Build, arenas: tuple[ArenaMemory, ...]) -> str:
    placed = [arena for arena in arenas if arena.where]
    if not placed:
        return ""
    lines = "\n".join(
        f"- {arena.where}: `{build.names['guard']}_{arena.macro}_MEMORY`, which is `{arena.attribute}`"
        for arena in placed
    )
    return (
        "\n\n## Where the arena is\n\n`arena_size.h` places the arena by macros. The linker script must know their "
        f"sections; define a macro yourself if your sections have other names.\n\n{lines}"
    )


def _arena_memory(build: Build, placement: Placement, kind: Kind) -> ArenaMemory:
    bank = placement.bank
    if bank is None or bank == build.usual_bank:
        return ArenaMemory(placement.part, placement.bytes)
    attribute, include = kind.memory(bank)
    return ArenaMemory(placement.part, placement.bytes, f"The {placement.part} is in {bank.name}", attribute, include)


# --- Memories ----------------------------------------------------------------------------------------------------


def _slug(bank: Bank) -> str:
    return re.sub("[^A-Za-z0-9]+", "_", bank.name)


def _section(bank: Bank) -> tuple[str, str]:
    return f'__attribute__((section(".{_slug(bank).lower()}")))', ""


def _esp_memory(bank: Bank) -> tuple[str, str]:
    return ("EXT_RAM_BSS_ATTR", '"esp_attr.h"') if bank.is_external else ("", "")


def _zephyr_memory(bank: Bank) -> tuple[str, str]:
    if bank.name == "DTCM":
        return "__dtcm_bss_section", "<zephyr/linker/section_tags.h>"
    return f"Z_GENERIC_SECTION({_slug(bank).upper()})", "<zephyr/kernel.h>"


# --- Kinds -------------------------------------------------------------------------------------------------------


def _cmake_values(build: Build) -> dict[str, str]:
    target = build.machine.target.name
    if target not in PROCESSORS:
        raise RequestError(f"a project for cmake needs a processor, not {target!r}; name it: --target cortex-m4")
    processor = PROCESSORS[target]
    is_cmsis_nn = build.kernels != "reference"
    speed = "SIZE" if build.kernels.endswith(":size") else "SPEED"
    firmware = None if build.found is None else build.found.firmware_ram
    stack = LEAST_STACK if firmware is None or not firmware.stack_bytes else firmware.stack_bytes + STACK_OF_MAIN
    usual = build.usual_bank
    banks = () if build.found is None else build.found.board.ram
    return {
        "processor": processor.flags,
        "machine": processor.machine,
        "is_cmsis_nn": "TRUE" if is_cmsis_nn else "FALSE",
        "definitions": f"CMSIS_NN KERNELS_OPTIMIZED_FOR_{speed}" if is_cmsis_nn else "",
        "make_options": " " + _make_options(build),
        "float_printf": " -u _printf_float" if build.uses(TensorType.FLOAT32) else "",
        "regions": "\n".join(_regions(build)),
        "ram": "RAM" if usual is None else _slug(usual),
        "sections": "".join(
            f"  .{_slug(bank).lower()} (NOLOAD) : {{ *(.{_slug(bank).lower()}*) }} > {_slug(bank)}\n"
            for bank in banks
            if bank != usual
        ),
        "stack": str(stack),
        "emulation": f"Run it in QEMU, where it prints the outputs:\n\n```sh\nqemu-system-arm -M {processor.machine} "
        f"-nographic -semihosting -kernel build/{build.name}.elf\n```\n",
    }


def _make_options(build: Build) -> str:
    optimized = " OPTIMIZED_KERNEL_DIR=cmsis_nn" if build.kernels != "reference" else ""
    return f"TARGET=cortex_m_generic TARGET_ARCH={build.machine.target.name}{optimized}"


def _regions(build: Build) -> Iterator[str]:
    """Lines of a linker script's MEMORY: the flash, then the memories of a board in order."""
    processor = PROCESSORS[build.machine.target.name]
    board = build.machine.board
    flash = (board.flash_bytes if board is not None else None) or EMULATED_FLASH
    yield f"  FLASH (rx) : ORIGIN = {processor.flash:#010x}, LENGTH = {flash}"
    address, external = processor.ram, processor.external_ram
    for bank in (Bank("RAM", EMULATED_RAM),) if board is None else board.ram:
        origin = external if bank.is_external else address
        yield f"  {_slug(bank)} (rwx) : ORIGIN = {origin:#010x}, LENGTH = {bank.bytes}"
        if bank.is_external:
            external += bank.bytes
        else:
            address += bank.bytes


def _esp_values(build: Build) -> dict[str, str]:
    board, target = build.machine.board, build.machine.target.name
    in_psram = any(each.bank is not None and each.bank.is_external for each in build.placements)
    flash = None if board is None else board.flash_bytes
    settings = [f'CONFIG_IDF_TARGET="{target}"', "CONFIG_ESP_MAIN_TASK_STACK_SIZE=8192"]
    if build.kernels == "esp-nn:ansi":
        settings.append("CONFIG_NN_ANSI_C=y")
    if flash:
        settings += [f"CONFIG_ESPTOOLPY_FLASHSIZE_{flash >> 20}MB=y", "CONFIG_PARTITION_TABLE_CUSTOM=y"]
        settings.append('CONFIG_PARTITION_TABLE_CUSTOM_FILENAME="partitions.csv"')
    else:
        settings.append("CONFIG_PARTITION_TABLE_SINGLE_APP_LARGE=y")
    if in_psram:
        settings += ["CONFIG_SPIRAM=y", "CONFIG_SPIRAM_ALLOW_BSS_SEG_EXTERNAL_MEMORY=y"]
        if target == "esp32s3":
            settings.append("CONFIG_SPIRAM_MODE_OCT=y")
    version = build.machine.kernels.name.partition("@")[2]
    return {
        "chip": target,
        "after_project": REFERENCE_KERNELS if build.kernels == "reference" else "",
        "component": _component_version(build),
        "esp_nn": f'  espressif/esp-nn: "=={version}"' if version else "",
        "sdkconfig": "\n".join(settings),
        "partitions": _partitions(flash) if flash else "",
    }


def _component_version(build: Build) -> str:
    """The version for the component manager: 1.3.3~1 is 1.3.3.1; any version for a commit or another TFLM."""
    contained = build.machine.kernels.release.distribution
    version = contained.version if contained is not None and contained.name == "esp-tflite-micro" else ""
    if not re.fullmatch(r"[0-9]+(\.[0-9]+){2,3}", version):
        return "*"
    numbers = version.split(".")
    return "==" + ".".join(numbers[:3]) + "".join(f"~{number}" for number in numbers[3:])


def _partitions(flash: int) -> str:
    size = flash - PARTITION_TABLE_BYTES
    return (
        "# Name, Type, SubType, Offset, Size\n"
        "nvs, data, nvs, 0x9000, 0x6000\n"
        "phy_init, data, phy, 0xf000, 0x1000\n"
        f"factory, app, factory, {PARTITION_TABLE_BYTES:#x}, {size:#x}"
    )


def _arduino_values(build: Build) -> dict[str, str]:
    fqbn = build.ids.fqbn
    if not fqbn:
        raise RequestError("a project for arduino needs an Arduino board; name it with --board")
    return {"fqbn": fqbn, "core": ":".join(fqbn.split(":")[:2])}


def _zephyr_values(build: Build) -> dict[str, str]:
    settings = ["CONFIG_MAIN_STACK_SIZE=8192"]
    if build.kernels != "reference":
        settings.insert(0, "CONFIG_TENSORFLOW_LITE_MICRO_CMSIS_NN_KERNELS=y")
    if build.uses(TensorType.FLOAT32):
        settings.append("CONFIG_REQUIRES_FLOAT_PRINTF=y")
    return {"configuration": "\n".join(settings), "zephyr_board": build.ids.zephyr or "BOARD"}


def _pico_values(build: Build) -> dict[str, str]:
    if build.chip not in PICO_CHIPS:
        raise RequestError("a project for pico needs a board with an RP2040 or RP2350, such as --board pico")
    return {"pico_board": PICO_CHIPS[build.chip]}


def _is_esp(build: Build) -> bool:
    return build.machine.target.family == "espressif"


def _platformio_values(build: Build) -> dict[str, str]:
    ids = build.ids
    if not ids.platformio:
        raise RequestError(
            f"PlatformIO has no known board for {build.machine.place}; use another --project: {', '.join(KINDS)}"
        )
    values = {
        "platform": ids.platform,
        "platformio_board": ids.platformio,
        "framework": "espidf" if _is_esp(build) else "arduino",
        "before_build": "",
        "main_file": "`src/main.cpp`",
        "source_folder": "src/",
        "library": "",
    }
    if _is_esp(build):
        lines = ["monitor_speed = 115200"]
        if build.machine.board is not None and build.machine.board.flash_bytes:
            lines.append("board_build.partitions = partitions.csv")
        return {**values, **_esp_values(build), "settings": "\n".join(lines)}
    if build.kernels == "arduino":
        library = "https://github.com/spaziochirale/Chirale_TensorFlowLite.git"
        return {**values, "settings": f"monitor_speed = 9600\nlib_deps = {library}"}
    speed = "SIZE" if build.kernels.endswith(":size") else "SPEED"
    defined = ["-DTF_LITE_STATIC_MEMORY", "-DNDEBUG"]
    if build.kernels != "reference":
        defined += ["-DCMSIS_NN", f"-DKERNELS_OPTIMIZED_FOR_{speed}"]
    flags = "\n  ".join([*defined, *TREE_INCLUDES])
    return {
        **values,
        "settings": f"monitor_speed = 115200\nbuild_unflags = -std=gnu++11 -std=gnu++14\n"
        f"build_flags =\n  -std=gnu++17\n  {flags}",
        "before_build": TFLM_TREE.substitute(options=_make_options(build)),
        "library": json.dumps({"name": "tflm", "version": "0.0.0", "build": {"srcDir": "."}}, indent=2),
    }


def _platformio_kind(build: Build, style: SourceStyle) -> tuple[Kind, SourceStyle]:
    """PlatformIO projects with the framework's entry point."""
    if _is_esp(build):
        style = style._replace(signature="static int Run()", ending=ESP_ENTRY, suffix=".cc")
    elif build.kernels == "arduino":
        style = style._replace(first="#include <Chirale_TensorFlowLite.h>\n", ending=ARDUINO_ENTRY)
    return KINDS["platformio"], style


RUN = "static int Run()"
CMSIS = frozenset({"cmsis-nn", "reference"})
ESP = frozenset({"esp-nn", "esp-nn:ansi", "reference"})
CORTEX_M, ESPRESSIF = frozenset({"cortex-m"}), frozenset({"espressif"})

KINDS = {
    kind.name: kind
    for kind in (
        Kind("esp-idf", ESP, ESPRESSIF, "main/", _esp_values, SourceStyle(".cc", RUN, "", ESP_ENTRY), _esp_memory),
        Kind(
            "arduino",
            frozenset({"arduino"}),
            CORTEX_M,
            "${name}/",
            _arduino_values,
            SourceStyle(".cpp", RUN, "#include <Chirale_TensorFlowLite.h>\n", ARDUINO_ENTRY),
            _section,
            main="${name}.ino",
        ),
        Kind("zephyr", CMSIS, frozenset(), "src/", _zephyr_values, SourceStyle(), _zephyr_memory),
        Kind(
            "platformio",
            CMSIS | ESP | {"arduino", "cmsis-nn:size"},
            CORTEX_M | ESPRESSIF,
            "src/",
            _platformio_values,
            SourceStyle(".cpp", RUN, REGISTERING_FIRST, REGISTERING_ENTRY),
            _section,
        ),
        Kind("cmake", CMSIS | {"cmsis-nn:size"}, CORTEX_M, "", _cmake_values, SourceStyle(), _section),
        Kind("pico", frozenset({"cmsis-nn"}), CORTEX_M, "", _pico_values, SourceStyle(), _section),
    )
}
"""Kinds of projects by their names for `--project`."""
