"""Firmware projects that run a model as C, without TFLM: the files of `tflm compile`, a main, and build files.

The build files are templates in `files/compiled/`, in a folder for each kind of project.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from string import Template

from tflm.application.compiled_fit import CompiledFit, sizes_text
from tflm.application.errors import RequestError
from tflm.application.export import Firmware, console_header, serve_headers, serve_include, show_output
from tflm.application.projects.build import NOT_BUILT, Build, is_esp, project_names
from tflm.application.projects.kind import SKETCH, Kind
from tflm.application.projects.kinds import KINDS, kind_named
from tflm.application.projects.platformio import MONITOR, esp_platformio_values, platformio_board
from tflm.application.projects.templates import FileTemplate, console, rendered, wire
from tflm.c.compile import CompiledModel, compile_model
from tflm.c.header import TensorInterface, comment_text, interfaces
from tflm.c.observation import TensorPlace, observed_steps, tensor_places
from tflm.firmware.board_fit import Placement
from tflm.graph import Graph
from tflm.release import DISTRIBUTION
from tflm.report import with_thousands
from tflm.schema.patch import with_data_inside
from tflm.targets import align_up

FOLDER = "compiled"
"""Of the templates."""

MIN_MAIN_STACK = 4 << 10
"""Bytes of stack of Zephyr's main thread."""

MAIN = Template("""\
/* $origin */
#include <string.h>

#include "console.h"
#include "$name.h"

/* The memory that the model needs, besides the stack. */
$blocks
/* Runs the model once; returns 0 unless it fails. */
static int Run(void) {
  static int is_ready;
  int failed;
  if (!is_ready) {
    ${name}_reset($ram);
    is_ready = 1;
  }
$fill
  failed = ${name}_invoke($ram);
  if (failed) {
    Say("operator %d failed", failed - 1);
    return 1;
  }
$show
  return 0;
}
$ending""")

SERVED_MAIN = Template("""\
/* $origin */
#include "console.h"
#include "$name.h"
$include
/* The memory that the model needs, besides the stack. */
$blocks
/* Tensors that are whole in memory at some time: index, memory, place and size. */
typedef struct {
  uint32_t tensor, memory, offset, bytes;
} Place;
static const Place kPlaces[] = {
$places
};

/* Steps after which the outputs of an operator are whole: the first and the last one, and its places. */
typedef struct {
  int32_t first, last;
  uint32_t index, begin, end;
} Observed;
static const Observed kObserved[] = {
$observed
};

static uint8_t *AddressOf(const Place *place) { return $address; }

static uint8_t *ServedBytes(uint32_t what, uint32_t index, uint32_t *bytes) {
  uint32_t i;
$interfaces
  for (i = 0; what == SERVED_TENSOR && i < sizeof(kPlaces) / sizeof(kPlaces[0]); ++i) {
    if (kPlaces[i].tensor == index) {
      *bytes = kPlaces[i].bytes;
      return AddressOf(&kPlaces[i]);
    }
  }
  return 0;
}

static int ServedInvoke(void) {
  const uint32_t count = sizeof(kObserved) / sizeof(kObserved[0]);
  uint32_t i = 0, j;
  int step = 0;
  do {
    const int present = step;
    while (i < count && kObserved[i].last < present) {
      ++i;
    }
    if (i < count && kObserved[i].first == present) {
      SkipToOperator(kObserved[i].index);
      BeginOperator();
    }
    step = ${name}_step($ram, present);
    if (step < 0) {
      SkipToOperator((uint32_t)(-1 - step));
      return 1;
    }
    if (i < count && kObserved[i].last == present && !EndOperator()) {
      for (j = kObserved[i].begin; j < kObserved[i].end; ++j) {
        ServeOutput(AddressOf(&kPlaces[j]), kPlaces[j].bytes);
      }
      NextOperator();
    }
  } while (step > 0);
  return 0;
}

static void ServedReset(void) { ${name}_reset($ram); }
static uint32_t ServedArena(void) { return $ram_bytes; }
static uint32_t ServedModelChecksum(void) { return ${checksum}u; }

static int Run(void) {
  ServedReset();
  Serve();
  return 0;
}
$ending""")

