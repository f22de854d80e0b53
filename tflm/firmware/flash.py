"""Flash and static RAM of TFLM in a firmware, for any set of operators.

A linker includes the sections that are reachable from the operators that the resolver adds. The data is one link of all
operators, with the sections grouped by the operators that reach them: a firmware is the base, every group that one of
its operators reaches, and the resolver's own code. The figures count TFLM, its kernels and the parts of the C library
that they use; not the application, the model or the arena.

For any other part or kernel library there are bounds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib.resources import files
from operator import mul
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm import targets
from tflm.boards.sdks import NOTHING, Span
from tflm.bounded_reading import read_text
from tflm.errors import FirmwareError, UnresolvedOperator
from tflm.kernels import REGISTRATIONS, Registration
from tflm.libraries import KernelLibrary, Kernels
from tflm.releases import TODAY, Releases, require_release
from tflm.schema.enums import TensorType
from tflm.schema.model import Model
from tflm.schema.tables import Operator, SubGraph
from tflm.targets import Target


def resolver_method(operator: str) -> str:
    """The method of TFLM's resolver that adds an operator, even one that this package lacks."""
    return REGISTRATIONS.get(operator, Registration(operator)).resolver_method


def operators_of(model: Model) -> list[str]:
    """Every operator that any subgraph uses, once, in alphabetical order."""
    return sorted({model.operator_name(op) for subgraph in model.subgraphs for op in subgraph.operators or ()})


def typed_registrations(model: Model) -> dict[str, str]:
    """Typed registrations, by operator, for operators that the model uses only in int8."""
    others = {
        model.operator_name(operator)
        for subgraph in model.subgraphs
        for operator in subgraph.operators or ()
        if not _is_int8(subgraph, operator)
    }
    names = (name for name in operators_of(model) if name in REGISTRATIONS and name not in others)
    return {name: f"{name}_INT8" for name in names if REGISTRATIONS[name].int8_registration}


def _is_int8(subgraph: SubGraph, operator: Operator) -> bool:
    """Whether input, weights or second input, and output are of int8."""
    tensors = subgraph.tensors or []
    places = [*(operator.inputs or [])[:2], *(operator.outputs or [])[:1]]
    return all(place >= 0 and tensors[place].type == TensorType.INT8 for place in places)


DEFAULT_BUILD = "release"
OPTIMIZED_OTHERWISE = ("release, kernels -Os",)
"""Builds that differ from the default one in optimization alone."""

NO_OPERATOR = "none"

SUBGRAPH_OPERATORS = ("AddCallOnce", "AddIf", "AddWhile")
"""Operators that run another subgraph while they run."""


class SectionSizes(NamedTuple):
    """Bytes of each kind of section, in the order of the data file."""

    text: float
    extab: float
    exidx: float
    data: float
    bss: float

    @property
    def code(self) -> float:
        """Bytes of code and constants, including unwind tables."""
        return self.text + self.extab + self.exidx


class SectionGroup(NamedTuple):
    """Sections that are linked together.

    Attributes:
        conditions: sets of operator numbers; the sections are linked if the resolver has an operator of each.
        sizes: sizes of the sections.
    """

    conditions: tuple[frozenset[int], ...]
    sizes: SectionSizes


class ResolverCode(NamedTuple):
    """Terms of the linear formula for the code of main and resolver, or bytes per term, in the order of the data
    file."""

    always: float
    builtin_operators: float
    custom_operators: float
    several_builtin: float
    any_builtin: float
    any_custom: float
    several_custom: float
    custom_name_bytes: float
    several_operators: float


class Sizes(NamedTuple):
    """Bytes of flash (code, constants and initial values), of initialized variables, and of other variables."""

    flash: float
    data: float
    bss: float


