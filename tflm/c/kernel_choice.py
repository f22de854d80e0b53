"""Choose the kernels for a compiled model: generated ones, or those of a library if it has suitable ones."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

from tflm.c import cmsis_nn
from tflm.c.binding import BindSteps, BoundOperator, no_steps
from tflm.c.cmsis_nn import Processors
from tflm.c.control_flow import Repeat
from tflm.c.instructions import instructions_of
from tflm.c.library_calls import LibraryCall
from tflm.c.program import Program
from tflm.c.row_binding import bind_lean, bind_small
from tflm.c.sizes import Build
from tflm.compiler.language import Step
from tflm.errors import ArgumentError
from tflm.firmware.instructions import estimate
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import Registration
from tflm.libraries.cmsis_nn_scratch import has_dsp, has_mve
from tflm.libraries.kernel_library import AllowedOverlap, reference_overlap
from tflm.targets import Target, require_target

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


GENERATED = "generated"
"""Name of the kernels that this package generates."""

CHOICES = (GENERATED, cmsis_nn.LIBRARY)


class KernelChoice(NamedTuple):
    """The kernels for a model's operators.

    Attributes:
        bind, bind_lean: bind an operator to the fastest kernels, and to those that use less memory.
        overlap: the overlap of inputs and outputs that the library's functions allow.
        processors: the processors that the library's memory is planned for; None without a library.
        accumulates: whether reductions may combine rows with totals.
    """

    bind: BindSteps
    bind_lean: BindSteps
    overlap: AllowedOverlap
    processors: Processors | None
    accumulates: bool = True


ALL_GENERATED = KernelChoice(bind_small, bind_lean, reference_overlap, None)


def library_processors(kernels: str, target: Target | None) -> Processors | None:
    """Return the processors that a library is called for; None if all kernels are generated.

    Args:
        kernels: "generated" or "cmsis-nn".
        target: the processor; None for every processor that the library runs on.

    Raises:
        ArgumentError: the kernels are unknown, or do not support the target.
    """
    if kernels not in CHOICES:
        raise ArgumentError(f"unknown kernels {kernels!r} for a compiled model; use {' or '.join(CHOICES)}")
    if kernels == GENERATED:
        if target is not None:
            raise ArgumentError("a target is for kernels='cmsis-nn'; generated kernels are the same on all processors")
        return None
    return Processors.of(None if target is None else require_target(target))


def with_library(processors: Processors, kept: Container[Place]) -> KernelChoice:
    """Return a choice with a library's functions.

    Args:
        processors: the processors that the library's memory is planned for.
        kept: the operators that use generated kernels.
    """

    def bind(
        context: KernelContext, node: Node, registration: Registration
    ) -> Sequence[Step | Repeat[Step] | LibraryCall] | None:
        steps = None if _place_of(context, node) in kept else cmsis_nn.bind(node, processors)
        return steps or bind_small(context, node, registration)

    return KernelChoice(bind, no_steps, processors.overlap(), processors)


def _place_of(context: KernelContext, node: Node) -> Place:
    return next(i for i, each in enumerate(context.model.subgraphs) if each is context.subgraph), node.index