SERVED_INTERFACE = Template("""\
  if (what == SERVED_$side && index == $number) {
    *bytes = ${guard}_${side}_${number}_BYTES;
    return (uint8_t *)${name}_${lower}_${number}($ram);
  }""")

BLOCK = Template("""\
${placement}static union {
  int64_t alignment;
  uint8_t bytes[${guard}_${block}_BYTES];
} $variable$attribute;
""")

PLACEMENT = Template("""\
#ifndef ${guard}_${block}_MEMORY
$include#define ${guard}_${block}_MEMORY $attribute
#endif
""")

FILL_INPUT = Template("""\
  /* Input $number: $what. */
  memset(${name}_input_$number($ram), 0, ${guard}_INPUT_${number}_BYTES);""")

PLAIN_CONSOLE = """\
static inline void Print(const char *text) { fputs(text, stdout); }
"""

PLAIN_ENTRY = """
int main(void) { return Run(); }
"""

LIBRARY_KINDS = ("qemu", "stm32", "pico", "zephyr")
"""Kinds of projects that build CMSIS-NN."""

LIBRARY_OPTION = " -DCMSIS_NN=FOLDER"

LIBRARY_SOURCES = FileTemplate("""

set(CMSIS_NN "" CACHE PATH "Folder of CMSIS-NN 7")
if(NOT EXISTS "${CMSIS_NN}/Include/arm_nnfunctions.h")
  message(FATAL_ERROR "The model calls CMSIS-NN 7: pass its folder with -DCMSIS_NN=FOLDER")
endif()
file(GLOB CMSIS_NN_SOURCES "${CMSIS_NN}/Source/*/*.c")
list(FILTER CMSIS_NN_SOURCES EXCLUDE REGEX "_(f16|f32|flt)[.]c$")
target_sources(@target PRIVATE ${CMSIS_NN_SOURCES})
target_include_directories(@target PRIVATE "${CMSIS_NN}/Include")""")


def compiled_project_files(
    firmware: Firmware,
    kind: str,
    found: CompiledFit | None = None,
    compiled: CompiledModel | None = None,
    serve: bool = False,
) -> dict[str, str]:
    """The files of a project that runs a model as C, by path.

    Args:
        firmware: the model and its machine, whose kernel library TFLM alone would call.
        kind: a name from `project_kinds`.
        found: the fit of the model as C on the board, if known.
        compiled: the model as C, compiled with `compiled_name(stem)`, if known.
        serve: answer the requests of `tflm device` instead of running the model once.

    Raises:
        TflmError: the model cannot be compiled.
        RequestError: the kind is unknown or does not support the board or the library that the model calls.
    """
    model, stem, machine, origin = firmware
    how = kind_named(kind)
    how.require_part(machine)
    names = project_names(stem, origin)
    if compiled is None:
        compiled = compile_model(model, names["name"]) if found is None else found.compiled
    if compiled.library_operators and how.name not in LIBRARY_KINDS:
        raise RequestError(
            f"a project for {how.name} does not build CMSIS-NN; use --project {' or '.join(LIBRARY_KINDS)}, or none "
            "for the sources alone"
        )
    if found is None and machine.board is not None:
        found = CompiledFit(machine.board, compiled)
    build = Build(model, machine, names, None, compiled=found)
    values = {**names, **_common(build, compiled, how.name), **VALUES.get(how.name, how.values)(build)}
    is_idf = how.name == "platformio" and is_esp(build)
    entry = KINDS["esp-idf"].entry if is_idf else how.entry
    file = "main.c" if entry.text != SKETCH else Template(how.main or "main.cpp").substitute(names)
    folder = Template(how.folder).substitute(names)
    written = {
        **(_served_files(compiled, names, wire(entry.console, values)) if serve else compiled.files),
        "console.h": console_header(names, console(entry.console)),
        file: (_served_main if serve else _main)(build, compiled, entry.ending(), how),
    }
    extra = rendered((f"{FOLDER}/esp-idf",), values, folder, "README.md") if is_idf else {}
    return {
        **{f"{folder}{name}": text for name, text in written.items()},
        **rendered((f"{FOLDER}/{how.name}", *how.templates), values, folder),
        **extra,
    }