@dataclass(frozen=True)
class FlashData:
    """Measurements for one processor, kernel library and build, read from a data file of section groups.

    Attributes:
        cpu, kernels, build: the measured configuration.
        operators: the resolver's methods, as TFLM names them; "AddConv2D:CONV_2D_INT8" has a typed registration.
        base: sizes of the sections of every firmware.
        groups: sections that depend on the operators.
        resolver: bytes of the resolver's own code for each of its terms.
        custom_names: bytes of the name of each custom operator.
        main_bss, entry_bss: static RAM of interpreter and resolver, and of the resolver for each operator.
        base_stack, operator_stacks: bounds of the stack, of a firmware without operators and for each operator; None
            and empty where none were made.
    """

    cpu: str
    kernels: str
    build: str
    operators: tuple[str, ...]
    base: SectionSizes
    groups: tuple[SectionGroup, ...]
    resolver: ResolverCode
    custom_names: Mapping[str, int]
    main_bss: int
    entry_bss: int
    base_stack: int | None = None
    operator_stacks: tuple[int, ...] = ()

    @classmethod
    def from_file(cls, path: str | Path) -> FlashData:
        """Read a data file.

        Raises:
            FirmwareError: it is not such a file.
            DataError: it is too large for one.
            OSError: it can't be read.
        """
        return cls.read(read_text(path, errors="replace"))

    @classmethod
    def read(cls, text: str) -> FlashData:
        """Read the JSON of a data file.

        Raises:
            FirmwareError: it is not such a file.
        """
        try:
            raw = json.loads(text)
            cpu, _, build = raw["variant"].partition(", ")
            base_stack, operator_stacks = _stack(raw.get("stack"), len(raw["ops"]))
            found = cls(
                cpu=cpu,
                kernels=raw["lib"],
                build=build,
                operators=tuple(raw["ops"]),
                base=SectionSizes(*raw["base"]),
                groups=tuple(SectionGroup(_conditions(all), SectionSizes(*sizes)) for all, sizes in raw["groups"]),
                resolver=ResolverCode(*raw["main"]),
                custom_names=raw["custom"],
                main_bss=raw["main_bss"],
                entry_bss=raw["per_entry"],
                base_stack=base_stack,
                operator_stacks=operator_stacks,
            )
            found.sizes(found.operators)
            return found
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, OverflowError) as error:
            raise FirmwareError(
                f"this is not a file of tools/flash_groups.py ({type(error).__name__}: {error})"
            ) from None

    @cached_property
    def places(self) -> dict[str, int]:
        """The number of each operator in the data."""
        return {name: place for place, name in enumerate(self.operators)}

    def sizes(self, operators: Iterable[str]) -> Sizes:
        """Sizes of a firmware whose resolver has exactly these operators."""
        names = [name for name in operators if name != NO_OPERATOR]
        drawn_in = self._group_sizes[self._drawn_in(names)].sum(0, dtype=None)
        total = SectionSizes(*np.add(self.base, drawn_in).tolist())
        resolver = sum(map(mul, self.resolver, self._resolver_terms(names)))
        static = -(-self.main_bss // 8) * 8 + self.entry_bss * max(
            len(names), 1
        )  # a resolver has a capacity of at least one
        return Sizes(total.code + total.data + resolver, total.data, total.bss + static)

    def flash_alone(self, operator: str) -> float:
        """Flash of a firmware with this operator only, in bytes."""
        if operator not in self._alone:
            self._alone[operator] = self.sizes([operator]).flash
        return self._alone[operator]

    @cached_property
    def _alone(self) -> dict[str, float]:
        return {}

    def stack_bytes(self, operators: Iterable[str]) -> int | None:
        """A bound of the stack from reset on, with these operators; None where the data has none.

        An operator that runs another subgraph lies below the deepest operator of that, once for each such operator.
        """
        if self.base_stack is None:
            return None
        names = [name for name in operators if name != NO_OPERATOR]
        bounds = {name: self.operator_stacks[self.places[name]] for name in names}
        nesting = sum(bounds[name] for name in SUBGRAPH_OPERATORS if name in bounds)
        return max([self.base_stack, *bounds.values()]) + nesting

    @cached_property
    def _group_sizes(self) -> npt.NDArray[np.float64]:
        return np.array([group.sizes for group in self.groups], np.float64)

    @cached_property
    def _reached(self) -> npt.NDArray[np.bool_]:
        """The operators that meet each group's first and second condition."""
        table = np.zeros((2, len(self.groups), len(self.operators)), np.bool_)
        for i, group in enumerate(self.groups):
            table[0, i, list(group.conditions[0])] = True
            table[1, i, list(group.conditions[-1])] = True
        return table

    def _drawn_in(self, names: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Return which groups a firmware with these operators contains."""
        met: npt.NDArray[np.bool_] = np.any(self._reached[:, :, [self.places[name] for name in names]], axis=2)
        return np.asarray(np.all(met, axis=0), None)

    def shared(self, name: str, others: Sequence[str]) -> tuple[float, tuple[str, ...]]:
        """Bytes that an operator shares with others, and those others."""
        reached: npt.NDArray[np.bool_] = np.any(self._reached, axis=0)
        of_others = reached[:, [self.places[other] for other in others]]
        together = reached[:, self.places[name]] & of_others.any(1)
        sharing = np.asarray(of_others[together].any(0), None).tolist()
        sizes = SectionSizes(*self._group_sizes[together].sum(0, dtype=None).tolist())
        return sizes.code + sizes.data, tuple(sorted(other for other, shares in zip(others, sharing) if shares))

    def _resolver_terms(self, names: Sequence[str]) -> ResolverCode:
        custom = [self.custom_names[name] for name in names if name in self.custom_names]
        builtin = len(names) - len(custom)
        return ResolverCode(
            always=1,
            builtin_operators=builtin,
            custom_operators=len(custom),
            several_builtin=builtin >= 2,
            any_builtin=builtin >= 1,
            any_custom=bool(custom),
            several_custom=len(custom) >= 2,
            custom_name_bytes=sum(custom),
            several_operators=len(names) >= 2,
        )


def _stack(raw: Any, operators: int) -> tuple[int | None, tuple[int, ...]]:
    if raw is None:
        return None, ()
    bounds = tuple(int(bound) for bound in raw["operators"])
    if len(bounds) != operators:
        raise ValueError(f"{len(bounds)} bounds of the stack for {operators} operators")
    return int(raw["base"]), bounds


def _conditions(reached: Any) -> tuple[frozenset[int], ...]:
    """One list of operators, or several which must all be met."""
    several = reached and isinstance(reached[0], list)
    return tuple(map(frozenset, reached)) if several else (frozenset(reached),)


class OperatorFlash(NamedTuple):
    """An operator's part of the flash.

    Attributes:
        operator: the resolver's method.
        own_bytes: bytes that removing the operator would save.
        shared_bytes: bytes that it shares with other operators of this firmware.
        shared_with: those operators.
    """

    operator: str
    own_bytes: int
    shared_bytes: int
    shared_with: tuple[str, ...]


@dataclass(frozen=True)
class Flash:
    """The flash and static RAM of a part that TFLM takes.

    Attributes:
        cpu: the part.
        kernels: the kernel library.
        build: how TFLM is built.
        flash_bytes: code, constants and initial values; None if the build was not measured.
        flash_range_bytes: lowest and highest estimate; both are `flash_bytes` if that is known.
        runtime_bytes: the part of `flash_bytes` that a firmware without operators takes.
        data_bytes: initialized static RAM; None if the build was not measured.
        bss_bytes: other static RAM; None if the build was not measured.
        stack_bytes: a bound of the stack from reset on, with a minimal main and without interrupts; None where the
            data has none.
        model_bytes: size of the model file, not included in `flash_bytes`; 0 without a model.
        typed_flash_bytes: `flash_bytes` with `typed_registrations`; None if that saves nothing or is unknown.
        typed_registrations: what could be added for int8 alone, such as "CONV_2D_INT8".
        operators: each operator's part, largest first; empty if the build was not measured.
        note: the source of the figures, in a sentence.
    """

    cpu: str
    kernels: str
    build: str
    flash_bytes: int | None
    flash_range_bytes: tuple[int, int]
    runtime_bytes: int | None = None
    data_bytes: int | None = None
    bss_bytes: int | None = None
    stack_bytes: int | None = None
    model_bytes: int = 0
    typed_flash_bytes: int | None = None
    typed_registrations: tuple[str, ...] = ()
    operators: tuple[OperatorFlash, ...] = field(default=(), repr=False)
    note: str = ""


def flash(
    model: Model | None = None,
    operators: Iterable[str] | None = None,
    *,
    target: str | targets.Target,
    kernels: Kernels = "reference",
    build: str = DEFAULT_BUILD,
    data: str | Path | None = None,
    release: Releases | None = None,
) -> Flash:
    """Return the flash and static RAM of TFLM with a model's operators, or with given ones.

    Args:
        model: its operators are those of the firmware, and its bytes are in `model_bytes`.
        operators: methods of TFLM's resolver, such as "AddConv2D", or "AddConv2D:CONV_2D_INT8" with a registration
            for that type; in place of the model's.
        target: the part, such as "cortex-m4".
        kernels: "reference" or "cmsis-nn".
        build: how TFLM was built: "release", and for some parts "release with error strings", "release, kernels -Os"
            and "default, asserts on".
        data: a data file for your own build, used instead of the packaged data.
        release: the firmware's TFLM release, as for `MicroInterpreter`. The note tells if the data was measured with
            another.

    Raises:
        UnresolvedOperator: the release does not have an operator of the model.
        FirmwareError: neither a model nor operators were given, the target has no firmware, or there is no data for an
            operator, the library or the build; the message lists those available.
    """
    if operators is not None:
        names = list(operators)
    elif model is not None:
        names = [resolver_method(name) for name in operators_of(model)]
    else:
        raise FirmwareError("pass a model or operators, such as ['AddConv2D', 'AddSoftmax']")
    part = targets.by_name(target) if isinstance(target, str) else targets.require_target(target)
    if part.pointer_size != 4:
        raise FirmwareError(f"{part.name!r} has no firmware; use a part, such as 'cortex-m4'")
    size = len(model.data) if model is not None else 0
    library = kernels if isinstance(kernels, str) else kernels.name
    found = estimate_flash(names, cpu=part.name, kernels=library, build=build, model_bytes=size, data=data)
    if data is None:
        found = _of_release(found, model, kernels, release)
    if model is None or found.flash_bytes is None:
        return found
    return _with_typed(found, names, model, data)


def _of_release(found: Flash, model: Model | None, kernels: Kernels, release: Releases | None) -> Flash:
    """The figures, with a note if they were measured with another TFLM release than the firmware's."""
    own = TODAY if isinstance(kernels, str) else kernels.release
    built = own if release is None else require_release(release)
    for name in operators_of(model) if model is not None else ():
        registration = REGISTRATIONS.get(name)
        if registration is not None and not built.answers_hold(registration.since):
            raise UnresolvedOperator(name, 1, f"{built.name} does not have {name}")
    if built.commit == TODAY.commit:
        return found
    return replace(found, note=f"{found.note}; measured with {TODAY.name}, not with {built.name}")


def _with_typed(found: Flash, names: list[str], model: Model, data: str | Path | None) -> Flash:
    """The figures, with the savings of typed registrations."""
    entry = _entry(found, data)
    typed = {resolver_method(name): registration for name, registration in typed_registrations(model).items()}
    fits = {name: f"{name}:{typed[name]}" for name in names if f"{name}:{typed.get(name)}" in entry.places}
    if not fits:
        return found
    size = round(entry.sizes([fits.get(name, name) for name in names]).flash)
    return replace(
        found, typed_flash_bytes=size, typed_registrations=tuple(name.partition(":")[2] for name in fits.values())
    )


def _entry(found: Flash, data: str | Path | None) -> FlashData:
    if data is not None:
        return FlashData.from_file(data)
    wanted = found.cpu, found.kernels, found.build
    return next(entry for entry in shipped() if (entry.cpu, entry.kernels, entry.build) == wanted)


@cache
def shipped() -> tuple[FlashData, ...]:
    """The packaged data."""
    folder = files("tflm.firmware") / "data" / "flash"
    return tuple(FlashData.read(entry.read_text()) for entry in sorted(folder.iterdir(), key=lambda entry: entry.name))


def estimate_flash(
    operators: Sequence[str],
    *,
    cpu: str,
    kernels: str = "reference",
    build: str = DEFAULT_BUILD,
    model_bytes: int = 0,
    data: str | Path | None = None,
) -> Flash:
    """Flash and static RAM for a resolver of these operators.

    Args:
        operators: TFLM's methods, such as "AddConv2D"; with a typed registration "AddConv2D:CONV_2D_INT8".
        cpu: the processor, such as "cortex-m4".
        build: how TFLM was built: one of those that were measured for the processor.
        model_bytes: the model's file.
        data: a data file for your own build, used instead of the packaged data.

    Raises:
        FirmwareError: there is no data for an operator or the build; the message lists those available.
    """
    names = list(dict.fromkeys(operators))
    if data is not None:
        return _measured(FlashData.from_file(data), names, model_bytes)
    kernels = kernels.partition("@")[0]
    if kernels in STANDS_FOR:
        return _like_another(names, cpu, kernels, build, model_bytes)
    known = [entry for entry in shipped() if entry.kernels == kernels]
    if not known:
        libraries = ", ".join(sorted({entry.kernels for entry in shipped()}))
        raise FirmwareError(
            f"no flash data for kernel library {kernels!r}; use {libraries}, or measure your own build and pass "
            "--flash-data FILE"
        )
    _refuse_unknown(names, known)
    exact = [entry for entry in known if (entry.cpu, entry.build) == (cpu, build)]
    if exact and all(name in exact[0].places or name == NO_OPERATOR for name in names):
        return _measured(exact[0], names, model_bytes)
    if not exact and build not in {entry.build for entry in known}:
        raise FirmwareError(f"no flash data for build {build!r}; use one of {_builds(known)}")
    return _range(known, names, cpu, kernels, build, model_bytes)


STANDS_FOR = {
    "arduino": ("cmsis-nn", "an older TFLM with an older CMSIS-NN"),
    "cmsis-nn:size": ("cmsis-nn", "CMSIS-NN with kernels that are chosen for size"),
    "esp-nn": ("reference", "TFLM's kernels; ESP-NN's own kernels are not in the range"),
}
"""Libraries that were not measured: the library whose range is used instead, and a description."""


def _like_another(names: list[str], cpu: str, kernels: str, build: str, model_bytes: int) -> Flash:
    """Only a range, over all builds of a library that is similar to the requested one."""
    like, what = STANDS_FOR[kernels]
    known = [entry for entry in shipped() if entry.kernels == like]
    _refuse_unknown(names, known)
    if build not in {entry.build for entry in known}:
        raise FirmwareError(f"no flash data for build {build!r}; use one of {_builds(known)}")
    builds = {build, *OPTIMIZED_OTHERWISE} if build == DEFAULT_BUILD else {build}
    ranges = [_range(known, names, cpu, like, each, 0).flash_range_bytes for each in sorted(builds)]
    low, high = min(low for low, _ in ranges), max(high for _, high in ranges)
    note = (
        f"a range of {like} kernels on {cpu}: flash, RAM and stack were not measured with {kernels} ({what}); for your "
        "own build, pass --flash-data FILE"
    )
    return Flash(cpu, kernels, build, None, (low, high), model_bytes=model_bytes, note=note)


def _builds(known: list[FlashData]) -> str:
    return ", ".join(sorted({repr(entry.build) for entry in known}))


def _refuse_unknown(names: Sequence[str], known: Sequence[FlashData]) -> None:
    anywhere = {NO_OPERATOR}.union(*(entry.places for entry in known))
    missing = [name for name in names if name not in anywhere]
    if missing:
        raise FirmwareError(
            f"no flash data for {', '.join(missing)}; operators are named by the resolver's methods, such as AddConv2D"
        )


def _measured(entry: FlashData, names: list[str], model_bytes: int) -> Flash:
    missing = [name for name in names if name not in entry.places and name != NO_OPERATOR]
    if missing:
        raise FirmwareError(f"no flash data for {', '.join(missing)} in this build")
    sizes = entry.sizes(names)
    flash = round(sizes.flash)
    return Flash(
        entry.cpu,
        entry.kernels,
        entry.build,
        flash,
        (flash, flash),
        runtime_bytes=round(entry.sizes([]).flash),
        data_bytes=round(sizes.data),
        bss_bytes=round(sizes.bss),
        stack_bytes=entry.stack_bytes(names),
        model_bytes=model_bytes,
        operators=_shares(entry, names),
        note=(
            "TFLM and the parts of the C library that it uses, linked by arm-none-eabi-gcc with newlib-nano; not the "
            "application"
        ),
    )


def _shares(entry: FlashData, names: list[str]) -> tuple[OperatorFlash, ...]:
    used = [name for name in names if name != NO_OPERATOR]
    whole = entry.sizes(used).flash
    shares = []
    for name in used:
        others = [other for other in used if other != name]
        shared, sharing = entry.shared(name, others)
        shares.append(OperatorFlash(name, round(whole - entry.sizes(others).flash), round(shared), sharing))
    return tuple(sorted(shares, key=lambda share: -share.own_bytes))


WIDELY_MEASURED = ("cortex-m4", DEFAULT_BUILD)
"""The part and the build with all operators, from which ranges for others are derived."""

ALIKE = {
    "cortex-m0": ("cortex-m0plus",),
    "cortex-m3": ("cortex-m4", "cortex-m0plus"),
    "cortex-m23": ("cortex-m0plus",),
    "cortex-m7": ("cortex-m4", "cortex-m55"),
    "cortex-m33": ("cortex-m4", "cortex-m55"),
    "cortex-m52": ("cortex-m55",),
    "cortex-m85": ("cortex-m55",),
}
"""Parts that were not measured, and the measured parts that bracket them; others are bracketed by all measured
parts.
"""


def _range(known: list[FlashData], names: list[str], cpu: str, kernels: str, build: str, model_bytes: int) -> Flash:
    """A range derived from the part measured in every build, by its ratios to others for common operators."""
    base = next(entry for entry in known if (entry.cpu, entry.build) == WIDELY_MEASURED)
    measured = base.sizes(names).flash
    cpus = {entry.cpu for entry in known}
    wanted = (cpu,) if cpu in cpus else ALIKE.get(cpu, tuple(sorted(cpus)))
    exact = [entry for entry in known if (entry.cpu, entry.build) == (cpu, build)]
    of_parts = exact or [entry for entry in known if entry.cpu in wanted and entry.build == base.build]
    of_builds = [] if exact else [entry for entry in known if entry.cpu == base.cpu and entry.build == build]
    by_part = [ratio for entry in of_parts for ratio in _ratios(base, entry, names)]
    by_build = [ratio for entry in of_builds for ratio in _ratios(base, entry, names)] or [1.0]
    low, high = round(measured * min(by_part) * min(by_build)), round(measured * max(by_part) * max(by_build))
    what = "these operators were" if exact else f"{cpu}, build {build!r}, was"
    compared = ", ".join(dict.fromkeys(f"{entry.cpu} {entry.build}" for entry in (*of_parts, *of_builds)))
    note = (
        f"a range, for {what} not measured: from {base.cpu}, build {base.build!r} ({round(measured):,} bytes), by how "
        f"much others differ from it in operators that both have ({compared})"
    )
    return Flash(cpu, kernels, build, None, (low, high), model_bytes=model_bytes, note=note)


def _ratios(base: FlashData, other: FlashData, names: Sequence[str]) -> list[float]:
    """Size ratios of the other build: for each common operator, for all of these, and for all operators."""
    common = base.places.keys() & other.places.keys()
    alike = sorted(common.intersection(names))
    alone = [other.flash_alone(name) / base.flash_alone(name) for name in alike or sorted(common)]
    sets = [alike] * bool(alike) + [sorted(common)]
    return alone + [other.sizes(each).flash / base.sizes(each).flash for each in sets]


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
    return _range_of(tuple(dict.fromkeys(operators)), target.name, library.name.partition("@")[0])


@cache
def _range_of(operators: tuple[str, ...], target: str, kernels: str) -> FlashRange:
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
    static, stack = _static(entries, names), _stack_span(entries, names)
    return FlashRange(code, static, stack, unmeasured)


def _like(kernels: str) -> str:
    """The measured library whose range a library has."""
    usual = kernels.partition(":")[0]
    return STANDS_FOR[usual][0] if usual in STANDS_FOR else usual


def _static(entries: Iterable[FlashData], names: list[str]) -> Span:
    sizes = [entry.sizes(_of(entry, names)) for entry in entries]
    return _span(round(size.data + size.bss) for size in sizes)


def _stack_span(entries: Iterable[FlashData], names: list[str]) -> Span:
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
