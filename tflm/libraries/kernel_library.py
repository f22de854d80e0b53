"""What a kernel library is to the runtime: for each operator what it asks of the arena, and what comes out differently.

TFLM's own kernels are the rule. A library says where it departs from them; a release says where an older TFLM departs
from the one that this package follows. Both are data, which the runtime reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType

from tflm.errors import ArgumentError, OperatorError, UnresolvedOperator
from tflm.kernels import REGISTRATIONS, Registration
from tflm.kernels.requests import NodeView, OperatorMemory
from tflm.targets import NO_OPTIONS, PARTS, CType, Struct, Target


class Effect(Enum):
    """What a concern means for whoever runs the model on the device."""

    DIFFERS = "answers differ"
    REFUSED = "is refused"
    LACKS = "is not there"
    BREAKS = "breaks"


@dataclass(frozen=True)
class Concern:
    """Something that goes another way on a device than with TFLM's reference kernels of today.

    Attributes:
        operator: its name.
        effect: what kind of thing happens: another answer, an error from `AllocateTensors`, a memory overrun.
        applies: whether a node is concerned.
        happens: what will happen, as a sentence.
        advice: what to do about it, as a sentence.
        shown: whether `MicroInterpreter(..., kernels=...)` answers as the device does.
    """

    operator: str
    effect: Effect
    applies: Callable[[NodeView], bool]
    happens: str
    advice: str
    shown: bool = False


@dataclass(frozen=True)
class Release:
    """A TFLM of another time, or built in another way, by what differs from the one that this package follows.

    Attributes:
        name: of which time it is.
        structures: C structures of the runtime, and of parsed options, that are others, by the name of today's.
        memory: what its kernels ask of the arena, where that is something else.
        lacks: operators that it does not have.
        options: what it is built with, as `When` names it.
        recording: whether models run in its recording interpreter, whose allocators are larger.
    """

    name: str
    structures: Mapping[str, Struct] = field(default_factory=lambda: MappingProxyType({}))
    memory: Mapping[str, OperatorMemory] = field(default_factory=lambda: MappingProxyType({}))
    lacks: frozenset[str] = frozenset()
    options: frozenset[str] = NO_OPTIONS
    recording: bool = False


TODAY = Release("TFLM 90b983c2b of 2026-08-20")
"""What everything in `tflm.kernels` and `tflm.runtime` follows."""


@dataclass(frozen=True)
class KernelLibrary:
    """The kernels that a firmware is built with.

    Attributes:
        name: what `kernels=` and the command line call it.
        version: of the library that these declarations follow.
        family: the kind of parts that it is made for, as `Target.family` names it; empty for every machine.
        memory: by operator, what its kernels ask of the arena in place of TFLM's.
        behaviour: by operator, what makes a registration that answers as this library does.
        concerns: what goes another way on the device.
        release: the TFLM that it is built into.
        view_alignment: bytes that the place of a tensor inside another one is a multiple of: what its vectors need.
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
    view_alignment: int = 1

    def require_part(self, target: Target) -> None:
        """Refuse a machine that the library is not made for.

        Raises:
            ArgumentError: the message lists the parts that it is made for.
        """
        if self.family and target.family != self.family:
            parts = ", ".join(part.name for part in PARTS.values() if part.family == self.family)
            raise ArgumentError(f"kernel library {self.name!r} is not for target {target.name!r}; it is for {parts}")

    def concerns_about(self, operator: str, node: NodeView) -> list[Concern]:
        """What of `concerns` applies to a node."""
        return [concern for concern in self.concerns if concern.operator == operator and concern.applies(node)]

    def require_taken(self, operator: str, node: NodeView) -> None:
        """Refuse a node that the library refuses.

        Raises:
            OperatorError: the message says what the library does not take.
        """
        for concern in self.concerns_about(operator, node):
            if concern.effect is Effect.REFUSED:
                raise OperatorError(f"is refused by the kernels of {self.name}: {concern.happens}")

    def require_operator(self, name: str, version: int) -> None:
        """Refuse an operator that the release does not have.

        Raises:
            UnresolvedOperator: the message names operator and release.
        """
        if name in self.release.lacks:
            reason = f"the kernel library {self.name!r} ({self.release.name}) lacks {name}"
            raise UnresolvedOperator(name, version, reason)

    def lacking(self, operators: Iterable[str]) -> list[str]:
        """Those of some operators, by name, that the release does not have, each once."""
        return [name for name in dict.fromkeys(operators) if name in self.release.lacks]

    def registration(self, registration: Registration) -> Registration:
        """An operator as this library has it. One that is not of this package is left as it is."""
        name = registration.name
        if REGISTRATIONS.get(name) is not registration:
            return registration
        behaviour = self.behaviour.get(name)
        if behaviour is not None:
            registration = behaviour(registration)
        memory = self.memory.get(name, self.release.memory.get(name))
        if memory is not None:
            registration = replace(
                registration, op_data=memory.op_data, requests=memory.prepare, init_requests=memory.init
            )
        return registration

    def layout(self, type: CType, target: Target) -> tuple[int, int]:
        """Size and alignment, in bytes, of a C type of today's TFLM in the release that the library is built into."""
        if isinstance(type, Struct):
            type = self._structure(type)
        return type.size(target, self.release.options), type.alignment(target, self.release.options)

    def end_of(self, struct: Struct, fields: Iterable[str], target: Target) -> int:
        """Bytes from the start of a structure, as that release has it, to the end of the last of some fields."""
        structure = self._structure(struct)
        return max(structure.end_of(field, target, self.release.options) for field in fields)

    def _structure(self, struct: Struct) -> Struct:
        return self.release.structures.get(struct.name, struct)


REFERENCE = KernelLibrary("reference", TODAY.name)
"""TFLM's own kernels."""
