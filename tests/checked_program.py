"""Runs a compiled model as a host program that stops at any access outside of its RAM and of its arguments."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tflm
from tflm.c.header import TensorInterface, interfaces
from tflm.c.program import FED

Array = npt.NDArray[Any]

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler, cc")

MAIN = Template("""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "$name.h"

static void take(void *bytes, size_t count)
{
    if (fread(bytes, 1, count, stdin) != count) exit(3);
}

static void put(const void *bytes, size_t count)
{
    if (fwrite(bytes, 1, count, stdout) != count) exit(3);
}

int main(void)
{
    uint8_t *ram = malloc(${guard}_RAM_BYTES);
    int32_t code;
    uint32_t count;
    memset(ram, 0xA5, ${guard}_RAM_BYTES);
    ${name}_reset(ram);
    while (fread(&count, 1, sizeof count, stdin) == sizeof count) {
        if (count == 0) {
            ${name}_reset(ram);
            continue;
        }
        $fill
        $run
        put(&code, sizeof code);
        if (code == $done) {
            $show
        }
    }
    free(ram);
    return 0;
}
""")

INVOKE = "code = ${name}_invoke(ram);"

FEED = """void *rows = malloc(count);
        take(rows, count);
        code = ${name}_feed(ram, rows);
        free(rows);"""


SANITIZERS = (
    *("-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    *("-fsanitize-undefined-trap-on-error", "-Wno-deprecated"),
    *("--param=asan-instrumentation-with-call-threshold=0", "-Wno-unused-command-line-argument"),
)
"""Flags with which undefined behaviour ends a program. Without the second line, which takes a third off the time of a
compiler, the program says what it was, and where. With the third, GCC calls a function that checks an address, which
takes another third off; clang would warn that it does not know the parameter."""

HOST = ("cc", "-std=c99", *SANITIZERS)
"""The compiler of this machine, with its flags."""


class CheckedProgram:
    """The C functions of a compiled model, with AddressSanitizer and UndefinedBehaviorSanitizer.

    Args:
        compiler: a compiler with its flags.
        emulator: what runs the program; nothing for one of this machine.
    """

    def __init__(
        self, compiled: tflm.CompiledModel, folder: Path, compiler: Sequence[str] = HOST, emulator: Sequence[str] = ()
    ):
        self._emulator = emulator
        self._path, self._interfaces = folder / "program", interfaces(compiled.program)
        self._is_fed = compiled.program.bound.feed is not None
        names = {"name": compiled.name, "guard": compiled.name.upper()}
        fill, show = (
            "\n        ".join(f"{call}({compiled.name}_{x.side}_{x.number}(ram), {x.tensor.bytes});" for x in of)
            for call, of in (("take", self._stored()), ("put", self._outputs()))
        )
        run = Template(FEED if self._is_fed else INVOKE).substitute(names)
        compiled.write(folder)
        (folder / "main.c").write_text(MAIN.substitute(names, fill=fill, show=show, run=run, done=int(self._is_fed)))
        sources = ["main.c", f"{compiled.name}.c"]
        subprocess.run([*compiler, "-o", self._path, *sources, "-lm"], cwd=folder, check=True)

    def _stored(self) -> list[TensorInterface]:
        return [each for each in self._interfaces if each.side == "input" and each.place.base is not FED]

    def _outputs(self) -> list[TensorInterface]:
        return [each for each in self._interfaces if each.side == "output"]

    def run(self, calls: Sequence[Sequence[Array] | None]) -> list[list[Array] | None]:
        """The outputs of invokes with these inputs; None resets the model.

        A fed model is given its other inputs and then rows, in each call; calls return None until the last one.
        """
        text = b"".join(
            np.uint32(0 if arrays is None else arrays[-1].nbytes if arrays else 1).tobytes()
            + b"".join(np.ascontiguousarray(array).tobytes() for array in arrays or ())
            for arrays in calls
        )
        environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
        found = subprocess.run(
            [*self._emulator, self._path], input=text, capture_output=True, env=environment, check=False
        )
        assert found.returncode == 0, found.stderr.decode()
        read, results = memoryview(found.stdout), list[list[Array] | None]()
        for _ in filter(lambda arrays: arrays is not None, calls):
            code, read = int(np.frombuffer(read[:4], np.int32)[0]), read[4:]
            assert code in ((0, 1) if self._is_fed else (0,))
            results.append([] if code == self._is_fed else None)
            for each in self._outputs() if code == self._is_fed else ():
                size = each.tensor.bytes
                array = np.frombuffer(read[:size], each.tensor.data.dtype).reshape(each.tensor.dims)
                results[-1], read = [*(results[-1] or []), array], read[size:]
        assert not read
        return results
