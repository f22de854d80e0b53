"""Bounds of the flash, static RAM and stack of TFLM for any part and kernel library, measured or not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from tflm.boards.sdks import NOTHING, Span
from tflm.firmware.flash import STANDS_FOR, FlashData, estimate_flash, shipped
from tflm.firmware.resolver_methods import resolver_method
from tflm.libraries import KernelLibrary
from tflm.targets import Target

ESP_NN_BYTES = 96 << 10
"""An upper estimate of ESP-NN's code: 5,200 instructions of assembly in all, and C for the rest."""


@dataclass(frozen=True)
class FlashRange:
    """The memory of a part that TFLM takes. A span with equal ends was measured.

    Attributes:
        code: flash of TFLM, its kernels and the C library.
        static: initialized and zeroed data.
        stack: bound of the stack, without interrupts.
        unmeasured: operators that were measured nowhere: each counts as 0 to the largest operator.
    """

    code: Span
    static: Span
    stack: Span
    unmeasured: tuple[str, ...] = ()


def flash_range(operators: Iterable[str], target: Target, library: KernelLibrary) -> FlashRange:
    """The bounds for a firmware with these operators, by their names in the model."""
    return _range(tuple(dict.fromkeys(operators)), target.name, library.name.partition("@")[0])


@cache
def _range(operators: tuple[str, ...], target: str, kernels: str) -> FlashRange:
    like = _like(kernels)
    known = [entry for entry in shipped() if entry.kernels == like]
    places = set().union(*(entry.places for entry in known))
    methods = {name: resolver_method(name) for name in operators}
    names = [method for method in methods.values() if method in places]
    unmeasured = tuple(name for name, method in methods.items() if method not in places)
    found = estimate_flash(names, cpu=target, kernels=kernels if kernels in STANDS_FOR else like)
    code = Span(*found.flash_range_bytes).plus(Span(0, _largest_operator() * len(unmeasured)))
    if kernels.startswith("esp-nn"):
        code = code.plus(Span(0, ESP_NN_BYTES))
    exact = [entry for entry in known if entry.cpu == target and entry.build == found.build]
    entries = [entry for entry in exact if entry.places.keys() >= set(names)] or known
    static, stack = _static(entries, names), _stack(entries, names)
    return FlashRange(code, static, stack, unmeasured)


def _like(kernels: str) -> str:
    """The measured library whose range a library has."""
    usual = kernels.partition(":")[0]
    return STANDS_FOR[usual][0] if usual in STANDS_FOR else usual


def _static(entries: Iterable[FlashData], names: list[str]) -> Span:
    sizes = [entry.sizes(_of(entry, names)) for entry in entries]
    return _span(round(size.data + size.bss) for size in sizes)


def _stack(entries: Iterable[FlashData], names: list[str]) -> Span:
    return _span(entry.stack_bytes(_of(entry, names)) or 0 for entry in entries)


def _of(entry: FlashData, names: list[str]) -> list[str]:
    return [name for name in names if name in entry.places]


def _span(sizes: Iterable[int]) -> Span:
    known = list(sizes)
    return Span(min(known), max(known)) if known else NOTHING


@cache
def _largest_operator() -> int:
    """The maximum flash that any one operator adds to a firmware without operators."""
    return max(round(entry.sizes([name]).flash - entry.sizes([]).flash) for entry in shipped() for name in entry.places)
