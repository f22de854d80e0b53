"""Kernel libraries for the runtime: the arena memory of each operator, and different results.

A library declares, as data, only how it differs from TFLM's own kernels.

A memory plan in a model suits a library if its outputs overlap inputs no further than the loops of its kernels allow.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import TypeVar

from tflm.errors import ArgumentError, OperatorError, UnresolvedOperator
from tflm.kernels import REGISTRATIONS, Registration
from tflm.kernels.node import Node
from tflm.kernels.overlap import NOWHERE, OperatorFacts, Overlap, anywhere, both
from tflm.kernels.plan_checker import LostValue, lost_values, offline_places
from tflm.kernels.registration import OperatorMemory
from tflm.releases import TODAY, Release
from tflm.schema.enums import BuiltinOperator
from tflm.schema.model import Model
from tflm.schema.tables import broken_plan, offline_offsets
from tflm.targets import PARTS, CType, Struct, Target

T = TypeVar("T")


@dataclass(frozen=True)
class Version:
    """A version of a library.

    Attributes:
        name: the library's tag, or the commit if it has none.
        order: all versions of the library, oldest first.
    """

    name: str
    order: tuple[str, ...]

    def since(self, name: str) -> bool:
        """Whether it is that version or a later one."""
        return self.order.index(name) <= self.order.index(self.name)

    def before(self, name: str) -> bool:
        """Whether it is older than that version."""
        return not self.since(name)

    def latest(self, changes: Mapping[str, T]) -> T:
        """The declaration in effect, from declarations by the version that introduced each, oldest first."""
        return [change for name, change in changes.items() if self.since(name)][-1]


def version_named(library: str, name: str, order: Sequence[str], others: Mapping[str, str] | None = None) -> Version:
    """Find a version by name; ignores a leading `v` and further digits of a commit's hash.

    Args:
        library: its name in messages.
        others: other names of versions, such as the commits of tags.

    Raises:
        ArgumentError: the version is unknown; the message lists the known ones.
    """
    known = {**{each: each for each in order}, **(others or {})}
    for each, version in known.items():
        if name.removeprefix("v") == each.removeprefix("v") or (len(each) > 6 and name.startswith(each)):
            return Version(version, tuple(order))
    raise ArgumentError(f"unknown version {name!r} of {library}; use one of {', '.join(order)}")


LAST_BUILTINS = (
    ("", 140),
    ("fcbc8d614", 141),
    ("54a04cbed", 144),
    ("a7f2a887b", 145),
    ("0f40100fc", 146),
    ("90ed783b4", 147),
    ("0d3627d1d", 148),
    ("04a6af47e", 149),
    ("4a6ca505b", 150),
    ("e6d85a150", 151),
    ("f76067002", 152),
    ("4b54460be", 153),
    ("0c8c12342", 156),
    ("38c0b01df", 157),
    ("313630deb", 158),
    ("857f46701", 159),
    ("e10c360b1", 161),
    ("aa61a9151", 162),
    ("3c1c19b46", 166),
    ("389d8f53d", 172),
    ("b4060efe0", 174),
    ("c795f31e9", 189),
    ("a72c0554b", 202),
    ("f800eb802", 203),
    ("2f2c74467", 204),
    ("4bbdef5f8", 205),
    ("fc498a804", 206),
    ("011a68423", 208),
    ("39ba5a848", 209),
)
"""The number of the schema's last builtin operator, with the commit that added it."""

OWN_RESOLVER = "77cc07a32"
"""The commit from which the message is TFLM's own; before, it was TFLite's, which includes the version."""


def message(release: Release, operator: str, version: int) -> str:
    """Return the message that TFLM logs before AllocateTensors() fails.

    Args:
        operator: builtin name or custom name.
        version: the version that the model asks for.
    """
    if operator not in BuiltinOperator.__members__:
        return "Failed to get registration from op code CUSTOM"
    number = BuiltinOperator[operator].value
    own = release.holds(OWN_RESOLVER)
    if number > max(last for commit, last in LAST_BUILTINS if release.holds(commit)):
        hint = "" if own else " Are you using old TFLite binary with newer model?"
        return f"Op builtin_code out of range: {number}.{hint}"
    hint = (
        ""
        if own
        else f" version '{version}'. An older version of this builtin might be supported. "
        "Are you using an old TFLite binary with a newer model?"
    )
    return f"Didn't find op for builtin opcode '{operator}'{hint}"


