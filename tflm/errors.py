"""All errors, which derive from `tflm.TflmError`, and warnings.

Errors have their details as attributes, in addition to the message.
"""

from __future__ import annotations


class TflmError(Exception):
    """The base class of all errors that this package raises on purpose."""


class ArgumentError(TflmError, TypeError, ValueError):
    """An argument is invalid; the message says what is allowed, and how to get it."""


class ModelError(TflmError):
    """The bytes are not a valid model.

    Attributes:
        place: path from the root to the table, such as `subgraphs[0].tensors[3]`; empty for the file.
        table: name of the schema table, or `file`.
        field: name of the field, or empty.
        reason: what is wrong and, if possible, what would be right.
        level: "error", or "warning" for an oddity that does not prevent running.
        unsound: whether the model runs in TFLM and with `checks="tflm"`, but its results are meaningless.
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
    """A buffer cannot be used as an arena, or memory was requested at the wrong time."""


class ArenaExhausted(ArenaError):
    """An allocation does not fit; it changed nothing.

    Attributes:
        what: what was being allocated.
        requested: its size in bytes.
        available: bytes left between head and tail, after alignment.
        missing: bytes by which the arena is too small for this allocation (later ones may need more).

    If alignment alone exceeds the free bytes, `available` is 0, and `missing` includes the excess.
    """

    def __init__(self, what: str, *, requested: int, available: int):
        self.what, self.requested, self.available = what, requested, max(available, 0)
        self.missing = requested - available
        super().__init__(
            f"the arena is too small for {what}: {requested} bytes requested, {self.available} available, "
            f"{self.missing} missing; use a larger arena"
        )


class PlanFileError(TflmError):
    """A file of buffers or of their plan is invalid.

    Attributes:
        line: number of the line, from 1.
        reason: what is wrong there and, if possible, what would be right.
    """

    def __init__(self, reason: str, *, line: int):
        self.reason, self.line = reason, line
        super().__init__(f"line {line}: {reason}")


class PlanIgnored(UserWarning):
    """The model's memory plan is ignored, because all tensors are preserved."""


class ArenaShared(UserWarning):
    """Two interpreters use the same bytes without sharing an allocator, so that each overwrites the other's tensors."""


class VersionAssumed(UserWarning):
    """A release leaves open which TFLM or kernel library is meant; the message says which version is assumed."""


class CompileError(TflmError):
    """A model cannot be compiled to C: it has operators without C kernels, or does not fit the RAM that is allowed."""


class StreamError(ArgumentError):
    """A model has no streaming form, or none with this hop; the message names the operator and what to do."""


class RewriteError(TflmError):
    """A rewritten model's results differ from the original's: a bug in this package, found before writing the model."""


class QuantizerError(TflmError):
    """litert-quantizer fails on a model; the message has its error."""


class ResolverError(TflmError):
    """An operator cannot be added to a resolver: the resolver is full, or the operator is already there or unknown."""


class UnresolvedOperator(TflmError):
    """The resolver lacks an operator of the model, or its version.

    Attributes:
        operator: builtin name (`FULLY_CONNECTED`) or custom name.
        version: the version in the model.
    """

    def __init__(self, operator: str, version: int, reason: str):
        self.operator, self.version = operator, version
        super().__init__(reason)


class DelegateError(TflmError):
    """A delegate claims a node that does not exist, belongs to another delegate, or has an unknown version."""


class OperatorError(TflmError):
    """An operator does not support its tensors or options.

    A kernel raises it with `reason` and, if it is about one tensor, `tensor`; the graph adds the operator's place in
    the model.

    Attributes:
        reason: what the operator does not support, and what it does.
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
        """Add the operator's place, unless an inner subgraph has already done so."""
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
    """Values written to a tensor have the wrong dtype or shape, or a tensor that is read has no data."""


class TensorIndexError(TflmError, IndexError):
    """An index of an input, output or tensor is out of range."""


class InterpreterError(TflmError, RuntimeError):
    """A call that is not allowed now, such as `invoke` before `allocate_tensors`."""


class FirmwareError(TflmError):
    """A firmware's size or time is unknown: it was not measured, or a file of measurements is invalid."""


class DataError(TflmError):
    """A file or an array does not match a model's inputs."""


class DeviceError(TflmError):
    """A device does not answer within the time limit, or its answer is invalid; the message says which."""


class DeviceReset(DeviceError):
    """A device lost what it held: it was reset or disconnected, or something else opened a session with it."""


class WrongModel(DeviceError):
    """A device has another model in its flash than the one it is compared with."""


class CheckFailed(TflmError, AssertionError):
    """A planner, allocator or kernel violates an invariant; found by `tflm.testing`.

    Attributes:
        invariant: what does not hold.
        counterexample: the smallest case that was found, as text of several lines.
    """

    def __init__(self, invariant: str, counterexample: str):
        self.invariant, self.counterexample = invariant, counterexample
        super().__init__(f"{invariant}\n\n{counterexample}")