def compiled_sources(firmware: Firmware, compiled: CompiledModel | None = None, serve: bool = False) -> dict[str, str]:
    """A model as C with a main that runs it, without a project; arguments and errors as of `compiled_project_files`."""
    model, stem, machine, origin = firmware
    names = project_names(stem, origin)
    compiled = compiled or compile_model(model, names["name"])
    build = Build(model, machine, names, None)
    header = console_header(names, PLAIN_CONSOLE)
    own = _served_files(compiled, names) if serve else compiled.files
    return {**own, "console.h": header, "main.c": (_served_main if serve else _main)(build, compiled, PLAIN_ENTRY)}


def _served_files(compiled: CompiledModel, names: dict[str, str], wire: str = "") -> dict[str, str]:
    """The model's files, which run it in steps, and the headers that serve it."""
    source = f"{compiled.name}.c"
    with_step = f"#define {compiled.name.upper()}_WITH_STEP\n{compiled.files[source]}"
    return {**compiled.files, source: with_step, **serve_headers(names, wire)}


def _served_main(build: Build, compiled: CompiledModel, ending: str, how: Kind | None = None) -> str:
    """A main that answers the requests of `tflm device`."""
    names = {**build.names, "ram": _ram(compiled)}
    places, rows = list[TensorPlace](), list[str]()
    producers, last = Graph(build.model).producers(), -1
    for each in observed_steps(compiled.program):
        operator = producers.get(each.outputs[0].tensor, -1)
        if operator <= last:  # none of the model's: variables became state
            continue
        last = operator
        rows.append(f"{each.first}, {each.last}, {operator}, {len(places)}, {len(places) + len(each.outputs)}")
        places += each.outputs
    known = {place.tensor for place in places}
    places += (place for i, place in tensor_places(compiled.program).items() if i not in known)
    main = build.model.subgraphs[0]
    tensors = interfaces(compiled.program)
    return SERVED_MAIN.substitute(
        names,
        include=serve_include(len(main.operators or ()), f"{build.machine.kernels.name} kernels, as C").rstrip(),
        blocks=_blocks(build, compiled, how),
        places="\n".join(f"    {{{', '.join(map(str, place))}}}," for place in places)
        or "    {NOT_OBSERVED, 0, 0, 0},",
        observed="\n".join(f"    {{{row}}}," for row in rows) or "    {-1, -1, 0, 0, 0},",
        address="(uint8_t *)ram[place->memory] + place->offset" if compiled.memories else "ram.bytes + place->offset",
        interfaces="\n".join(
            SERVED_INTERFACE.substitute(names, side=each.side.upper(), lower=each.side, number=each.number)
            for each in tensors
        ),
        ram_bytes=compiled.ram_bytes,
        checksum=zlib.crc32(with_data_inside(build.model).data),
        ending=ending,
    )


def compiled_name(stem: str) -> str:
    """The prefix of a model's functions, from the stem of its file name."""
    return project_names(stem, "")["name"]


def _common(build: Build, compiled: CompiledModel, kind: str) -> dict[str, str]:
    """Values for the templates of all kinds."""
    board, found = build.machine.board, build.compiled
    ram = with_thousands(compiled.ram_bytes)
    where = f"{ram} of RAM"
    if found is not None:
        where = sizes_text(found)
        banks = " and ".join(bank.name for bank in found.banks)
        where += f", with its RAM in {banks}" if banks else ", which does not fit"
    return {
        "title": build.name,
        "place": build.machine.place if board is None else board.description,
        "board": build.machine.place,
        "part": build.machine.target.description,
        "package": DISTRIBUTION,
        "not_built": NOT_BUILT,
        "sizes": where,
        "placement": _placement_text(build),
        "library": LIBRARY_SOURCES.substitute(target=_cmake_target(build, kind)) if compiled.library_operators else "",
        "library_option": LIBRARY_OPTION if compiled.library_operators else "",
        "west_option": f" --{LIBRARY_OPTION}" if compiled.library_operators else "",
    }


def _cmake_target(build: Build, kind: str) -> str:
    """Return CMake's name of the firmware."""
    return "app" if kind == "zephyr" else build.name


