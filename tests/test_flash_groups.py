"""The tool that makes the data of flash: what it reads of maps, archives and disassemblies."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("elftools", reason="needs pyelftools")
sys.path.append(str(Path(__file__).parent.parent / "tools"))

from linked_sections import Key, members_of, read_map
from stack_bounds import Depths, functions_of

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
