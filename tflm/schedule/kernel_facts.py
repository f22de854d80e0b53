"""What TFLM's reference kernels need, for calls on rows as well: the default of the planner."""

from __future__ import annotations

from functools import partial

from tflm.kernels import OPAQUE, REGISTRATIONS
from tflm.kernels.layers.trailing_output import behind_all_channels, behind_each_channel, behind_each_window
from tflm.kernels.overlap import NOWHERE, nowhere
from tflm.schedule.calls import CallNeeds, ShapedCall
from tflm.schema.model import Model

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

    def takes_rows(self, operator: int) -> bool:
        """Whether the kernel of an operator of the first subgraph can compute some rows of its output alone."""
        return True
