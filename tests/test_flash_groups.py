"""The tool that produces the flash data: how it reads maps, archives and disassemblies."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("elftools", reason="needs pyelftools")
sys.path.append(str(Path(__file__).parent.parent / "tools"))

from count_instructions import MAIN, model_of
from flash_groups import INCLUDES, all_operators, main_source, methods_of
from linked_sections import Key, members_of, reached, read_link, read_map
from stack_bounds import Depths, functions_of

import tflm

STAND_INS = Path(__file__).parent / "stand_ins"

MAP = """Archive member included to satisfy reference by file (symbol)

lib.a(add.o)                  main.o (add)
lib.a(unused.o)               lib.a(add.o) (unused)

Discarded input sections

 .text.unused   0x00000000       0x10 lib.a(unused.o)

Linker script and memory map

 .text.main     0x00000040       0x1c main.o
 .text.a_function_with_a_long_name
                0x0000005c        0x8 lib.a(add.o)
                0x0000005c                add
 *fill*         0x00000064        0x4
 .bss.counter   0x20000000        0x4 lib.a(add.o)
"""


def test_a_map_tells_what_was_kept_and_which_members_were_loaded() -> None:
    kept, members = read_map(MAP)
    assert kept == {
        Key("main.o", ".text.main"): (0x40, 0x1C),
        Key("lib.a(add.o)", ".text.a_function_with_a_long_name"): (0x5C, 8),
        Key("lib.a(add.o)", ".bss.counter"): (0x20000000, 4),
    }
    assert members == ["lib.a(add.o)", "lib.a(unused.o)"]


def test_members_of_an_archive_have_short_and_long_names(tmp_path: Path) -> None:
    def entry(name: str, data: bytes) -> bytes:
        return f"{name:16}{0:12}{0:6}{0:6}{0:8}{len(data):10}`\n".encode() + data + b"\n" * (len(data) % 2)

    path = tmp_path / "lib.a"
    names = b"a_name_of_more_than_sixteen.o/\n"
    path.write_bytes(b"!<arch>\n" + entry("//", names) + entry("/0", b"long") + entry("add.o/", b"odd"))
    assert list(members_of(path)) == [("a_name_of_more_than_sixteen.o", b"long"), ("add.o", b"odd")]


def disassembled(*functions: str) -> str:
    """A disassembly of functions at 0x100, 0x200 ..., each with its instructions in lines."""
    lines = []
    for number, function in enumerate(functions, 1):
        lines.append(f"{number * 0x100:08x} <f{number}>:")
        lines += [f"     {number * 0x100 + 4 * i:x}:\t{each}" for i, each in enumerate(function.split("\n"))]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("instructions", "frame"),
    [
        ("push\t{r4, r5, r6, lr}", 16),
        ("stmdb\tsp!, {r0, r4-r11, lr}", 40),
        ("vpush\t{d8-d11}", 32),
        ("push\t{r7, lr}\nsub.w\tsp, sp, #1024\t@ 0x400\nadd\tsp, #16", 8 + 1024),
        ("str.w\tr4, [sp, #-8]!", 8),
        ("ldr\tr4, [pc, #4]\t@ (108 <f1+0x8>)\nadd\tsp, r4\n.word\t0xfffffdfc", 516),
        ("adds\tr0, #1\nbx\tlr", 0),
    ],
)
def test_a_frame_is_what_is_taken_from_the_stack_pointer(instructions: str, frame: int) -> None:
    assert functions_of(disassembled(instructions))[0x100].frame == frame


def test_the_stack_is_as_deep_as_the_deepest_chain_of_calls() -> None:
    functions = functions_of(
        disassembled(
            "push\t{r4, lr}\nbl\t200 <f2>\nbeq.n\t104 <f1+0x4>\nb.w\t300 <f3>",
            "push\t{r4, r5, r6, lr}\nldr\tr3, [r0, #0]\nldr\tr3, [r3, #4]\nblx\tr3",
            "sub\tsp, #20",
            "sub\tsp, #400",
            "sub\tsp, #100",
        )
    )
    assert Depths(functions, []).of(0x100) == 8 + 20
    assert Depths(functions, [(0x500, 0x400)]).of(0x100) == 8 + 16 + 400
    assert Depths(functions, []).of(0x100, frozenset({0x500})) == 8 + 16 + 100


def test_a_function_that_calls_itself_counts_once() -> None:
    functions = functions_of(disassembled("push\t{r4, lr}\nbl\t200 <f2>", "push\t{r4, lr}\nbl\t100 <f1>"))
    assert Depths(functions, []).of(0x100) == 16


SOURCES = {
    "main": "int first(int); int main(void) { return first(3); }",
    "a": 'const char* shared = "a text"; int second(int x) { return x + 1; }'
    "int first(int x) { return second(x) + *shared; }",
    "b": "int unused(void) { return 7; }",
}


@pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None, reason="needs arm-none-eabi-gcc")
def test_what_is_reached_in_a_linked_firmware(tmp_path: Path) -> None:
    flags = ["-mcpu=cortex-m4", "-mthumb", "-Os", "-fno-inline", "-ffunction-sections", "-fdata-sections"]
    for name, source in SOURCES.items():
        (tmp_path / f"{name}.c").write_text(source)
    link = ["-nostdlib", "-Wl,-e,main", "-Wl,--gc-sections", "-Wl,-Map=map"]
    command = ["arm-none-eabi-gcc", *flags, "-save-temps=obj", *link, "main.c", "a.c", "b.c", "-o", "firmware.elf"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    text = (tmp_path / "map").read_text()
    for name in SOURCES:
        compiled = next(tmp_path.glob(f"*{name}.o"))
        text = text.replace(f" {compiled.name}\n", f" {compiled}\n")
    found = read_link(text)
    main = next(key for key in found.sections if key.section.startswith(".text") and "main" in key.section)
    names = {name for key in reached(found, {main}) for name in found.sections[key].names}
    assert {"main", "first", "second", "shared"} <= names
    assert not any("unused" in section.names for section in found.sections.values())
    assert [key.bytes for key in reached(found, {main}) if key.bytes] == [b"a text\0"]


@pytest.mark.parametrize(
    "line",
    [
        {"op": "ADD", "inputs": [["int8", [1, 4]]] * 2, "outputs": [["int8", [1, 4]]], "activation": 1},
        {"op": "SOFTMAX", "inputs": [["int8", [2, 5]]], "outputs": [["int8", [2, 5]]]},
        {
            "op": "CONV_2D",
            "inputs": [["int8", [1, 9, 8, 3]], ["int8", [5, 3, 2, 3]], ["int32", [5]]],
            "outputs": [["int8", [1, 4, 7, 5]]],
            "stride": 2,
            "stride_w": 1,
            "dilation_h": 1,
            "dilation_w": 1,
            "padding": 1,
            "activation": 0,
        },
        {
            "op": "MAX_POOL_2D",
            "inputs": [["int8", [1, 6, 6, 2]]],
            "outputs": [["int8", [1, 3, 3, 2]]],
            "stride": 2,
            "stride_w": 2,
            "filter_h": 2,
            "filter_w": 2,
            "padding": 0,
            "activation": 0,
        },
    ],
    ids=lambda line: str(line["op"]),
)
def test_the_model_of_an_operators_line_runs(line: dict[str, Any]) -> None:
    model = tflm.Model(model_of(line))
    interpreter = tflm.MicroInterpreter(model, tflm.AllOpsResolver(), bytearray(1 << 16))
    interpreter.allocate_tensors()
    interpreter.invoke()
    assert interpreter.output(0).dims == tuple(line["outputs"][0][1])


class Sources:
    """A substitute for a toolchain that records what it would compile."""

    def __init__(self) -> None:
        self.compiled_sources: dict[str, str] = {}

    def compiled(self, name: str, source: str) -> Path:
        self.compiled_sources[name] = source
        return Path(f"{name}.o")

    def linked(self, name: str, *objects: Path) -> Path:
        return Path(f"{name}.elf")


@pytest.mark.parametrize("moved", range(3))
def test_firmware_compiles_with_names_where_they_were_and_are(moved: int, tmp_path: Path) -> None:
    """MOVED: 0 before September 2026, 1 with the names of C in tflite::micro, 2 with all of them."""
    if (compiler := shutil.which("g++")) is None:
        pytest.skip("no g++ in $PATH")
    mangled = (
        "_ZN6tflite29Register_FULLY_CONNECTED_INT8Ev"
        if moved < 2
        else ("_ZN6tflite5micro29Register_FULLY_CONNECTED_INT8Ev")
    )
    methods = methods_of("TfLiteStatus AddRelu() {\n}\nTfLiteStatus AddFullyConnected() {\n}\n", [mangled])
    assert {method.name for method in methods} >= {"AddFullyConnected:FULLY_CONNECTED_INT8"}
    toolchain: Any = Sources()
    plain = [method for method in methods if ":" not in method.name]
    all_operators(toolchain, plain)
    assert "tflite::" not in MAIN  # of count_instructions.py, which needs more than the headers here declare
    sources = {**toolchain.compiled_sources, "main": main_source(plain)}
    for name, source in sources.items():
        (tmp_path / f"{name}.cc").write_text(INCLUDES + source)
        flags = ["-std=c++17", "-fsyntax-only", f"-DMOVED={moved}", f"-I{STAND_INS}"]
        answer = subprocess.run(
            [compiler, *flags, str(tmp_path / f"{name}.cc")], capture_output=True, text=True, timeout=60, check=False
        )
        assert answer.returncode == 0, answer.stderr
