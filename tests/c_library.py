"""Kernels as a shared library of C: steps run on their own arrays, as in a compiled model."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from test_c_source import HEADERS, adapter, compiler

from tflm.c.source import name_of, structures, translate
from tflm.compiler.language import DONE, Step

MAIN = """\
typedef union {{ int64_t integer; double number; void *pointer; }} argument;

{adapters}
int64_t run(int64_t kernel, const argument *arguments)
{{
    static int64_t (*const kernels[])(const argument *) = {{{names}}};
    return kernels[kernel](arguments);
}}
"""


def in_c(steps: Iterable[Step]) -> Callable[[Step], None]:
    """Return a function that runs one of these steps; all their kernels are compiled together.

    Raises:
        AssertionError: a kernel fails.
    """
    kernels = list(dict.fromkeys(step.kernel for step in steps))
    if not kernels:
        return lambda step: None
    adapters, names = "\n".join(map(adapter, kernels)), ", ".join(f"call_{name_of(kernel)}" for kernel in kernels)
    source = HEADERS + structures(kernels) + translate(kernels) + MAIN.format(adapters=adapters, names=names)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernels.c").write_text(source)
        command = [compiler(), "-std=c99", "-O0", "-w", "-shared", "-fPIC", "kernels.c", "-o", "kernels.so", "-lm"]
        subprocess.run(command, cwd=folder, check=True)
        call = ctypes.CDLL(str(Path(folder) / "kernels.so")).run
    call.restype, call.argtypes = ctypes.c_int64, [ctypes.c_int64, ctypes.c_void_p]
    places = {kernel: place for place, kernel in enumerate(kernels)}

    def run(step: Step) -> None:
        arguments = np.array(step.arguments, np.int64)
        assert call(places[step.kernel], arguments.ctypes.data) == DONE, step.kernel.name

    return run