class Effect(Enum):
    """The effect of a concern on the device."""

    DIFFERS = "differs"
    REFUSED = "refused"
    LACKS = "lacks"
    BREAKS = "breaks"
    SLOW = "slow"

    @property
    def text(self) -> str:
        """The effect, as a predicate of the operator."""
        words = {Effect.DIFFERS: "answers differ", Effect.LACKS: "is not there", Effect.BREAKS: "breaks"}
        return words.get(self, f"is {self.value}")


@dataclass(frozen=True)
class Concern:
    """A difference from today's reference kernels of TFLM.

    Attributes:
        operator: its name.
        effect: its kind: different results, an error from `AllocateTensors`, a memory overrun, kernels in plain C.
        applies: whether a node is affected.
        happens: what will happen, as a sentence.
        advice: what to do about it, as a sentence.
        shown: whether `MicroInterpreter(..., kernels=...)` returns the device's results.
        since: the TFLM commit that introduced it; empty if it always existed.
    """

    operator: str
    effect: Effect
    applies: Callable[[Node], bool]
    happens: str
    advice: str
    shown: bool = False
    since: str = ""

    def concerns(self, node: Node) -> bool:
        """Whether it concerns a node in the release that the node is prepared in."""
        return node.release.holds(self.since) and self.applies(node)


AllowedOverlap = Callable[[Registration, OperatorFacts, int], range]
"""Takes an operator and an input index; returns the allowed distances, `NOWHERE` for no overlap."""