def _memory(build: Build, placement: Placement | None, how: Kind | None) -> tuple[str, str]:
    """The attribute that places a block of RAM, and the header that defines it; empty in the memory of other
    variables."""
    if how is not None and placement is not None and placement.bank not in (None, build.usual_bank):
        return how.memory(placement.bank)
    return "", ""


def _blocks(build: Build, compiled: CompiledModel, how: Kind | None) -> str:
    """The definitions of the blocks of RAM, and of the array of them if there are several."""
    names, count = build.names, max(len(compiled.memories), 1)
    text = ""
    for i, placement in enumerate(build.placements or [None] * count):
        attribute, header = _memory(build, placement, how)
        block, variable = (f"RAM_{i}", f"ram_{i}") if compiled.memories else ("RAM", "ram")
        include = f"#include {header}\n" if header else ""
        placed = PLACEMENT.substitute(names, block=block, include=include, attribute=attribute) if attribute else ""
        marked = f" {names['guard']}_{block}_MEMORY" if attribute else ""
        text += BLOCK.substitute(names, block=block, variable=variable, placement=placed, attribute=marked)
    if compiled.memories:
        text += f"static void *const ram[] = {{{', '.join(f'ram_{i}.bytes' for i in range(count))}}};\n"
    return text


def _placement_text(build: Build) -> str:
    if not any(placement.bank != build.usual_bank for placement in build.placements):
        return ""
    return (
        "\n\n## Where the RAM is\n\nThe main file places the model's RAM by a macro, "
        f"`{build.names['guard']}_RAM_MEMORY`. The linker script must know its section; define the macro yourself "
        "if your section has another name."
    )


def _main(build: Build, compiled: CompiledModel, ending: str, how: Kind | None = None) -> str:
    names = {**build.names, "ram": _ram(compiled)}
    tensors = interfaces(compiled.program)
    return MAIN.substitute(
        names,
        blocks=_blocks(build, compiled, how),
        fill="\n".join(FILL_INPUT.substitute(names, **_tensor(each)) for each in tensors if each.side == "input"),
        show="\n".join(_shows(names, tensors)),
        ending=ending,
    )


def _ram(compiled: CompiledModel) -> str:
    """Return the RAM arguments of the model's functions."""
    return "ram" if compiled.memories else "ram.bytes"


def _tensor(each: TensorInterface) -> dict[str, str]:
    tensor = each.tensor
    what = f"{comment_text(tensor.name)}, {tensor.type.name} {list(tensor.dims)}"
    if tensor.scale and tensor.zero_point is not None:
        what += f", real = {tensor.scale:.9g} * (integer - {tensor.zero_point})"
    return {"number": str(each.number), "what": what}


def _shows(names: dict[str, str], tensors: list[TensorInterface]) -> Iterator[str]:
    for each in tensors:
        if each.side == "output" and each.tensor.data.size:
            tensor, what = each.tensor, _tensor(each)["what"]
            values = f"{names['name']}_output_{each.number}({names['ram']})"
            scale, zero_point = (tensor.scale, tensor.zero_point) if tensor.zero_point is not None else (0.0, 0)
            yield show_output(each.number, what, each.element, values, tensor.data.size, scale or 0.0, zero_point)


# --- Values that differ from those of projects with TFLM -------------------------------------------------------------


def _zephyr_values(build: Build) -> dict[str, str]:
    settings = [f"CONFIG_MAIN_STACK_SIZE={max(MIN_MAIN_STACK, align_up(build.stack_bytes, 8))}"]
    return {"configuration": "\n".join(settings), "zephyr_board": build.ids.zephyr or "BOARD"}


def _platformio_values(build: Build) -> dict[str, str]:
    values = {
        **platformio_board(build),
        "settings": MONITOR,
        "main_file": "src/main.c" if is_esp(build) else "src/main.cpp",
    }
    return {**values, **esp_platformio_values(build)} if is_esp(build) else values


VALUES: dict[str, Callable[[Build], dict[str, str]]] = {"zephyr": _zephyr_values, "platformio": _platformio_values}
"""By kind of project."""
