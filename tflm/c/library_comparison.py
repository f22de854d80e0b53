"""Decide which operators keep generated kernels in a program that calls CMSIS-NN.

An operator calls the library if its function is expected to take clearly fewer instructions than the kernel.
`tflm.firmware.instructions` estimates the library's instructions, `tflm.c.instructions` those of the generated kernel.
The latter were counted on a Cortex-M4; on processors with Helium, kernels are assumed to take as many.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tflm.c import cmsis_nn
from tflm.c.binding import BoundOperator
from tflm.c.cmsis_nn.processors import Processors
from tflm.c.instructions import instructions_of
from tflm.c.program import Program
from tflm.c.sizes import Build
from tflm.firmware.instructions import estimate
from tflm.libraries.cmsis_nn_scratch import has_dsp, has_mve

BUILD: Build = ("cortex-m4", "-O2")
"""The build whose instructions are compared."""

NO_FUNCTION = "CMSIS-NN has no function with TFLM's results"
SLOWER = "CMSIS-NN is expected to take at least as many instructions"

CLEARLY_FEWER = 0.97
"""Maximum ratio of the library's instructions to the kernel's for which the library is called. Estimates are off by a
few per cent."""
NOT_COUNTED = "its instructions were not counted; CMSIS-NN is called for processors with Helium"

Place = tuple[int, int]
"""A subgraph, and the index of an operator in it."""


class KeptKernel(NamedTuple):
    """The reason why an operator keeps its generated kernel.

    Attributes:
        reason: a sentence.
        ratio: instructions of the library relative to the generated kernel; None if one of them is unknown.
    """

    reason: str
    ratio: float | None = None


def kept_kernels(generated: Program, processors: Processors) -> dict[Place, KeptKernel]:
    """Return the operators that keep their generated kernels.

    Args:
        generated: the model with generated kernels alone.
        processors: the processors that the program is for.
    """
    ratios = _ratios(generated, processors)
    found = {
        (operator.subgraph, operator.index): _kept(operator, processors, ratios)
        for operators in generated.bound.operators
        for operator in operators
    }
    return {place: kept for place, kept in found.items() if kept is not None}


def _kept(operator: BoundOperator, processors: Processors, ratios: Mapping[Place, float]) -> KeptKernel | None:
    """Return the reason why an operator keeps its generated kernel; None if it calls the library.

    Generated kernels were not counted on processors without DSP, so that programs for only these call the library.
    """
    if cmsis_nn.bind(operator.node, processors) is None:
        return KeptKernel(NO_FUNCTION)
    ratio = ratios.get((operator.subgraph, operator.index))
    if ratio is not None:
        return KeptKernel(SLOWER, ratio) if ratio > CLEARLY_FEWER else None
    return KeptKernel(NOT_COUNTED) if any(map(has_dsp, processors.targets)) else None


def _ratios(generated: Program, processors: Processors) -> dict[Place, float]:
    """Return the library's instructions relative to the generated kernel, for operators that were counted."""
    ratios: dict[Place, float] = {}
    own = instructions_of(generated).operators
    for target in processors.targets:
        if not (has_dsp(target) or has_mve(target)):
            continue
        for operator in estimate(generated.bound.model, target=target, kernels=cmsis_nn.LIBRARY).operators:
            count = own.get(operator.operator_index, {}).get(BUILD)
            if operator.instructions and count:
                place = (0, operator.operator_index)
                ratios[place] = max(operator.instructions / count, ratios.get(place, 0))
    return ratios