@dataclass(frozen=True)
class KernelLibrary:
    """The kernels that a firmware is built with.

    Attributes:
        name: its name for `kernels=` and the command line.
        version: the version of the library that is declared here.
        family: the parts that it is for, as in `Target.family`; empty for every machine.
        memory: by operator, the arena memory that its kernels request, if it differs from TFLM's.
        behaviour: by operator, a function that makes a registration with this library's results.
        concerns: what behaves differently on the device.
        release: the TFLM that it is built into.
        overlaps: by part, the overlaps that its own kernels allow; None if the order of its loops is unknown.
        view_alignment: alignment that its vectors need for a tensor inside another one, in bytes.
    """

    name: str
    version: str
    family: str = ""
    memory: Mapping[str, OperatorMemory] = field(default_factory=lambda: MappingProxyType({}))
    behaviour: Mapping[str, Callable[[Registration], Registration]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    concerns: tuple[Concern, ...] = ()
    release: Release = TODAY
    overlaps: Callable[[Target], Mapping[str, Overlap]] | None = None
    view_alignment: int = 1

    def require_part(self, target: Target) -> None:
        """Check that the library is for a machine.

        Raises:
            ArgumentError: the message lists the parts that it is made for.
        """
        if self.family and target.family != self.family:
            parts = ", ".join(part.name for part in PARTS.values() if part.family == self.family)
            raise ArgumentError(f"kernel library {self.name!r} is not for target {target.name!r}; it is for {parts}")

    def concerns_about(self, operator: str, node: Node) -> list[Concern]:
        """The concerns that apply to a node."""
        if not self.has_kernel(operator):
            return []
        return [concern for concern in self.concerns if concern.operator == operator and concern.concerns(node)]

    def require_taken(self, registration: Registration, node: Node) -> None:
        """Check that the release and the library accept a node.

        Raises:
            OperatorError: the message says what is rejected.
        """
        for refusal in registration.refusals:
            if refusal.concerns(node):
                raise OperatorError(f"is rejected by {self.release.name}: {refusal.message}")
        for concern in self.concerns_about(registration.name, node) if self.concerns else ():
            if concern.effect is Effect.REFUSED:
                raise OperatorError(f"is rejected by the kernels of {self.name}: {concern.happens}")

    def require_operator(self, registration: Registration, version: int) -> None:
        """Check that the release has an operator.

        Raises:
            UnresolvedOperator: the message names operator and release.
        """
        if not self.release.answers_hold(registration.since):
            name = registration.name
            says = message(self.release, name, version)
            reason = f'the kernel library {self.name!r} ({self.release.name}) lacks {name}: "{says}"'
            raise UnresolvedOperator(name, version, reason)

    def lacking(self, operators: Iterable[str]) -> list[str]:
        """Names of the given operators that the release lacks, without duplicates."""
        known = {name: REGISTRATIONS.get(name) for name in operators}
        holds = self.release.answers_hold
        return [name for name, operator in known.items() if operator is not None and not holds(operator.since)]

    def has_kernel(self, operator: str) -> bool:
        """Whether the release is new enough to have the library's kernel for an operator."""
        memory = self.memory.get(operator)
        return memory is None or not memory.since or self.release.holds(memory.since)

    def registration(self, registration: Registration) -> Registration:
        """The library's variant of an operator's registration. Operators from outside this package are not changed."""
        name = registration.name
        if REGISTRATIONS.get(name) is not registration or not self.has_kernel(name):
            return registration
        behaviour = self.behaviour.get(name)
        if behaviour is not None:
            registration = behaviour(registration)
        memory = self.memory.get(name)
        if memory is not None:
            registration = replace(
                registration, op_data=memory.op_data, requests=memory.prepare, init_requests=memory.init
            )
        return registration

    def allowed_overlap(self, registration: Registration, target: Target, operator: OperatorFacts, input: int) -> range:
        """Allowed distances in bytes from the start of an operator's output to the start of an overlapping input.

        Both TFLM's kernels and the library's allow these.
        """
        if self.overlaps is None:
            return NOWHERE
        own = self.overlaps(target).get(registration.name, anywhere)
        return both(reference_overlap(registration, operator, input), own(operator, input))

    def layout(self, type: CType, target: Target) -> tuple[int, int]:
        """Size and alignment, in bytes, of a C type in the library's release."""
        return type.size(target, self.release), type.alignment(target, self.release)

    def end_of(self, struct: Struct, fields: Iterable[str], target: Target) -> int:
        """Bytes from the start of a structure in that release to the end of the last of the given fields."""
        return max(struct.end_of(field, target, self.release) for field in fields)


def reference_overlap(registration: Registration, operator: OperatorFacts, input: int) -> range:
    """The overlaps that TFLM's own kernels allow, on every machine."""
    return NOWHERE if registration.overlap is None else registration.overlap(operator, input)


def overlap_allowed_by(parts: Sequence[tuple[Target, KernelLibrary]]) -> AllowedOverlap:
    """The overlaps that the kernels of several firmwares all allow."""

    def allowed(registration: Registration, operator: OperatorFacts, input: int) -> range:
        each = (library.allowed_overlap(registration, target, operator, input) for target, library in parts)
        return functools.reduce(both, each)

    return allowed


REFERENCE = KernelLibrary("reference", TODAY.name, overlaps=lambda target: {})
"""TFLM's own kernels."""


def values_lost_with(library: KernelLibrary, target: Target, model: Model) -> Iterator[LostValue]:
    """Values that a model's own plan loses with a library's kernels on a part.

    None for a model without a plan. TFLM's own kernels are not asked: with them, every plan is checked when the model
    is loaded. Of a library whose loops are not known, every output that lies on an input counts.
    """
    offsets = None if library.overlaps is REFERENCE.overlaps else offline_offsets(model.root)
    if offsets is None:
        return
    yield from lost_values(model.root, offline_places(model.root, offsets), overlaps=overlaps_with(library, target))


def overlaps_with(library: KernelLibrary, target: Target) -> dict[str, Overlap]:
    """How far outputs may overlap inputs with a library's kernels on a part, by operator."""
    return {
        name: partial(library.allowed_overlap, registration, target) for name, registration in REGISTRATIONS.items()
    }


def require_safe_plan(library: KernelLibrary, target: Target, model: Model) -> None:
    """Reject a model whose plan loses values with a library's kernels, unless its checks are those of TFLM.

    Raises:
        ModelError: the message names the first such value.
    """
    if model.checks == "tflm":
        return
    for lost in values_lost_with(library, target, model):
        raise broken_plan(
            f"it was made for other kernels than {library.name} on {target.name}: {lost}; "
            "write a plan for these kernels with tflm plan or tflm fit",
            unsound=True,
        )
