"""TFLM itself, in a child process: on odd models it can take its process down, and that must not be ours.

Run as a script, this file is the child: it answers requests on standard input until that ends, in a fork that has
loaded TFLM already, and in another one where that crashes.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

import numpy as np

PYTHON = os.environ.get("TFLM_ORACLE", sys.executable)
"""The interpreter that TFLM's package is installed for, where that is another one."""

INSTALLED = "TFLM_ORACLE" in os.environ or importlib.util.find_spec("tflite_micro") is not None

ARENA_BYTES = 1 << 22
"""Of the arena that models run in, unless another size is asked for."""


class OracleError(Exception):
    """TFLM refused the model, or went down with it."""


class Oracle:
    """Runs models in TFLM, one after the other."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None

    def run(
        self, model: bytes, invocations: Sequence[list[np.ndarray[Any, Any]] | None], arena_bytes: int = ARENA_BYTES
    ) -> list[list[np.ndarray[Any, Any]]]:
        """Outputs of successive invokes of one interpreter, given the inputs of each; None resets it.

        Raises:
            OracleError: TFLM can't run the model.
        """
        outputs, _ = self._ask(model, invocations, False, arena_bytes)
        return outputs

    def allocations(
        self,
        model: bytes,
        inputs: list[np.ndarray[Any, Any]] | None = None,
        arena_bytes: int = ARENA_BYTES,
        decompression_bytes: int = 0,
    ) -> str:
        """What TFLM prints of its arena for the model, after one invoke on these inputs, or on zeros.

        Args:
            decompression_bytes: size of a memory beside the arena for outputs of DECODE.

        Raises:
            OracleError: TFLM can't run the model.
        """
        _, printed = self._ask(model, None if inputs is None else [inputs], True, arena_bytes, decompression_bytes)
        return printed

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None

    def _ask(self, *request: Any) -> Any:
        if self._child is None:
            self._child = subprocess.Popen(
                [PYTHON, "-I", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        pickle.dump(request, self._child.stdin)
        self._child.stdin.flush()
        status, answer = pickle.load(self._child.stdout)
        if status != "ok":
            raise OracleError(answer)
        return answer


def _serve(requests: BinaryIO, answers: BinaryIO) -> None:
    from tflite_micro.python.tflite_micro import runtime

    while child := os.fork():
        _, status = os.waitpid(child, 0)
        if not status:
            return
        pickle.dump(("error", "TFLM took its process down"), answers)
        answers.flush()
    while True:
        try:
            request = pickle.load(requests)
        except EOFError:
            return
        try:
            answer: tuple[str, Any] = "ok", _run(runtime, *request)
        except Exception as error:
            answer = "error", f"{type(error).__name__}: {error}"
        pickle.dump(answer, answers)
        answers.flush()


def _run(
    runtime: Any,
    model: bytes,
    invocations: list[list[Any] | None] | None,
    prints: bool,
    arena_bytes: int,
    decompression_bytes: int = 0,
) -> Any:
    beside = {"alt_decompression_memory_size": decompression_bytes} if decompression_bytes else {}
    interpreter = runtime.Interpreter.from_bytes(model, arena_size=arena_bytes, **beside)
    if invocations is None:
        details = [interpreter.get_input_details(i) for i in range(_count(interpreter.get_input_details))]
        invocations = [[np.zeros(of["shape"], of["dtype"]) for of in details]]
    outputs = []
    for inputs in invocations:
        if inputs is None:
            interpreter.reset()
            continue
        for i, values in enumerate(inputs):
            interpreter.set_input(values, i)
        interpreter.invoke()
        outputs.append([np.array(interpreter.get_output(i)) for i in range(_count(interpreter.get_output_details))])
    return outputs, _captured(interpreter.print_allocations) if prints else ""


def _count(details: Callable[[int], Any]) -> int:
    """How many inputs or outputs there are to have details of."""
    count = 0
    while True:
        try:
            details(count)
        except IndexError:
            return count
        count += 1


def _captured(call: Any) -> str:
    """Return the output of `call` to standard error, including that of C code."""
    read, write = os.pipe()
    saved = os.dup(2)
    os.dup2(write, 2)
    try:
        call()
    finally:
        os.dup2(saved, 2)
        os.close(write)
        os.close(saved)
    with os.fdopen(read) as pipe:
        return pipe.read()


if __name__ == "__main__":
    _serve(sys.stdin.buffer, os.fdopen(os.dup(1), "wb"))
