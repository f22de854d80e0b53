"""Generate the data of `tflm flash` from a build of TFLM: sections grouped by the operators that reach them.

    python tools/flash_groups.py LIBRARY --compile "arm-none-eabi-g++ FLAGS" --variant "cortex-m4, mine" [--output FILE]

LIBRARY is TFLM as an archive (libtensorflow-microlite.a), `--compile` the compiler with the flags that it was built
with: those for the processor, the macros of TFLM's headers, and the include paths. All operators are linked once, and
the linker's map is read; what an operator draws in is what can be reached from the line that adds it. The resolver's
own code is measured in firmwares of random operators, compiled and not linked. `--check N` links N firmwares of random
operators in the same way and prints how far the data is off. Nothing is downloaded.

docs/firmware_budget.md has every command from a checkout of TFLM on. Needs pyelftools.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shlex
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from linked_sections import BSS, DATA, TEXT, Key, Link, Object, members_of, reached, read_link
from stack_bounds import stack_bounds

from tflm.firmware.flash import FlashData
from tflm.kernels import REGISTRATIONS

HEADER = "tensorflow/lite/micro/micro_mutable_op_resolver.h"
METHOD = re.compile(r"TfLiteStatus (Add\w+)\((?:[^{}]*)\) \{(.*?)\n  \}", re.DOTALL)
NOT_MEASURED = frozenset({"AddBuiltin", "AddCustom", "AddEthosU"})
"""Methods that add no operator, and the operator whose registration may be missing."""

MANY = 256
"""Capacity of the resolver that all operators are added to."""

COMPILED = ("-Os", "-ffunction-sections", "-fdata-sections")
INCLUDES = """#include "tensorflow/lite/micro/micro_interpreter.h"
#include "tensorflow/lite/micro/micro_mutable_op_resolver.h"
#include "tensorflow/lite/schema/schema_generated.h"
namespace tflite { namespace micro {} }  // names were in the first and in none, and moved to the second in 2026
using namespace tflite;
using namespace tflite::micro;
"""

ROOTS = """#define KEPT __attribute__((noinline))
using Resolver = MicroMutableOpResolver<{many}>;
extern "C" {{
{functions}
void add_all(Resolver& resolver) {{
{calls}
}}
}}
"""

MAIN = """extern const unsigned char model[];
extern unsigned char arena[];
{declarations}
int main() {{
  static MicroMutableOpResolver<{capacity}> resolver;
{adds}
  static MicroInterpreter interpreter(GetModel(model), resolver, arena, 0x10000);
  if (interpreter.AllocateTensors() != kTfLiteOk) return 1;
  return interpreter.Invoke();
}}
"""

START_UP = """#include <stdint.h>
#include <string.h>
extern uint32_t stack_end[], data_start[], data_end[], data_load[], bss_start[], bss_end[];
extern void (*__init_array_start[])(void), (*__init_array_end[])(void);
int main(void);
void* __dso_handle;
volatile int result;
int __aeabi_atexit(void* object, void (*end)(void*), void* handle) { return 0; }
void reset(void) {
  memcpy(data_start, data_load, (char*)data_end - (char*)data_start);
  memset(bss_start, 0, (char*)bss_end - (char*)bss_start);
  for (void (**each)(void) = __init_array_start; each < __init_array_end; ++each) (*each)();
  result = main();
  for (;;) {
  }
}
static void halt(void) {
  for (;;) {
  }
}
__attribute__((section(".vectors"), used)) void (*const vectors[76])(void) = {
    (void (*)(void))stack_end, reset, [2 ... 75] = halt};
