"""What a planner needs to know about kernels: the scratch memory of a call, and the allowed overlaps of inputs and
outputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, Protocol

from tflm.kernels import OPAQUE, REGISTRATIONS
from tflm.kernels.layers.geometry import Windows, behind_all_channels, behind_each_channel, behind_each_window
from tflm.kernels.overlap import NOWHERE, OperatorFacts, nowhere
from tflm.schedule.rows import Rows
from tflm.schema.model import Model


class ShapedCall(NamedTuple):
    """A call before its memory is planned.

    Attributes:
        subgraph, operator: the operator.
        facts: tensors with the shapes of the call.
        windows: the windows along rows and columns; None for a whole operator, or one without windows.
        lean: whether the slower kernels with less scratch are used, which compute the whole operator.
    """

    subgraph: int
    operator: int
    facts: OperatorFacts
    windows: Windows | None
    lean: bool = False


class CallNeeds(NamedTuple):
    """The memory needs of a call.

    Attributes:
        scratch: sizes in bytes of buffers that it writes before it reads them.
        overlaps: for each input, the allowed distances in bytes from the start of the output to that of the input if
            they share bytes.
        backwards: the same if the last window is computed first; empty for kernels that cannot do that.
    """

    scratch: tuple[int, ...]
    overlaps: tuple[range, ...]
    backwards: tuple[range, ...] = ()


class Kernels(Protocol):
    """What a planner needs to know about kernels."""

    def needs(self, call: ShapedCall) -> CallNeeds:
        """Return the memory needs of a call."""

    def has_lean(self, operator: int) -> bool:
        """Whether an operator of the first subgraph has slower kernels that use less RAM."""

    def rows_copied(self, operator: int) -> Sequence[Rows] | None:
        """Return the input rows that each output row is copied from; None if the operator does more than copy."""

    def takes_rows(self, operator: int) -> bool:
        """Whether the kernel of an operator of the first subgraph can compute a few rows of its output."""


WINDOWED = (behind_all_channels, behind_each_channel, behind_each_window)
"""Overlap rules that also apply to some rows of windows."""


class ReferenceKernels:
    """Kernels that read and write in the order that registrations declare, without scratch memory.

    Args:
        model: the model whose operators they run.
    """

    def __init__(self, model: Model):
        self._model = model

    def needs(self, call: ShapedCall) -> CallNeeds:
        """Return the memory needs of a call."""
        operator = (self._model.subgraphs[call.subgraph].operators or [])[call.operator]
        overlap = REGISTRATIONS.get(self._model.operator_name(operator), OPAQUE).overlap
        if overlap is None or len(call.facts.outputs) != 1:
            return CallNeeds((), (NOWHERE,) * len(call.facts.inputs))
        if call.windows is not None:
            overlap = partial(overlap, both=call.windows) if overlap in WINDOWED else nowhere
        places = range(len(call.facts.inputs))
        return CallNeeds((), tuple(NOWHERE if call.facts.inputs[i] is None else overlap(call.facts, i) for i in places))

    def has_lean(self, operator: int) -> bool:
        """Return False: there are no slower kernels."""
        return False

    def rows_copied(self, operator: int) -> Sequence[Rows] | None:
        """Return None: rows are not copied separately."""
        return None

    def takes_rows(self, operator: int) -> bool:
        """Whether the kernel of an operator of the first subgraph can compute a few rows of its output."""
        return True
