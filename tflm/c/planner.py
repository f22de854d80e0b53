"""Models bound to C kernels, and plans of their RAM."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tflm.c import source
from tflm.c.binding import BoundModel, StateAndScratch, bind_model
from tflm.c.instructions import instructions_of
from tflm.c.kernel_choice import GENERATED, KernelChoice
from tflm.c.kernel_needs import BoundKernels
from tflm.c.program import FEED_COUNTER, FEED_COUNTER_BYTES, Program, program_of
from tflm.errors import CompileError
from tflm.runtime.micro_measurement import measure_arena
from tflm.runtime.micro_op_resolver import AllOpsResolver
from tflm.schedule.calls import Plan
from tflm.schedule.line_buffers import with_feeder
from tflm.schedule.lowering import VIEW_ALIGNMENT, RamRequirements
from tflm.schedule.plan import RAM_ALIGNMENT, plan
from tflm.schema.model import Model
from tflm.targets import CORTEX_M, Target, align_up

MINIMUM_ALIGNMENT = 4
"""Minimum alignment of buffers in RAM, in bytes: kernels read several elements at once."""

MAX_CONSTANTS = 1 << 24
"""Default limit of a model's constants, in bytes."""


@dataclass(frozen=True)
class CompileOptions:
    """Options of `compile_model`."""

    ram: int | None = None
    memories: Mapping[str, int] = field(default_factory=dict)
    self_test: int | Sequence[Sequence[Any]] = 0
    kernels: str = GENERATED
    target: Target | None = None
    max_constants: int = MAX_CONSTANTS
    stream: int | None = None
    stream_input: int | None = None
    feed_rows: int | None = None
    optimize: str | None = None


@dataclass(frozen=True)
class PlannedModel:
    """A model bound to kernels, its state and scratch memory, and the plan of its RAM."""

    bound: BoundModel
    extra: StateAndScratch
    plan: Plan

    @property
    def ram_bytes(self) -> int:
        """The bytes of RAM that the plan takes."""
        return self.plan.ram_bytes

    @property
    def alignment(self) -> int:
        """The alignment of buffers in RAM, in bytes."""
        return alignment_of(self.extra)

    @functools.cached_property
    def instructions(self) -> int | None:
        """An estimate of the instructions of an invoke on a Cortex-M4 with -O2; None if unknown."""
        total = instructions_of(self.program()).total
        return None if total is None else total["cortex-m4", "-O2"]

    def program(self, origins: Sequence[int] | None = None) -> Program:
        """Return the program; see `program_of` for `origins`."""
        return program_of(self.bound, self.extra, self.plan, origins)

    def is_faster(self, other: PlannedModel, share: float) -> bool:
        """Whether the program takes at most a share of another one's instructions."""
        taken, compared = self.instructions, other.instructions
        return taken is not None and compared is not None and taken <= share * compared


class _Bound(NamedTuple):
    """A model bound to kernels, with its state and scratch memory, and the bytes of state that feeding rows needs."""

    given: Model
    model: BoundModel
    extra: StateAndScratch
    feed_state: dict[str, int]


class Planner:
    """Binds models to kernels and plans their RAM. What it is asked for again, it returns again."""

    def __init__(self) -> None:
        self._bound: dict[tuple[Any, ...], _Bound] = {}
        self._known: dict[tuple[Any, ...], PlannedModel] = {}

    def planned(self, model: Model, options: CompileOptions, choice: KernelChoice) -> PlannedModel:
        """Bind a model to kernels, and plan its RAM within the memory of the options.

        Raises:
            CompileError: an operator has no kernels, or the model does not fit `options.ram`.
        """
        kernels = model, options.feed_rows, choice
        if kernels not in self._bound:
            self._bound[kernels] = _bound(*kernels)
        asked = *kernels, options.ram, tuple(options.memories.items()), options.optimize
        if asked not in self._known:
            self._known[asked] = _planned(self._bound[kernels], options, choice)
        return self._known[asked]


def _bound(model: Model, feed_rows: int | None, choice: KernelChoice) -> _Bound:
    """Bind a model to kernels."""
    feed, feed_state = None, dict[str, int]()
    if feed_rows is not None:
        (model, feed), feed_state = with_feeder(model, feed_rows), {FEED_COUNTER: FEED_COUNTER_BYTES}
    bound = bind_model(model, choice.bind, feed, choice.bind_lean)
    return _Bound(model, bound, StateAndScratch(bound, source.written), feed_state)


def _planned(kernels: _Bound, options: CompileOptions, choice: KernelChoice) -> PlannedModel:
    """Plan the RAM of a model that is bound to kernels."""
    given, bound, extra, feed_state = kernels
    planned = plan(
        bound.model,
        BoundKernels(bound, extra, choice.overlap, accumulates=choice.accumulates),
        RamRequirements(
            {one.name: one.initial.nbytes for one in extra.persistent.values() if not one.is_tensor} | feed_state,
            alignment_of(extra),
            bound.states,
            bound.feed,
            _view_alignment(bound, choice),
        ),
        ram_bytes=options.ram,
        memories=tuple(options.memories.values()),
        optimize=options.optimize,
        max_bytes=functools.partial(interpreter_bytes, given, extra),
    )
    if options.ram is not None and planned.ram_bytes > options.ram:
        raise CompileError(
            f"the smallest plan that was found takes {planned.ram_bytes:,} bytes of RAM, "
            f"{planned.ram_bytes - options.ram:,} more than {options.ram:,}; no smaller plan is known"
        )
    unused = len(options.memories) - len(planned.memories)
    return PlannedModel(bound, extra, planned._replace(memories=planned.memories + (0,) * max(unused, 0)))


def interpreter_bytes(model: Model, extra: StateAndScratch) -> int:
    """Return the bytes that TFLM uses on a Cortex-M for tensors and scratch buffers, and those for state that lasts
    between invokes."""
    head = measure_arena(model, AllOpsResolver(), target=CORTEX_M).head_bytes
    alignment = alignment_of(extra)
    return align_up(
        head + sum(align_up(one.initial.nbytes, alignment) for one in extra.persistent.values()), RAM_ALIGNMENT
    )


def _view_alignment(bound: BoundModel, choice: KernelChoice) -> int:
    """Return the alignment of tensors inside other tensors, in bytes. Generated kernels need only that of an
    element."""
    if not bound.states or choice.processors is not None:
        return VIEW_ALIGNMENT
    nodes, tensors = [operator.node for operator in bound.operators[0]], bound.tensors()
    used = [tensors[i] for node in nodes for i in (*node.inputs, *node.outputs) if i >= 0]
    return max((tensor.elements.itemsize for tensor in used if tensor.offset is not None), default=VIEW_ALIGNMENT)


def alignment_of(extra: StateAndScratch) -> int:
    """Return the alignment of buffers in RAM, in bytes."""
    return max(extra.alignment, MINIMUM_ALIGNMENT)