"""

LAYOUT = """MEMORY { FLASH : ORIGIN = 0, LENGTH = 64M  RAM : ORIGIN = 0x20000000, LENGTH = 64M }
ENTRY(reset)
SECTIONS {
  .text : { KEEP(*(.vectors)) *(.text*) *(.rodata*) . = ALIGN(4); } > FLASH
  .init_array : { __init_array_start = .; KEEP(*(.init_array*)) __init_array_end = .; } > FLASH
  .ARM.extab : { *(.ARM.extab*) } > FLASH
  .ARM.exidx : { __exidx_start = .; *(.ARM.exidx*) __exidx_end = .; } > FLASH
  data_load = LOADADDR(.data);
  .data : { data_start = .; *(.data*) . = ALIGN(4); data_end = .; } > RAM AT > FLASH
  .bss (NOLOAD) : { bss_start = .; *(.bss*) *(COMMON) . = ALIGN(4); bss_end = .; end = .; } > RAM
  model = 0x10000; arena = 0x20100000; stack_end = 0x20200000;
}
"""


@dataclass(frozen=True)
class Method:
    """A method of the resolver.

    Attributes:
        name: such as "AddConv2D", or "AddConv2D:CONV_2D_INT8" with a registration for that type.
        call: what adds it.
        custom_bytes: of a custom operator's name and its end; 0 for a built-in one.
    """

    name: str
    call: str
    custom_bytes: int

    @property
    def function(self) -> str:
        """The function of the roots that adds it alone."""
        return "add_" + re.sub(r"\W", "_", self.name)


class Toolchain:
    """A compiler with its flags, and a library."""

    def __init__(
        self, command: str, link_flags: str, library: Path, folder: Path, start_up: str = START_UP, layout: str = LAYOUT
    ) -> None:
        self.command = shlex.split(command)
        self.link_flags = shlex.split(link_flags)
        self.library = library
        self.folder = folder
        (folder / "layout.ld").write_text(layout)
        self.start_up = self.compiled("start_up", start_up, "c")
        (folder / "headers.h").write_text(INCLUDES)
        self.run("-x", "c++-header", *COMPILED, folder / "headers.h", "-o", folder / "headers.h.gch")

    def run(self, *arguments: str | Path) -> str:
        """The compiler's output."""
        command = [*self.command, *map(str, arguments)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{shlex.join(command)}\n{done.stderr}")
        return done.stdout

    def disassembled(self, firmware: Path) -> str:
        """A firmware's code."""
        program = self.run("-print-prog-name=objdump").strip()
        return subprocess.check_output([program, "-d", "--no-show-raw-insn", str(firmware)], text=True)

    def addresses(self, firmware: Path) -> dict[str, int]:
        """A firmware's global symbols."""
        read = Object(str(firmware), firmware.read_bytes())
        return {symbol.name: symbol["st_value"] & ~1 for symbol in read.symbols if symbol.name}

    def source_of(self, header: str) -> str:
        """The text of a header that the compiler finds."""
        listed = self.run("-M", "-include", header, "-x", "c++", "/dev/null").replace("\\\n", " ")
        return Path(next(word for word in listed.split() if word.endswith(header))).read_text()

    def compiled(self, name: str, source: str, language: str = "c++") -> Path:
        """An object."""
        (self.folder / f"{name}.src").write_text(source)
        flags = ["-include", self.folder / "headers.h"] if language == "c++" else ["-std=gnu11"]
        self.run("-x", language, *COMPILED, *flags, "-c", self.folder / f"{name}.src", "-o", self.folder / f"{name}.o")
        return self.folder / f"{name}.o"

    def linked(self, name: str, *objects: Path) -> Path:
        """A firmware, with its map beside it."""
        firmware = self.folder / f"{name}.elf"
        flags = ["-nostartfiles", "-Wl,--gc-sections", f"-Wl,-Map={firmware}.map", f"-T{self.folder / 'layout.ld'}"]
        self.run(*flags, self.start_up, *objects, self.library, *self.link_flags, "-o", firmware)
        return firmware


def methods_of(header: str, symbols: Iterable[str]) -> list[Method]:
    """Every operator that the resolver can add, and those with an int8 registration in the library."""
    found = []
    for name, body in METHOD.findall(header):
        custom = re.search(r'AddCustom\(\s*"([^"]+)"', body)
        if name not in NOT_MEASURED:
            found.append(Method(name, f"resolver.{name}();", len(custom[1]) + 1 if custom else 0))
    mangled = set(symbols)
    for operator, registration in sorted(REGISTRATIONS.items()):
        typed, name = f"{operator}_INT8", registration.resolver_method
        scoped = {f"_ZN6tflite{scope}{len(typed) + 9}Register_{typed}Ev" for scope in ("", "5micro")}
        if registration.int8_registration and scoped & mangled:
            found.append(Method(f"{name}:{typed}", f"resolver.{name}(Register_{typed}());", 0))
    return found


def main_source(methods: Sequence[Method], capacity: int = 0) -> str:
    """A minimal firmware: a resolver of these operators, an interpreter, an inference."""
    adds = "\n".join(f"  {method.call}" for method in methods)
    return MAIN.format(declarations="", capacity=capacity or max(len(methods), 1), adds=adds)


def all_operators(toolchain: Toolchain, methods: Sequence[Method]) -> Path:
    """A firmware that adds every operator, each in a separate function."""
    functions = "\n".join(f"KEPT void {m.function}(Resolver& resolver) {{ {m.call} }}" for m in methods)
    calls = "\n".join(f"  {method.function}(resolver);" for method in methods)
    roots = ROOTS.format(many=MANY, functions=functions, calls=calls)
    declarations = f'extern "C" void add_all(MicroMutableOpResolver<{MANY}>&);'
    source = MAIN.format(declarations=declarations, capacity=MANY, adds="  add_all(resolver);")
    return toolchain.linked("all", toolchain.compiled("all_main", source), toolchain.compiled("roots", roots))


Conditions = tuple[tuple[int, ...], ...]
"""Sets of operators of which each must meet a firmware's."""


def groups_of(link: Link, bare: Link, methods: Sequence[Method], own: set[str]) -> list[list[Any]]:
    """Sizes of sections by the set of operators that reach them, without those that every firmware has.

    Args:
        bare: a firmware without operators.
        own: objects of the roots and of main, whose sizes are counted elsewhere.
    """
    stand_ins = _stand_ins(link)
    loading = _loading(link, methods, stand_ins.keys())
    loading |= {each.source: set(range(len(methods))) for each in bare.objects}
    groups: dict[Conditions, list[int]] = defaultdict(lambda: [0] * 5)

    def add(sizes: Sequence[int], *sets: set[int]) -> None:
        group = groups[tuple(tuple(sorted(each)) for each in sets)]
        group[:] = (a + b for a, b in zip(group, sizes))

    for key, places in _reaching(link, bare, methods, own).items():
        section, loaders = link.sections[key], loading[key.object]
        smaller = [stand_ins[name] for name in section.names & stand_ins.keys() if "libgcc" in key.object]
        if smaller and not places <= loaders:
            add((smaller[0], *section.sizes[1:]), places)
            add((section.sizes[TEXT] - smaller[0], 0, 0, 0, 0), places, loaders)
        else:
            add(section.sizes, places)
    return [[list(sets[0]) if len(sets) == 1 else list(map(list, sets)), size] for sets, size in sorted(groups.items())]


def _reaching(link: Link, bare: Link, methods: Sequence[Method], own: set[str]) -> dict[Key, set[int]]:
    """The operators that reach each section, of those that a firmware without operators lacks."""
    mains = [section for key, section in link.sections.items() if key.object in own]
    names = {key for section in mains for key in section.refers if key.bytes}
    reaching = defaultdict(set)
    for place, method in enumerate(methods):
        for key in reached(link, {Key(_roots(own), f".text.{method.function}")}) - names:
            if key not in bare.sections and key.object not in own:
                reaching[key].add(place)
    return reaching


def _roots(own: Iterable[str]) -> str:
    return next(name for name in own if name.endswith("roots.o"))


def _loading(link: Link, methods: Sequence[Method], apart: Set[str]) -> dict[str, set[int]]:
    """For each archive member, the operators for which the linker loads it, before it drops what is not reached.

    `apart` are symbols that a smaller member defines, too, which it finds first.
    """
    first: dict[str, int] = {}
    for number, each in enumerate(link.objects):
        for name, _, _ in each.defined():
            if name not in apart:
                first.setdefault(name, number)
    wants = [{first[name] for name in each.undefined() if name in first} for each in link.objects]
    roots = next(number for number, each in enumerate(link.objects) if each.source.endswith("roots.o"))
    loading = defaultdict(set)
    for place, method in enumerate(methods):
        index = next(i for i, s in enumerate(link.objects[roots].sections) if s.name == f".text.{method.function}")
        symbols = link.objects[roots].symbols
        names = {symbols[relocation["r_info_sym"]].name for relocation in link.objects[roots].relocations[index]}
        found = {first[name] for name in names if name in first} - {roots}
        new = list(found)
        while new:
            fresh = wants[new.pop()] - found
            found |= fresh
            new += fresh
        for number in found:
            loading[link.objects[number].source].add(place)
    return loading


def _stand_ins(link: Link) -> dict[str, int]:
    """Bytes of the code that defines a symbol where no more of its member is asked for, as libgcc has it."""
    archives = {each.source.partition("(")[0] for each in link.objects if "libgcc" in each.source}
    members = (Object(name, data) for archive in archives for name, data in members_of(Path(archive)))
    return {
        symbol: each.sections[index]["sh_size"] for each in members for symbol, index, weak in each.defined() if weak
    }


def resolver_terms(methods: Sequence[Method]) -> list[float]:
    """Terms of the linear formula for main and resolver, as in `FlashData`."""
    customs = [method.custom_bytes for method in methods if method.custom_bytes]
    builtin, custom, count = len(methods) - len(customs), len(customs), len(methods)
    flags = [builtin >= 2, builtin >= 1, custom >= 1, custom >= 2]
    return [1, builtin, custom, *flags, sum(customs), count >= 2]


def own_size(toolchain: Toolchain, name: str, methods: Sequence[Method]) -> tuple[int, int]:
    """Bytes of code and of static RAM of a firmware's main and resolver."""
    source = str(toolchain.compiled(name, main_source(methods)))
    code = static = 0
    for section in Object(source, Path(source).read_bytes()).sections:
        size = -(-section["sh_size"] // 4) * 4
        if section["sh_flags"] & 2 and section["sh_type"] == "SHT_NOBITS":
            static += size
        elif section["sh_flags"] & 2:
            code += size
    return code, static


def fit_resolver(toolchain: Toolchain, methods: Sequence[Method], count: int) -> dict[str, Any]:
    """Code and static RAM of main and resolver, fitted to firmwares of random operators."""
    draw = random.Random(0)
    plain = [method for method in methods if ":" not in method.name]
    sets = [[], *([method] for method in draw.sample(plain, 8))]
    sets += [draw.sample(plain, draw.randint(2, 20)) for _ in range(count - len(sets))]
    measured = [own_size(toolchain, "main", each) for each in sets]
    terms = np.array([resolver_terms(each) for each in sets], float)
    code, static = np.array(measured, float).T
    found = np.linalg.lstsq(terms, code, rcond=None)[0]
    entries = np.array([max(len(each), 1) for each in sets], float)
    per_entry, rest = np.polyfit(entries, static, 1)
    print(f"resolver: {count} firmwares compiled, code off by at most {np.abs(terms @ found - code).max():.0f} bytes")
    return {"main": [round(each, 2) for each in found], "main_bss": round(rest), "per_entry": round(per_entry)}


def sizes_of(firmware: Path) -> tuple[int, int, int]:
    """Flash, and static RAM with and without first values, of a linked firmware."""
    flash = data = bss = 0
    for section in Object(str(firmware), firmware.read_bytes()).sections:
        if section["sh_flags"] & 2 and section["sh_type"] == "SHT_NOBITS":
            bss += section["sh_size"]
        elif section["sh_flags"] & 2:
            flash += section["sh_size"]
            data += section["sh_size"] * (section["sh_flags"] & 1)
    return flash, data, bss


def data_of(toolchain: Toolchain, variant: str, library: str, fitted: int) -> dict[str, Any]:
    """The data of a build."""
    symbols = [name for _, data in members_of(toolchain.library) for name, _, _ in Object("", data).defined()]
    methods = methods_of(toolchain.source_of(HEADER), symbols)
    print(f"linking {len(methods)} operators")
    none = toolchain.linked("none", toolchain.compiled("none_main", main_source([])))
    firmware = all_operators(toolchain, methods)
    link = read_link(Path(f"{firmware}.map").read_text())
    bare = read_link(Path(f"{none}.map").read_text())
    own = {str(toolchain.folder / f"{name}.o") for name in ("roots", "all_main", "none_main")}
    roots = [Key(_roots(own), f".text.{method.function}") for method in methods]
    resolver = fit_resolver(toolchain, methods, fitted)
    base = [sum(s.sizes[kind] for k, s in bare.sections.items() if k.object not in own) for kind in range(5)]
    flash, data, bss = sizes_of(none)
    base[TEXT] += round(flash - data - sum(base[:DATA]) - resolver["main"][0])
    base[BSS] = (
        bss - -(-resolver["main_bss"] // 8) * 8 - resolver["per_entry"]
    )  # the linker aligns the sections between
    return {
        "variant": variant,
        "lib": library,
        **resolver,
        "custom": {method.name: method.custom_bytes for method in methods if method.custom_bytes},
        "ops": [method.name for method in methods],
        "base": base,
        "groups": groups_of(link, bare, methods, own),
        "stack": stack_bounds(link, toolchain.disassembled(firmware), set(bare.sections), roots),
    }


def check(toolchain: Toolchain, data: dict[str, Any], count: int) -> None:
    """Print the errors of the data for firmwares with random operators."""
    entry = FlashData.read(json.dumps(data))
    methods = {m.name: m for m in methods_of(toolchain.source_of(HEADER), ()) if m.name in entry.places}
    draw = random.Random(1)
    worst = 0.0
    for number in range(count):
        names = draw.sample(sorted(methods), 1 + number % 20)
        main = toolchain.compiled("check_main", main_source([methods[name] for name in names]))
        flash, data_bytes, bss = sizes_of(toolchain.linked("check", main))
        said = entry.sizes(names)
        worst = max(worst, abs(said.flash / flash - 1))
        print(
            f"{len(names):3} operators: {flash:,} bytes of flash, said {said.flash - flash:+.0f}; "
            f"static RAM {data_bytes + bss}, said {said.data + said.bss - data_bytes - bss:+.0f}"
        )
    print(f"largest error of flash {worst:.2%}")


def main() -> None:
    """Make the data of a build, and check it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=Path)
    parser.add_argument("--compile", required=True, help="the compiler and its flags")
    parser.add_argument("--link", default="-specs=nano.specs -specs=nosys.specs -lm", help="flags of the link")
    parser.add_argument("--variant", required=True, help="the part and what the build is called: 'cortex-m4, release'")
    parser.add_argument("--kernels", default="cmsis-nn")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--firmwares", type=int, default=60, help="how many the resolver's code is measured in")
    parser.add_argument("--check", type=int, default=0, metavar="N", help="link N firmwares and compare")
    parser.add_argument("--folder", type=Path, help="keeps what is compiled and linked there")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        toolchain = Toolchain(arguments.compile, arguments.link, arguments.library, folder)
        data = data_of(toolchain, arguments.variant, arguments.kernels, arguments.firmwares)
        if arguments.output is not None:
            arguments.output.write_text(json.dumps(data, separators=(",", ":")) + "\n")
        check(toolchain, data, arguments.check)


if __name__ == "__main__":
    main()
