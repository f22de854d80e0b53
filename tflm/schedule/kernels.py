"""What a planner asks of kernels: the scratch of a call, and where its inputs and outputs may overlap."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, Protocol

from tflm.kernels import OPAQUE, REGISTRATIONS
from tflm.kernels.layers.trailing_output import Windows, behind_all_channels, behind_each_channel, behind_each_window
from tflm.kernels.overlap import NOWHERE, OperatorFacts, nowhere
from tflm.schedule.rows import Rows
from tflm.schema.model import Model


class ShapedCall(NamedTuple):
    """A call before its memory is planned.

    Attributes:
        subgraph, operator: which operator.
        facts: tensors with the shapes of the call.
        windows: where windows lie along rows and columns; None for a whole operator, or one without windows.
        lean: whether slower kernels that need less scratch are called, which compute the whole operator.
    """

    subgraph: int
    operator: int
    facts: OperatorFacts
    windows: Windows | None
    lean: bool = False


class CallNeeds(NamedTuple):
    """What a kernel needs for a call.

    Attributes:
        scratch: bytes of buffers that it writes before it reads them.
        overlaps: for each input, how many bytes behind the output it may begin where the two share bytes.
        backwards: the same where the last window is computed first; empty for kernels that do not.
    """

    scratch: tuple[int, ...]
    overlaps: tuple[range, ...]
    backwards: tuple[range, ...] = ()


class Kernels(Protocol):
    """What a planner needs to know about kernels."""

    def needs(self, call: ShapedCall) -> CallNeeds:
        """What a call needs."""

    def has_lean(self, operator: int) -> bool:
        """Whether an operator of the first subgraph has slower kernels that can take less RAM."""

    def rows_copied(self, operator: int) -> Sequence[Rows] | None:
        """For an operator that only copies, the input rows that each output row is copied from; None for others."""

    def takes_rows(self, operator: int) -> bool:
        """Whether the kernel of an operator of the first subgraph can compute some rows of its output alone."""


WINDOWED = (behind_all_channels, behind_each_channel, behind_each_window)
"""Overlaps that can be told of windows on some rows."""


class ReferenceKernels:
    """Kernels that read and write in the order that registrations declare, and need no scratch.

    Args:
        model: whose operators they run.
    """

    def __init__(self, model: Model):
        self._model = model

    def needs(self, call: ShapedCall) -> CallNeeds:
        """What a call needs."""
        operator = (self._model.subgraphs[call.subgraph].operators or [])[call.operator]
        overlap = REGISTRATIONS.get(self._model.operator_name(operator), OPAQUE).overlap
        if overlap is None or len(call.facts.outputs) != 1:
            return CallNeeds((), (NOWHERE,) * len(call.facts.inputs))
        if call.windows is not None:
            overlap = partial(overlap, both=call.windows) if overlap in WINDOWED else nowhere
        places = range(len(call.facts.inputs))
        return CallNeeds((), tuple(NOWHERE if call.facts.inputs[i] is None else overlap(call.facts, i) for i in places))

    def has_lean(self, operator: int) -> bool:
        """Whether an operator of the first subgraph has slower kernels that can take less RAM."""
        return False

    def rows_copied(self, operator: int) -> Sequence[Rows] | None:
        """For an operator that only copies, the input rows that each output row is copied from; None for others."""
        return None

    def takes_rows(self, operator: int) -> bool:
        """Whether the kernel of an operator of the first subgraph can compute some rows of its output alone."""
        return True
