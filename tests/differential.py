"""Compares this package with TFLM on one model."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import outcomes
from models import Arrays
from oracle import Oracle, OracleError

import tflm

UNWRITTEN = b"\xa5"
"""Each byte of an arena at first. No operator may rely on zeros."""

RESOLVER = tflm.AllOpsResolver()
SPARE_ARENAS: dict[int, list[bytearray]] = {}
"""Arenas by size whose interpreters are gone, since pages of memory that are new take long to write."""


FIRST_BYTES = 1 << 15
"""The arena that is tried first: to fill a large one takes longer than to run most models."""


@functools.cache
def unwritten(size: int) -> bytes:
    """The contents of an arena at first."""
    return UNWRITTEN * size


def run(
    model: bytes | tflm.Model, invocations: Sequence[Arrays], arena_bytes: int = 1 << 20, **options: Any
) -> list[Arrays]:
    """Outputs of successive invokes of one interpreter of this package, given the inputs of each."""
    parsed = model if isinstance(model, tflm.Model) else tflm.Model(model)
    first = min(FIRST_BYTES, arena_bytes)
    try:
        return _run_in(first, parsed, invocations, options)
    except tflm.ArenaExhausted:
        if first == arena_bytes:
            raise
        return _run_in(arena_bytes, parsed, invocations, options)


def _run_in(
    arena_bytes: int, model: tflm.Model, invocations: Sequence[Arrays], options: dict[str, Any]
) -> list[Arrays]:
    """Outputs of the invokes of an interpreter with an arena of this size."""
    spare = SPARE_ARENAS.setdefault(arena_bytes, [])
    arena = spare.pop() if spare else bytearray(arena_bytes)
    arena[:] = unwritten(arena_bytes)
    interpreter = tflm.MicroInterpreter(model, RESOLVER, arena, **options)
    interpreter.allocate_tensors()
    outputs = []
    for inputs in invocations:
        for i, values in enumerate(inputs):
            interpreter.input(i).data[...] = values
        interpreter.invoke()
        outputs.append([np.array(interpreter.output(i).data) for i in range(interpreter.outputs_size())])
    gone = weakref.ref(interpreter)
    del interpreter
    if gone() is None:
        spare.append(arena)
    return outputs


def assert_same_as_tflm(oracle: Oracle, model: bytes, invocations: Sequence[Arrays], **options: Any) -> None:
    """The same integers, floats to 1e-5, at each invoke; and what TFLM refuses or dies of is refused here.

    Args:
        options: of the interpreter.
    """
    try:
        expected = oracle.run(model, invocations)
    except OracleError as error:
        try:
            answer = run(model, invocations, **options)
        except tflm.TflmError:
            outcomes.count(ran=False)
            return
        raise AssertionError(f"TFLM refuses this ({error}), here it gives {answer}") from None
    outcomes.count(ran=True)
    for ours, theirs in zip(run(model, invocations, **options), expected, strict=True):
        assert_close(ours, theirs)


def assert_close(actual: Arrays, expected: Arrays) -> None:
    """Equal shapes and types; equal integers, floats within 1e-5 relative plus 1e-6 absolute."""
    assert len(actual) == len(expected)
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        if ours.dtype.kind == "f":
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(ours, theirs)


def measured_figures(model: bytes) -> dict[str, int]:
    """Return this package's figures of a model's arena, in the wheel's configuration."""
    measured = tflm.measure_arena(tflm.Model(model), tflm.AllOpsResolver(), target=tflm.targets.HOST_WHEEL)
    return {"total": measured.arena_used_bytes, "head": measured.head_bytes, "tail": measured.tail_bytes}


def printed_figures(text: str) -> dict[str, int]:
    """Total, head and tail in what TFLM prints."""
    return {key: int(text.split(f"allocation {key} ")[1].split()[0]) for key in ("total", "head", "tail")}
