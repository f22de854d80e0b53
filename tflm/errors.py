"""Every way in which tflm says no: one tree, so that `except tflm.TflmError` catches all of it; and its warnings.

Each kind keeps its parts as attributes beside the message, for programs that want to act on them.
"""

from __future__ import annotations


class TflmError(Exception):
    """The root of all errors raised on purpose by this package."""


class ArgumentError(TflmError, TypeError, ValueError):
    """A call was given something else than it takes; the message says what it takes, and how to come by it."""


class ModelError(TflmError):
    """The bytes are not a model that can be trusted.

    Attributes:
        place: path from the root to the table, such as `subgraphs[0].tensors[3]`; empty for the file.
        table: name of the schema table, or `file`.
        field: name of the field, or empty.
        reason: what is wrong, and where possible what would be right.
        level: "error", or "warning" for what is odd and runs all the same.
        unsound: whether the model does run, in TFLM and with `checks="tflm"`, to answers that mean nothing.
    """

    def __init__(
        self,
        reason: str,
        *,
        table: str = "file",
        field: str = "",
        place: str = "",
        level: str = "error",
        unsound: bool = False,
    ):
        self.reason, self.table, self.field, self.place = reason, table, field, place
        self.level, self.unsound = level, unsound
        name = f"{table}.{field}" if field else table
        super().__init__(f"{name}{f' at {place}' if place else ''}: {reason}")


class ArenaError(TflmError):
    """The buffer given as arena can't serve as one, or memory was asked for out of turn."""


class ArenaExhausted(ArenaError):
    """An allocation does not fit. Nothing was changed by it.

    Attributes:
        what: the thing that was being placed.
        requested: its size in bytes.
        available: bytes that were left for it between head and tail, after alignment.
        missing: bytes by which the arena is too small for this allocation (later ones may need more).

    Alignment alone may leave less than nothing; then `available` is 0, and `missing` counts what is lacking to that.
    """

    def __init__(self, what: str, *, requested: int, available: int):
        self.what, self.requested, self.available = what, requested, max(available, 0)
        self.missing = requested - available
        super().__init__(
            f"the arena is too small for {what}: {requested} bytes requested, {self.available} available, "
            f"{self.missing} missing; give a larger arena"
        )


class PlanFileError(TflmError):
    """A file does not hold the buffers to plan, or their plan.

    Attributes:
        line: number of the line, from 1.
        reason: what is wrong there, and where possible what would be right.
    """

    def __init__(self, reason: str, *, line: int):
        self.reason, self.line = reason, line
        super().__init__(f"line {line}: {reason}")


class PlanIgnored(UserWarning):
    """The memory plan that a model has is not followed, because every tensor is to have memory of its own."""


class VersionAssumed(UserWarning):
    """A release of TFLM does not say which version of a kernel library it has: the message says which one is taken."""


class RewriteError(TflmError):
    """A rewritten model does not do what the one did that it came from; a fault of this package, found in time."""


class ResolverError(TflmError):
    """An operator can't be added to a resolver: no room left, already there, or not known."""


class UnresolvedOperator(TflmError):
    """The model uses an operator, or a version of one, that the resolver does not have.

    Attributes:
        operator: builtin name (`FULLY_CONNECTED`) or custom name.
        version: the version that the model asks for.
    """

    def __init__(self, operator: str, version: int, reason: str):
        self.operator, self.version = operator, version
        super().__init__(reason)


class DelegateError(TflmError):
    """A delegate takes what it can't have: a node that is not there, or another's, or of a version it does not know."""


class OperatorError(TflmError):
    """An operator was given what it can't take.

    A kernel raises it with `reason` and, where it is about one, `tensor`; the graph adds where in the
    model the operator stands.

    Attributes:
        reason: what the operator can't take, and what it could.
        tensor: name of the tensor, or empty.
        operator: name of the operator.
        subgraph_index, operator_index: its place in the model, or None before the graph added it.
    """

    def __init__(self, reason: str, *, tensor: str = ""):
        super().__init__(reason)
        self.reason, self.tensor = reason, tensor
        self.operator = ""
        self.subgraph_index: int | None = None
        self.operator_index: int | None = None

    def locate(self, subgraph_index: int, operator_index: int, operator: str) -> None:
        """Add where the operator stands, unless an inner subgraph has already done so."""
        if self.operator_index is None:
            self.subgraph_index, self.operator_index = subgraph_index, operator_index
            self.operator = operator

    def __str__(self) -> str:
        parts = []
        if self.operator_index is not None:
            parts.append(f"subgraph {self.subgraph_index}, operator {self.operator_index} {self.operator}")
        if self.tensor:
            parts.append(f"tensor {self.tensor!r}")
        return ": ".join([", ".join(parts), self.reason] if parts else [self.reason])


class TensorError(TflmError, ValueError):
    """Values of the wrong dtype or shape were written to a tensor, or it has no data to give."""


class TensorIndexError(TflmError, IndexError):
    """There is no input, output or tensor with that index."""


class InterpreterError(TflmError, RuntimeError):
    """A call that is not allowed now, such as `invoke` before `allocate_tensors`."""


class FirmwareError(TflmError):
    """What a firmware takes can't be said: something was not measured, or a file of measurements can't be read."""


class DataError(TflmError):
    """A file or an array does not hold what a model's inputs take, or what is said of them."""
