"""Linked sizes from a map and an ELF file of the same firmware, and the verdict on a board."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from example_models import INT8_MODEL
from test_cli import run

from tflm.errors import FirmwareError
from tflm.firmware.linked import ARENA, MODEL, REST, TFLM, read_linked

SOURCE = """
const unsigned char net_model_data[{model}] = {{1}};
unsigned char tensor_arena[{arena}];
int initialized[5] = {{7}};
int arm_nn_kernel(int x) {{ return x * initialized[x]; }}
void start(void) {{ tensor_arena[0] = net_model_data[arm_nn_kernel(tensor_arena[1])]; }}
"""

SCRIPT = """
MEMORY { FLASH (rx) : ORIGIN = 0x08000000, LENGTH = 1M
         RAM (rwx) : ORIGIN = 0x20000000, LENGTH = 128K }
ENTRY(start)
SECTIONS {
  .text : { *(.text*) *(.rodata*) . = ALIGN(4); } > FLASH
  .data : { *(.data*) } > RAM AT > FLASH
  .bss (NOLOAD) : { *(.bss*) } > RAM
  .heap (NOLOAD) : { . += 4096; } > RAM
}
"""


@pytest.fixture
def firmware(tmp_path: Path) -> Path:
    """The folder of a linked firmware."""
    if shutil.which("arm-none-eabi-gcc") is None:
        pytest.skip("needs arm-none-eabi-gcc")
    (tmp_path / "main.c").write_text(SOURCE.format(model=1_000, arena=1_168))
    (tmp_path / "memory.ld").write_text(SCRIPT)
    options = "-mcpu=cortex-m4 -mthumb -O1 -g -ffunction-sections -fdata-sections -nostdlib -Tmemory.ld -Wl,-Map=m.map"
    command = ["arm-none-eabi-gcc", *options.split(), "main.c", "-o", "m.elf"]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path, timeout=60)
    return tmp_path


@pytest.mark.parametrize("file", ["m.map", "m.elf"])
def test_sizes_are_those_of_the_linker(firmware: Path, file: str) -> None:
    found = read_linked(firmware / file)
    sizes = subprocess.check_output(["arm-none-eabi-size", "m.elf"], text=True, cwd=firmware).splitlines()[1].split()
    text, data = int(sizes[0]), int(sizes[1])
    assert found.flash_bytes == text + data
    assert found.flash[MODEL] == 1_000
    assert found.ram == {MODEL: 0, TFLM: 0, ARENA: 1_168, REST: data}  # the heap is not static data
    assert 0 < found.flash[TFLM] < text - 1_000


@pytest.mark.parametrize(
    ("board", "bytes", "status"),
    [
        ("STM32F405", 1 << 10, 0),
        ("STM32F405", 2 << 20, 1),
        ("uno-r4-minima", 250_000, 3),
        ("uno-r4-minima", 1 << 10, 0),
    ],
)
def test_the_verdict_is_on_what_was_linked(firmware: Path, board: str, bytes: int, status: int) -> None:
    """With code that fills the flash, a model that is predicted to fit does not; a boot loader may take the last KB."""
    text = (firmware / "m.map").read_text()
    size = next(line.split()[2] for line in text.splitlines() if line.startswith(".text "))
    (firmware / "m.map").write_text(text.replace(size, hex(bytes), 1))
    answer = run("flash", INT8_MODEL, "--board", board, "--map", firmware / "m.map")
    assert answer.returncode == status
    beginnings = {0: "fits: ", 1: "does not fit: ", 3: "not known whether it fits: "}
    assert answer.stdout.startswith(beginnings[status])
    figures = json.loads(run("flash", INT8_MODEL, "--board", board, "--map", firmware / "m.map", "--json").stdout)
    assert answer.stdout.startswith(figures["verdict"]["line"])
    linked = read_linked(firmware / "m.map")
    assert sum(part["flash_bytes"] or 0 for part in figures["parts"]) == linked.flash_bytes
    assert sum(part["ram_bytes"] or 0 for part in figures["parts"]) == linked.ram_bytes


def test_an_arena_that_is_too_small_is_told(firmware: Path) -> None:
    """On a part whose memories can hold the arena in two pieces, as a note; on others it is the verdict."""
    (firmware / "m.map").write_text((firmware / "m.map").read_text().replace(hex(1_168), hex(1_152)))
    answer = run("flash", INT8_MODEL, "--board", "STM32F405", "--map", firmware / "m.map")
    assert "the arena of the firmware lacks 16 bytes" in " ".join(answer.stdout.split())
    answer = run("flash", INT8_MODEL, "--board", "STM32F401", "--map", firmware / "m.map")
    assert answer.returncode == 1
    assert answer.stdout.startswith(
        "does not fit: it cannot run there: the model: AllocateTensors() fails: the arena of"
    )


@pytest.mark.parametrize(
    "content", [b"", b"not a map", b"\x7fELF", b"\x7fELF\1\1" + bytes(60), b"\x7fELF\2\1" + b"\xff" * 99]
)
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.elf").write_bytes(content)
    with pytest.raises(FirmwareError):
        read_linked(tmp_path / "m.elf")


@pytest.mark.parametrize(
    ("options", "message"), [((), "name it with --board"), (("--board", "pico", "--build", "x"), "leave out --build")]
)
def test_options_that_have_no_meaning_are_refused(options: tuple[str, ...], message: str, tmp_path: Path) -> None:
    (tmp_path / "m.map").write_text("")
    answer = run("flash", INT8_MODEL, "--map", tmp_path / "m.map", *options)
    assert answer.returncode == 2
    assert message in " ".join(answer.stderr.split())


@pytest.mark.parametrize(
    ("symbol", "file", "part"),
    [
        (".text._ZN3Foo3RunEv", "/b/libtflm.a(conv.o)", TFLM),
        (".text._ZN3Foo3RunEv", "/b/tensorflow/lite/tflite/conv.o", TFLM),
        (".text._ZN3Foo3RunEv", "/b/app/CMakeFiles/my_tflite_app.dir/main.o", REST),
        (".text._ZN3Foo3RunEv", "/b/my_tflite_app/libother.a(main.o)", REST),
        (".text._ZN3Foo3RunEv", "/b/main.o", REST),
        (".text.arm_convolve_s8", "/b/main.o", TFLM),
        (".text._ZN6tflite3RunEv", "", TFLM),
        (".rodata.net_model_data", "/b/libtflm.a(net.o)", MODEL),
        (".rodata.tensor_arena", "/b/main.o", ARENA),
        (".text.gram_1", "/b/main.o", REST),
    ],
)
def test_pieces_of_a_map_belong_to_their_symbols_or_else_to_their_files(
    symbol: str, file: str, part: str, tmp_path: Path
) -> None:
    """With all of them in the flash, and 16 bytes of alignment that belong to nothing."""
    text = (
        "Memory Configuration\n\nName Origin Length Attributes\n"
        "FLASH            0x08000000         0x00100000         xr\n"
        "RAM              0x20000000         0x00020000         xrw\n"
        "\nLinker script and memory map\n\n"
        f".text           0x08000000       0x50\n {symbol}\n                0x08000000       0x40 {file}\n"
    )
    (tmp_path / "m.map").write_text(text)
    found = read_linked(tmp_path / "m.map")
    assert {name: size for name, size in found.flash.items() if size} == (
        {REST: 80} if part == REST else {part: 64, REST: 16}
    )
    assert found.flash_bytes == 80
    assert found.ram_bytes == 0


@pytest.mark.parametrize(
    ("section", "address", "load", "in_flash", "in_ram"),
    [
        (".text", 0x08000000, None, True, False),
        (".data", 0x20000000, 0x08001000, True, True),
        (".data", 0x2001FFF0, None, False, True),
        (".bss", 0x20000000, None, False, True),
        (".bss", 0x20000000, 0x08001000, False, True),
        (".dram0.noinit", 0x20000000, 0x08001000, False, True),
        (".external", 0x20020000, None, True, False),
        (".external", 0x1FFFFFF0, 0x08001000, True, False),
        (".heap", 0x20000000, None, False, False),
        (".debug_info", 0, None, False, False),
    ],
)
def test_a_section_of_a_map_takes_the_memory_of_its_address_and_flash_if_it_is_loaded(
    section: str, address: int, load: int | None, in_flash: bool, in_ram: bool, tmp_path: Path
) -> None:
    text = (
        "Memory Configuration\n\nName Origin Length Attributes\n"
        "FLASH            0x08000000         0x00100000         xr\n"
        "RAM              0x20000000         0x00020000         xrw\n"
        "*default*        0x00000000         0xffffffff\n"
        "\nLinker script and memory map\n\n.text           0x08000000        0x8\n"
        f"{section} {address:#x} 0x10{'' if load is None else f' load address {load:#x}'}\n"
        f" .part.tensor_arena {address:#x} 0xc main.o\n"
    )
    (tmp_path / "m.map").write_text(text)
    found = read_linked(tmp_path / "m.map")
    assert (found.flash[ARENA], found.flash[REST]) == ((12, 12) if in_flash else (0, 8))
    assert (found.ram[ARENA], found.ram[REST]) == ((12, 4) if in_ram else (0, 0))
