"""Compare many windows of a streaming model: TFLM, this package with and without the engine, and C.

    python tools/stream_windows.py wake_word.tflite --hop 1 --windows 10000 --sounds 1000

The original model computes every window; the streaming form takes the new frames only. Frames are random, then such as
sound has: features that rise and fall slowly, with noise. C runs on this machine with sanitizers, and on an emulated
Cortex-M4 if arm-none-eabi-gcc and qemu-system-arm are there. The exit status is 1 if an answer differs.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import tflm

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from checked_program import CheckedProgram  # type: ignore[import-not-found, unused-ignore]
from oracle import Oracle  # type: ignore[import-not-found, unused-ignore]

Array = npt.NDArray[Any]
Ways = dict[str, Callable[[Sequence[Array]], Array]]

CORTEX_M4 = ("arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16", "-std=gnu99")
LINKED = ("-O2", "--specs=rdimon.specs", "-T", "layout.ld", "board.c")
RUN = (
    'cd "$(dirname "$0")" && cat > in && qemu-system-arm -M mps2-an386 -nographic '
    '-semihosting-config enable=on,target=native -kernel "$0" < /dev/null && cat out'
)
BOARD = """#include <stdint.h>
#include <stdio.h>
extern void _start(void);
extern uint8_t stack_end[];
static void reset(void)
{
    *(volatile uint32_t *)0xE000ED88 |= 0xF << 20; /* the floating-point unit */
    _start();
}
__attribute__((section(".vectors"), used)) void *const vectors[2] = {stack_end, reset};
__attribute__((constructor)) static void open_files(void)
{
    freopen("in", "rb", stdin);
    freopen("out", "wb", stdout);
}
"""
LAYOUT = """ENTRY(_start)
SECTIONS {
  . = 0;
  .text : {
    KEEP(*(.vectors)) *(.text*) KEEP(*(.init)) KEEP(*(.fini)) *(.rodata*) . = ALIGN(4);
    __preinit_array_start = .; __preinit_array_end = .;
    __init_array_start = .; KEEP(*(.init_array*)) __init_array_end = .;
    __fini_array_start = .; KEEP(*(.fini_array*)) __fini_array_end = .;
  }
  .ARM.exidx : { __exidx_start = .; *(.ARM.exidx*) __exidx_end = .; }
  . = 0x20000000;
  .data : { *(.data*) }
  .bss : { __bss_start__ = .; *(.bss*) *(COMMON) __bss_end__ = .; . = ALIGN(8); end = .; __end__ = .; }
  stack_end = 0x20400000;
}
"""


def like_sound(first: Array, count: int, rng: np.random.Generator) -> Array:
    """Successive inputs of this shape and type, of features that rise and fall slowly."""
    times = np.arange(count)[:, None]
    waves = [np.sin(times * rng.uniform(0.01, 0.6, first.size) + rng.uniform(0, 6, first.size)) for _ in range(3)]
    loud = np.clip(sum(waves) / 3 + 0.1 * rng.standard_normal((count, first.size)), -1, 1)
    if first.dtype.kind != "f":
        limits = np.iinfo(first.dtype)
        loud = np.rint((loud + 1) / 2 * (int(limits.max) - limits.min) + limits.min)
    return loud.astype(first.dtype).reshape(count, *first.shape)


def at_random(first: Array, count: int, rng: np.random.Generator) -> Array:
    """Successive inputs of this shape and type."""
    if first.dtype.kind == "f":
        return rng.standard_normal((count, *first.shape)).astype(first.dtype)
    limits = np.iinfo(first.dtype)
    return rng.integers(limits.min, limits.max, (count, *first.shape), first.dtype, endpoint=True)


def answers(model: tflm.Model, inputs: Iterator[Array], **settings: Any) -> Array:
    """The outputs of one interpreter for successive inputs."""
    interpreter = _ready(model, **settings)
    found = []
    for values in inputs:
        interpreter.input(0).data[...] = values
        interpreter.invoke()
        found.append(np.array(interpreter.output(0).data, None))
    return np.array(found, None)


def _ready(model: tflm.Model, **settings: Any) -> tflm.MicroInterpreter:
    interpreter = tflm.MicroInterpreter(model, tflm.AllOpsResolver(), bytearray(1 << 22), **settings)
    interpreter.allocate_tensors()
    return interpreter


def windows(first: Array, frames: Sequence[Array], axis: int) -> Iterator[Array]:
    """The windows that end with each group of frames."""
    window = first
    for new in frames:
        window = np.concatenate([window, new], axis).take(range(-first.shape[axis], 0), axis)
        yield window


def ways_of(streamed: tflm.StreamedModel, folder: Path) -> Ways:
    """Everything that runs the streaming form."""
    model, oracle = streamed.model, Oracle()
    compiled = tflm.compile_model(model, "net")

    def in_c(name: str, *how: Sequence[str]) -> Callable[[Sequence[Array]], Array]:
        (folder / name).mkdir()
        (folder / name / "board.c").write_text(BOARD)
        (folder / name / "layout.ld").write_text(LAYOUT)
        program = CheckedProgram(compiled, folder / name, *how)
        return lambda frames: np.array([outputs[0] for outputs in program.run([[new] for new in frames]) if outputs])

    ways: Ways = {
        "TFLM": lambda frames: np.array([found[0] for found in oracle.run(streamed.data, [[new] for new in frames])]),
        "with the engine": lambda frames: answers(model, iter(frames)),
        "without the engine": lambda frames: answers(model, iter(frames), delegates=()),
        "C with sanitizers": in_c("host"),
    }
    if shutil.which(CORTEX_M4[0]) and shutil.which("qemu-system-arm"):
        ways["C on Cortex-M4, emulated"] = in_c("m4", (*CORTEX_M4, *LINKED), ("sh", "-c", RUN))
    return ways


def main() -> int:
    """Compare, and print how many answers differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--hop", type=int, default=1)
    parser.add_argument("--windows", type=int, default=10_000)
    parser.add_argument("--sounds", type=int, default=1_000)
    options = parser.parse_args()
    model = tflm.Model.from_file(options.model)
    streamed = tflm.stream(model, hop=options.hop)
    tensor, new = (np.array(_ready(each).input(0).data, None) for each in (model, streamed.model))
    first = np.full_like(tensor, _ready(model).input(0).zero_point)
    rng, is_wrong = np.random.default_rng(0), False
    with tempfile.TemporaryDirectory() as folder:
        ways = ways_of(streamed, Path(folder))
        for kind, count, make in (("random", options.windows, at_random), ("sound", options.sounds, like_sound)):
            frames = make(new, count, rng)
            expected = answers(model, windows(first, list(frames), streamed.axis))
            print(
                f"{kind}: {count:,} windows, {len(np.unique(expected.reshape(count, -1), axis=0)):,} different answers"
            )
            for name, run in ways.items():
                close = np.isclose(run(list(frames)), expected, 1e-5, 1e-5 * (expected.dtype.kind == "f"))
                differ = count - int(close.reshape(count, -1).all(1).sum())
                print(f"  {name}: {differ:,} answers differ", flush=True)
                is_wrong |= differ > 0
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main())
