"""Run compiled models on a Cortex-M4 in QEMU: the stack that an invoke touches, and the instructions of each call.

Needs arm-none-eabi-gcc with newlib, qemu-system-arm with plugins, and cc.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tflm.c import source
from tflm.c.compile import CompiledModel
from tflm.c.constants import short_lines
from tflm.c.emitter import FUNCTION, kernels_of
from tflm.c.header import interfaces

HERE = Path(__file__).parent
FLAGS = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16", "-std=gnu99", "-w", "-DNDEBUG")
MACHINE = "mps2-an386"
SECONDS = 600
"""The longest run."""

LAYOUT = """MEMORY { FLASH : ORIGIN = 0, LENGTH = 4M  RAM : ORIGIN = 0x20000000, LENGTH = 4M }
ENTRY(reset)
SECTIONS {
  .text : { KEEP(*(.vectors)) *(.text*) *(.rodata*) . = ALIGN(4); } > FLASH
  .ARM.extab : { *(.ARM.extab*) } > FLASH
  .ARM.exidx : { __exidx_start = .; *(.ARM.exidx*) __exidx_end = .; } > FLASH
  data_load = LOADADDR(.data);
  .data : { data_start = .; *(.data*) . = ALIGN(4); data_end = .; } > RAM AT > FLASH
  .bss (NOLOAD) : { bss_start = .; *(.bss*) *(COMMON) . = ALIGN(8); bss_end = .; end = .; } > RAM
  stack_low = ORIGIN(RAM) + 0x3E0000; stack_end = ORIGIN(RAM) + 0x400000;
}
"""

MAIN = """#include <stdint.h>
#include <string.h>
{headers}
enum {{ PAINT = 0xA5, WRITE = 0x04, EXIT = 0x18, DONE = 0x20026 }};
extern uint8_t stack_low[], stack_end[], data_start[], data_end[], data_load[], bss_start[], bss_end[];
static void host(uintptr_t operation, uintptr_t argument) {{
  register uintptr_t r0 asm("r0") = operation;
  register uintptr_t r1 asm("r1") = argument;
  asm volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
}}
static void print(uint32_t value) {{
  char text[12], *at = text + sizeof text - 1;
  *at = 0;
  *--at = '\\n';
  do *--at = '0' + value % 10;
  while (value /= 10);
  host(WRITE, (uintptr_t)at);
}}
__attribute__((noinline)) void counting_begins(void) {{ asm volatile(""); }}
__attribute__((noinline)) void counting_ends(void) {{ asm volatile(""); }}
static void fill(void *input, int bytes, int size, int real) {{
  int i;
  for (i = 0; i < bytes / size; ++i) {{
    if (real) ((float *)input)[i] = 0.01f * (i * 37 % 256 - 128);
    else if (size == 1) ((uint8_t *)input)[i] = 7 * i;
    else if (size == 2) ((int16_t *)input)[i] = 997 * i;
    else memset((uint8_t *)input + i * size, 0, size), ((uint8_t *)input)[i * size] = i % 2;
  }}
}}
static volatile uint32_t touched[{count}], status[{count}];
{runs}
void reset(void) {{
  int i;
  *(volatile uint32_t *)0xE000ED88 |= 0xF << 20;
  memcpy(data_start, data_load, data_end - data_start);
  memset(bss_start, 0, bss_end - bss_start);
{calls}
  for (i = 0; i < {count}; ++i) print(touched[i]), print(status[i]);
  host(EXIT, DONE);
}}
static void halt(void) {{ host(EXIT, 0x20023); }}
__attribute__((section(".vectors"), used)) void *const vectors[16] = {{stack_end, reset, [2 ... 15] = halt}};
"""

RUN = """static union {{ int64_t alignment; uint8_t bytes[{guard}_RAM_BYTES]; }} ram_{name};
__attribute__((noinline)) static void run_{name}(void) {{
  uint8_t *here;
  volatile uint8_t *at; /* no call of memset, which would use the stack that it fills */
  {name}_reset(ram_{name}.bytes);
{fills}
  asm volatile("mov %0, sp" : "=r"(here));
  for (at = stack_low; at < here; ++at) *at = PAINT;
  counting_begins();
  counting_ends();
  {begin}status[{number}] = {name}_invoke(ram_{name}.bytes);{end}
  for (at = stack_low; *at == PAINT; ++at) {{}}
  touched[{number}] = here - at;
}}
"""


class Ran(NamedTuple):
    """An invoke under emulation.

    Attributes:
        stack_bytes: that it touched.
        status: what it returned.
    """

    stack_bytes: int
    status: int


class Emulator:
    """Builds models with an optimization, and runs them.

    Args:
        folder: an existing folder for files.
        optimization: "-O2" or "-Os".
    """

    def __init__(self, folder: Path, optimization: str):
        self._folder, self._optimization = folder, optimization
        self._plugin = folder / "counts.so"
        counter = [str(HERE / "instruction_counts.c"), f"-I{HERE / 'qemu'}", "-o", str(self._plugin)]
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", *counter], check=True)
        (folder / "layout.ld").write_text(LAYOUT)

    def stacks(self, models: Sequence[CompiledModel]) -> list[Ran]:
        """One invoke of each model."""
        return self._ran(self._image(models, counted_calls=False))

    def invokes(self, models: Sequence[CompiledModel]) -> list[int]:
        """Instructions of an invoke of each model; 0 for one that fails."""
        return [sum(counts) for counts in self._counts(self._image(models, counted_calls=False))]

    def calls(self, models: Sequence[CompiledModel]) -> list[list[int]]:
        """Instructions of each call of a kernel that each model makes, in their order; without one that fails."""
        return self._counts(self._image(models, counted_calls=True))

    def _image(self, models: Sequence[CompiledModel], counted_calls: bool) -> Path:
        """Build a firmware that runs every model once."""
        marks = ("", "") if counted_calls else ("counting_begins(); ", " counting_ends();")
        main = MAIN.format(
            headers="\n".join(f'#include "{model.name}.h"' for model in models),
            count=len(models),
            runs="\n".join(_run_of(model, number, marks) for number, model in enumerate(models)),
            calls="\n".join(f"  run_{model.name}();" for model in models),
        )
        (self._folder / "main.c").write_text(main)
        for model in models:
            model.write(self._folder)
            if counted_calls:
                text = model.files[f"{model.name}.c"]
                (self._folder / f"{model.name}.c").write_text(with_counted_calls(model, text))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(self._compiled, ["main", *(model.name for model in models)]))
        image = self._folder / "firmware.elf"
        link = ["-nostartfiles", "-T", "layout.ld", "--specs=nosys.specs", *objects, "-lm", "-o", image.name]
        subprocess.run(["arm-none-eabi-gcc", *FLAGS, *link], cwd=self._folder, check=True, capture_output=True)
        return image

    def _compiled(self, name: str) -> str:
        command = ["arm-none-eabi-gcc", *FLAGS, self._optimization, "-c", f"{name}.c", "-o", f"{name}.o"]
        subprocess.run(command, cwd=self._folder, check=True)
        return f"{name}.o"

    def _ran(self, image: Path, *options: str) -> list[Ran]:
        command = ["qemu-system-arm", "-M", MACHINE, "-nographic", "-semihosting-config", "enable=on,target=native"]
        command += ["-kernel", str(image), *options]
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=SECONDS
        )
        printed = [int(line) for line in (done.stdout + done.stderr).split()]
        return [Ran(*pair) for pair in zip(printed[::2], printed[1::2])]

    def _counts(self, image: Path) -> list[list[int]]:
        """What was counted between marks, of each model; each begins with marks that have nothing between them."""
        symbols = subprocess.run(["arm-none-eabi-nm", image], check=True, capture_output=True, text=True).stdout
        addresses = {line.split()[-1]: int(line.split()[0], 16) for line in symbols.splitlines()}
        log = self._folder / "counts.txt"
        marks = f"begin={addresses['counting_begins']},end={addresses['counting_ends']}"
        ran = self._ran(image, "-plugin", f"{self._plugin},{marks}", "-d", "plugin", "-D", str(log))
        counts = [int(line.split()[0]) for line in log.read_text().splitlines()]
        found: list[list[int]] = []
        for count in counts:
            if count == counts[0]:
                found.append([])
            else:
                found[-1].append(count)
        return [each[:-1] if status else each for each, (_, status) in zip(found, ran)]


def with_counted_calls(model: CompiledModel, text: str) -> str:
    """The C file of a model with marks around each call of a kernel."""
    kernels = kernels_of(model.program)
    code = source.structures(kernels) + source.translate(kernels)
    definitions = short_lines(FUNCTION.sub(f"{model.name.upper()}_CODE ", code))
    begin = text.index(definitions)
    after = begin + len(definitions)
    marks = "extern void counting_begins(void), counting_ends(void);\n"
    for kernel in kernels:
        name = source.name_of(kernel)
        if source.failure_of(kernel) is None:
            marks += f"#define {name}(...) (counting_begins(), {name}(__VA_ARGS__), counting_ends())\n"
        else:
            call = f"int status_ = {name}(__VA_ARGS__); counting_ends(); status_;"
            marks += f"#define {name}(...) ({{ counting_begins(); {call} }})\n"
    return text[:after] + marks + text[after:]


def _run_of(model: CompiledModel, number: int, marks: tuple[str, str]) -> str:
    guard = model.name.upper()
    inputs = [each for each in interfaces(model.program) if each.side == "input" and each.tensor.bytes]
    fills = (
        f"  fill({model.name}_input_{each.number}(ram_{model.name}.bytes), {each.tensor.bytes}, "
        f"{each.tensor.data.itemsize}, {int(each.element == 'float')});"
        for each in inputs
    )
    return RUN.format(name=model.name, guard=guard, number=number, fills="\n".join(fills), begin=marks[0], end=marks[1])


def is_straight(model: CompiledModel) -> bool:
    """Whether the calls of a model run in their order, each once."""
    return not re.search(r"run_subgraph_\d+\(", model.files[f"{model.name}.c"])
