"""A compiled model as a shared library of this machine, in RAM between guards."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import tflm

Array = npt.NDArray[Any]

GUARD = 0xA5
GUARD_BYTES = 64


class SharedProgram:
    """The C functions of a compiled model."""

    def __init__(self, compiled: tflm.CompiledModel, folder: Path):
        compiled.write(folder)
        library = folder / "program.so"
        flags = ["-std=c99", "-O1", "-shared", "-fPIC", "-fsanitize=undefined", "-fno-sanitize-recover=all"]
        subprocess.run(["cc", *flags, "-o", library, f"{compiled.name}.c", "-lm"], cwd=folder, check=True)
        self._library, self._name = ctypes.CDLL(str(library)), compiled.name
        self._block = np.full(compiled.ram_bytes + 2 * GUARD_BYTES, GUARD, np.uint8)
        self._block[GUARD_BYTES:-GUARD_BYTES] = np.random.default_rng(0).integers(0, 256, compiled.ram_bytes)
        self._ram = ctypes.c_void_p(self._block.ctypes.data + GUARD_BYTES)
        layout = compiled.program.bound.layout
        self._inputs, self._outputs = (
            [self._view(side, number, tensor) for number, tensor in enumerate(tensors)]
            for side, tensors in (("input", layout.inputs), ("output", layout.outputs))
        )
        self.call("reset")

    def _view(self, side: str, number: int, tensor: Any) -> Array | None:
        function = getattr(self._library, f"{self._name}_{side}_{number}", None)
        if function is None:
            return None
        function.restype = ctypes.c_void_p
        offset = function(self._ram) - self._block.ctypes.data
        return self._block[offset : offset + tensor.bytes].view(tensor.data.dtype).reshape(tensor.dims)

    def call(self, name: str, *arguments: Any) -> int:
        """Call a function with the RAM."""
        code: int = getattr(self._library, f"{self._name}_{name}")(self._ram, *arguments)
        assert (self._block[:GUARD_BYTES] == GUARD).all()
        assert (self._block[-GUARD_BYTES:] == GUARD).all()
        return code

    def set(self, inputs: Sequence[Array]) -> None:
        """Fill the inputs that are in RAM."""
        for view, values in zip(self._inputs, inputs):
            if view is not None:
                view[...] = values

    def outputs(self) -> list[Array]:
        """Copies of the outputs."""
        return [view.copy() for view in self._outputs if view is not None]

    def invoke(self, *inputs: Array) -> list[Array]:
        """The outputs for these inputs."""
        self.set(inputs)
        assert self.call("invoke") == 0
        return self.outputs()
