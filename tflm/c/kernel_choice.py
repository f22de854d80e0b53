"""Choose the kernels for a compiled model: generated ones, or those of a library if it has suitable ones."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple

from tflm.c import cmsis_nn
from tflm.c.binding import BindSteps, no_steps
from tflm.c.cmsis_nn import Processors
from tflm.c.control_flow import Repeat
from tflm.c.library_calls import LibraryCall
from tflm.c.library_comparison import Place
from tflm.c.row_binding import bind_lean, bind_small
from tflm.compiler.language import Step
from tflm.errors import ArgumentError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import Registration
from tflm.libraries.kernel_library import AllowedOverlap, reference_overlap
from tflm.targets import Target, require_target

GENERATED = "generated"
"""Name of the kernels that this package generates."""

CHOICES = (GENERATED, cmsis_nn.LIBRARY)


class KernelChoice(NamedTuple):
    """The kernels for a model's operators.

    Attributes:
        bind, bind_lean: bind an operator to the fastest kernels, and to those that use less memory.
        overlap: the overlap of inputs and outputs that the library's functions allow.
        processors: the processors that the library's memory is planned for; None without a library.
    """

    bind: BindSteps
    bind_lean: BindSteps
    overlap: AllowedOverlap
    processors: Processors | None


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
