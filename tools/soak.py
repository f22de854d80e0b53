"""Run a model for a long time, and create many interpreters of it: the process must not grow.

    python tools/soak.py [--invokes N] [--cycles N] [MODEL]

First, one interpreter is invoked N times; a model with state continues like a stream. A reset must then reproduce the
first answers. Then N interpreters are created from the bytes of the file, allocated, invoked and dropped, each with its
own arena. Resident memory is measured twice in each part: after the first tenth, when everything is loaded and pools
are full, and at the end. Linux only. Ends with status 1 on growth.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import tflm

ARENA_BYTES = 1 << 20
ALLOWED_GROWTH = 256 * 1024
"""Allowed growth in bytes, because the C library returns pages at arbitrary times."""
DEFAULT_MODEL = (
    Path(os.environ.get("TFLM_CORPUS", Path(__file__).parents[2] / "shared")) / "models" / "okay_nabu_v2.tflite"
)


def resident_bytes() -> int:
    """Resident memory of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def new_interpreter(data: bytes) -> tflm.MicroInterpreter:
    """An interpreter of the model that is ready to run."""
    interpreter = tflm.MicroInterpreter(tflm.Model(data), tflm.AllOpsResolver(), bytearray(ARENA_BYTES))
    interpreter.allocate_tensors()
    return interpreter


def stream(interpreter: tflm.MicroInterpreter) -> Iterator[None]:
    """Invoke again and again, on a few inputs in turn."""
    rng = np.random.default_rng(0)
    inputs = [interpreter.input(i) for i in range(interpreter.inputs_size())]
    views = [(tensor.data, [_random(tensor, rng) for _ in range(16)]) for tensor in inputs]
    while True:
        for step in range(16):
            for view, values in views:
                view[...] = values[step]
            interpreter.invoke()
            yield


def _random(tensor: tflm.TfLiteTensor, rng: np.random.Generator) -> np.ndarray:
    dtype = tensor.data.dtype
    if dtype.kind == "f":
        return rng.uniform(-1, 1, tensor.dims).astype(dtype)
    return np.frombuffer(rng.bytes(tensor.bytes), dtype).reshape(tensor.dims)


def answers(interpreter: tflm.MicroInterpreter) -> list[bytes]:
    """The outputs of the first invokes after a reset."""
    interpreter.reset()
    found = []
    for _, _ in zip(range(16), stream(interpreter)):
        found += [interpreter.output(i).data.tobytes() for i in range(interpreter.outputs_size())]
    return found


def growth_over(step: Callable[[], object], count: int) -> tuple[int, int, float]:
    """Resident bytes after the last of `count` steps, by how much they grew since the first tenth, and seconds."""
    start = time.perf_counter()
    before = 0
    for i in range(count):
        step()
        if i == count // 10:
            before = resident_bytes()
    after = resident_bytes()
    return after, after - before, time.perf_counter() - start


def main() -> None:
    """Run both parts, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path, default=DEFAULT_MODEL, metavar="MODEL")
    parser.add_argument("--invokes", type=int, default=100_000)
    parser.add_argument("--cycles", type=int, default=1000)
    options = parser.parse_args()
    data = options.model.read_bytes()
    interpreter = new_interpreter(data)
    first = answers(interpreter)
    steps = stream(interpreter)
    failed = False

    def cycle() -> None:
        next(stream(new_interpreter(data)))

    for what, step, count in (
        ("invokes", lambda: next(steps), options.invokes),
        ("create, allocate, invoke, drop", cycle, options.cycles),
    ):
        resident, growth, seconds = growth_over(step, count)
        failed |= growth > ALLOWED_GROWTH
        print(f"{count} x {what}: {resident >> 10} KiB resident, grown by {growth >> 10} KiB, {seconds:.0f} s")
    if answers(interpreter) != first:
        failed = True
        print("after a reset, the first answers do not come back")
    sys.exit(failed)


if __name__ == "__main__":
    main()
