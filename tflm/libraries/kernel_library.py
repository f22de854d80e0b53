"""What a kernel library is to the runtime: for each operator what it asks of the arena, and what comes out differently.

TFLM's own kernels are the rule. A library says where it departs from them, as data, which the runtime reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType

from tflm.errors import ArgumentError, OperatorError, UnresolvedOperator
from tflm.kernels import REGISTRATIONS, Registration
from tflm.kernels.requests import NodeView, OperatorMemory
from tflm.libraries.unresolved import message
from tflm.releases import TODAY, Release
from tflm.targets import PARTS, CType, Struct, Target


class Effect(Enum):
    """What a concern means for whoever runs the model on the device."""

    DIFFERS = "answers differ"
    REFUSED = "is refused"
    LACKS = "is not there"
    BREAKS = "breaks"
    SLOW = "is slow"


@dataclass(frozen=True)
class Concern:
    """Something that goes another way on a device than with TFLM's reference kernels of today.

    Attributes:
        operator: its name.
        effect: what kind of thing happens: another answer, an error from `AllocateTensors`, a memory overrun, kernels
            in plain C.
        applies: whether a node is concerned.
        happens: what will happen, as a sentence.
        advice: what to do about it, as a sentence.
        shown: whether `MicroInterpreter(..., kernels=...)` answers as the device does.
        since, until: the commits of TFLM from which it happens, and from which it no longer does; empty where it
            always did, and where it still does.
    """

    operator: str
    effect: Effect
    applies: Callable[[NodeView], bool]
    happens: str
    advice: str
    shown: bool = False
    since: str = ""
    until: str = ""

    def concerns(self, node: NodeView) -> bool:
        """Whether it concerns a node in the release that the node is prepared in."""
        release = node.release
        if (self.since and not release.holds(self.since)) or (self.until and release.holds(self.until)):
            return False
        return self.applies(node)


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
        if not self.has_kernel(operator):
            return []
        return [concern for concern in self.concerns if concern.operator == operator and concern.concerns(node)]

    def require_taken(self, registration: Registration, node: NodeView) -> None:
        """Refuse a node that the release or the library refuses.

        Raises:
            OperatorError: the message says what is not taken.
        """
        for refusal in registration.refusals:
            if refusal.concerns(node):
                raise OperatorError(f"is refused by {self.release.name}: {refusal.message}")
        for concern in self.concerns_about(registration.name, node) if self.concerns else ():
            if concern.effect is Effect.REFUSED:
                raise OperatorError(f"is refused by the kernels of {self.name}: {concern.happens}")

    def require_operator(self, registration: Registration, version: int) -> None:
        """Refuse an operator that the release does not have.

        Raises:
            UnresolvedOperator: the message names operator and release.
        """
        if not self.release.answers_hold(registration.since):
            name = registration.name
            says = message(self.release, name, version)
            reason = f'the kernel library {self.name!r} ({self.release.name}) lacks {name}: "{says}"'
            raise UnresolvedOperator(name, version, reason)

    def lacking(self, operators: Iterable[str]) -> list[str]:
        """Those of some operators, by name, that the release does not have, each once."""
        known = {name: REGISTRATIONS.get(name) for name in operators}
        holds = self.release.answers_hold
        return [name for name, operator in known.items() if operator is not None and not holds(operator.since)]

    def has_kernel(self, operator: str) -> bool:
        """Whether the release may have the library's kernel for an operator: no release that is older than it."""
        memory = self.memory.get(operator)
        return memory is None or not memory.since or self.release.holds(memory.since)

    def registration(self, registration: Registration) -> Registration:
        """An operator as this library has it. One that is not of this package is left as it is."""
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

    def layout(self, type: CType, target: Target) -> tuple[int, int]:
        """Size and alignment, in bytes, of a C type in the release that the library is built into."""
        return type.size(target, self.release), type.alignment(target, self.release)

    def end_of(self, struct: Struct, fields: Iterable[str], target: Target) -> int:
        """Bytes from the start of a structure, as that release has it, to the end of the last of some fields."""
        return max(struct.end_of(field, target, self.release) for field in fields)


REFERENCE = KernelLibrary("reference", TODAY.name)
"""TFLM's own kernels."""
