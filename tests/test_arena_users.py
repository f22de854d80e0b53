"""Interpreters in the same memory: a warning, unless they share an allocator or the first is gone."""

from __future__ import annotations

import gc
import warnings
from typing import Any

import numpy as np
import pytest
from models import INT8, counter

import tflm

MODEL = tflm.Model(counter(INT8, 4, with_init=False))
BYTES = 4096


def allocated(arena: Any) -> tflm.MicroInterpreter:
    """An interpreter in that memory."""
    interpreter = tflm.MicroInterpreter(MODEL, tflm.AllOpsResolver(), arena)
    interpreter.allocate_tensors()
    return interpreter


def views_that_overlap() -> list[tuple[Any, Any]]:
    """Pairs of buffers with bytes in common."""
    whole = bytearray(2 * BYTES)
    view = memoryview(whole)
    return [(whole, whole), (whole, view[:BYTES]), (view[: BYTES + 16], np.frombuffer(view[BYTES:], np.uint8))]


@pytest.mark.parametrize(("one", "other"), views_that_overlap())
def test_a_second_interpreter_in_the_same_bytes_is_warned_of(one: Any, other: Any) -> None:
    first = allocated(one)
    with pytest.warns(tflm.ArenaShared, match=r"pass one allocator, tflm\.MicroAllocator\(arena\)") as found:
        allocated(other)
    assert [warning.filename for warning in found] == [__file__]
    first.invoke()


def test_an_allocator_and_an_interpreter_beside_it_are_warned_of() -> None:
    arena = bytearray(2 * BYTES)
    first = allocated(tflm.MicroAllocator(arena))
    with pytest.warns(tflm.ArenaShared):
        allocated(arena)
    first.invoke()


def test_what_shares_no_bytes_or_an_allocator_is_accepted_without_a_warning() -> None:
    whole = memoryview(bytearray(4 * BYTES))
    alive = [allocated(whole[:BYTES]), allocated(whole[BYTES : 2 * BYTES])]
    shared = tflm.MicroAllocator(whole[2 * BYTES :])
    alive += [allocated(shared), allocated(shared)]
    head = bytearray(BYTES)
    alive += [allocated(tflm.MicroAllocator(head, persistent_arena=bytearray(BYTES))) for _ in range(2)]
    for interpreter in alive:
        interpreter.allocate_tensors()
        interpreter.invoke()


def test_the_memory_of_an_interpreter_that_is_gone_is_free() -> None:
    arena = bytearray(BYTES)
    gc.disable()
    try:
        for _ in range(3):
            interpreter = allocated(arena)
            interpreter.invoke()
            values = interpreter.output(0).data
            del interpreter
        assert values.size == 4
    finally:
        gc.enable()


def test_an_allocator_without_interpreters_leaves_its_memory_free() -> None:
    arena = bytearray(BYTES)
    allocator = tflm.MicroAllocator(arena)
    first, second = allocated(allocator), allocated(allocator)
    del first
    with pytest.warns(tflm.ArenaShared):
        third = allocated(arena)
    del second, third
    allocated(arena).invoke()


def test_an_interpreter_that_did_not_fit_leaves_the_memory_free() -> None:
    arena = bytearray(BYTES)
    small = tflm.MicroInterpreter(MODEL, tflm.AllOpsResolver(), memoryview(arena)[:64])
    with pytest.raises(tflm.ArenaExhausted):
        small.allocate_tensors()
    allocated(arena)


def test_the_interpreter_works_if_the_warning_is_an_error() -> None:
    arena = bytearray(BYTES)
    first = allocated(arena)
    second = tflm.MicroInterpreter(MODEL, tflm.AllOpsResolver(), arena)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(tflm.ArenaShared):
            second.allocate_tensors()
    del first
    second.invoke()
