"""What a kernel asks of the arena, as data: a declaration apart from what the kernel computes.

An operator declares its C structure and, as a function of the node, what else it takes: temp tensors, persistent arrays
and scratch buffers, in TFLM's order. The runtime takes all of that from the arena; the kernel finds its arrays in
`Node.persistent` and its scratch buffers in `Node.scratch`, by name. A kernel library that asks for other memory gives
another declaration, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import NamedTuple, Protocol, TypeVar, Union

from tflm.memory.tensor import TfLiteTensor, int_array_bytes
from tflm.releases import Release
from tflm.schema.layout import Table
from tflm.targets import CType, Target

Options = TypeVar("Options", bound=Table)


class NodeView(Protocol):
    """A node as a declaration sees it: its tensors, whose shapes and types have been checked, and its options."""

    @property
    def target(self) -> Target:
        """The machine whose data model the arena follows."""

    @property
    def release(self) -> Release:
        """The TFLM whose requests these are."""

    @property
    def input_count(self) -> int:
        """Number of inputs, those that are left out among them."""

    @property
    def output_count(self) -> int:
        """Number of outputs."""

    @property
    def custom_options(self) -> memoryview:
        """The bytes that a custom operator was given."""

    def has_input(self, index: int) -> bool:
        """Whether input `index` is there and was not left out."""

    def has_intermediate(self, index: int) -> bool:
        """Whether intermediate tensor `index` is there and was not left out."""

    def input(self, index: int) -> TfLiteTensor:
        """Input `index`; takes nothing from the arena."""

    def output(self, index: int) -> TfLiteTensor:
        """Output `index`; takes nothing from the arena."""

    def options(self, kind: type[Options]) -> Options:
        """The options of that kind; the defaults, where the node has none."""


class TempInput(NamedTuple):
    """Input `place` in full, in temp memory until the operator has prepared."""

    place: int


class TempOutput(NamedTuple):
    """Output `place` in full, in temp memory until the operator has prepared."""

    place: int


class TempIntermediate(NamedTuple):
    """Intermediate tensor `place` in full, in temp memory until the operator has prepared."""

    place: int


class Released(NamedTuple):
    """A temp tensor that the kernel gives back before its next request; the others are held to the end."""

    temp: TempInput | TempOutput


class Reads(IntEnum):
    """What a kernel still reads of the temp tensors that it holds, once it has begun to write a persistent buffer.

    TFLM checks a persistent buffer against the head alone: in the smallest arenas it lies over the end of temp memory.
    """

    NOTHING = 0
    """Only their shape, and what giving them back looks at."""
    TYPE = 1
    """Their type and size as well."""
    DIMENSION = 2
    """The dimension that they are quantized along as well."""
    ZERO_POINTS = 3
    """That dimension and their zero points as well."""


class PersistentBuffer(NamedTuple):
    """`bytes` of the tail, aligned to 16, for as long as the model is there."""

    name: str
    bytes: int
    reads: Reads = Reads.NOTHING


class ScratchBuffer(NamedTuple):
    """`bytes` of the head that are the operator's own while it runs."""

    name: str
    bytes: int


Request = Union[TempInput, TempOutput, TempIntermediate, Released, PersistentBuffer, ScratchBuffer]

Requests = Callable[[NodeView], Iterable[Request]]
"""What a node asks for, in order."""


class Refusal(NamedTuple):
    """What TFLM's kernel refused for a time, while it prepares, and the kernel of today takes.

    Attributes:
        applies: whether a node is refused.
        message: what TFLM says, or what happens.
        until: the commit from which it is taken.
        since: the commit from which it was refused; empty where it always had been.
    """

    applies: Callable[[NodeView], bool]
    message: str
    until: str
    since: str = ""

    def concerns(self, node: NodeView) -> bool:
        """Whether the release that a node is prepared in refuses it."""
        release = node.release
        if release.holds(self.until) or (self.since and not release.holds(self.since)):
            return False
        return self.applies(node)


class OperatorMemory(NamedTuple):
    """All that an operator asks of the arena.

    Attributes:
        op_data: the C structure that its kernel keeps, reserved when the operator initialises; None for no structure.
        prepare: what it asks for while it prepares.
        init: what it asks for while it initialises, after the structure.
        since: the commit of TFLM from which a kernel library has its own kernel; empty where it always had.
    """

    op_data: CType | None
    prepare: Requests
    init: Requests
    since: str = ""


def always(*requests: Request) -> Requests:
    """The same requests for every node."""
    return lambda node: requests


def nothing(node: NodeView) -> Iterable[Request]:
    """No request."""
    return ()


def tensors(inputs: int = 1, outputs: int = 1) -> Requests:
    """The first inputs in full, then the first outputs: what most kernels take while they prepare."""
    return always(*map(TempInput, range(inputs)), *map(TempOutput, range(outputs)))


def writable_dims(tensor: TfLiteTensor, reads: Reads = Reads.NOTHING) -> PersistentBuffer:
    """A copy of a tensor's dims, which TFLM makes before it changes them."""
    return PersistentBuffer("dims", int_array_bytes(len(tensor.dims)), reads)
