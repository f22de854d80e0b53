"""Kernels of a C program that need no scratch and read and write in the order that registrations declare."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from tflm.kernels import OPAQUE, REGISTRATIONS
from tflm.kernels.layers.geometry import behind_all_channels, behind_each_channel, behind_each_window
from tflm.kernels.overlap import NOWHERE, nowhere
from tflm.schedule import plan as schedule
from tflm.schedule.calls import CallNeeds, Kernels, Plan, ShapedCall
from tflm.schedule.lowering import RamRequirements
from tflm.schedule.plan import ANY_RAM
from tflm.schedule.rows import Rows
from tflm.schema.model import Model

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

    def totals_bytes(self, operator: int) -> int:
        """Return 0: rows are not combined in several calls."""
        return 0

    def takes_rows(self, operator: int) -> bool:
        """Whether the kernel of an operator of the first subgraph can compute a few rows of its output."""
        return True


def plan(model: Model, kernels: Kernels | None = None, requirements: RamRequirements = ANY_RAM, **limits: Any) -> Plan:
    """Plan the memory of a model, with these kernels by default."""
    return schedule.plan(model, kernels or ReferenceKernels(model), requirements, **limits)
