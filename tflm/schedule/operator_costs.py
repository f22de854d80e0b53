"""Arena costs of operators, measured with the target's kernels by adding another copy of each operator."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Union

import numpy as np

from tflm.graph import Graph, multiply_accumulates
from tflm.runtime.micro_measurement import SeparateArenas
from tflm.runtime.micro_measurement_report import ArenaMeasurement
from tflm.schedule.band_costs import OperatorCosts
from tflm.schedule.bands import BandRule
from tflm.schema.enums import BuiltinOperator
from tflm.schema.model import Model
from tflm.schema.options import ConcatenationOptions, SliceOptions
from tflm.schema.tables import Operator

Measure = Callable[[Model], ArenaMeasurement]
"""Measures a model with `measure_arena` on one target with one resolver."""


def measured_costs(
    model: Model, rules: Sequence[BandRule | None], measured: ArenaMeasurement, measure: Measure
) -> OperatorCosts:
    """Measure the costs of a model's operators; those of the tail only for operators that can run in bands.

    Args:
        model: the model.
        rules: the band rule of each operator, or None.
        measured: the model's measurement from `measure`.
    """
    main = model.subgraphs[0]
    operators = main.operators or []
    scratch = [0] * len(operators)
    for buffer in measured.buffers:
        if buffer.kind == "scratch" and buffer.first_use <= len(operators):
            scratch[buffer.first_use - 1] += buffer.bytes
    known: dict[tuple[object, ...], int] = {}
    tails = []
    for i, operator in enumerate(operators):
        key = _kind_of(model, operator)
        if rules[i] is not None and key not in known:
            known[key] = _tail_of_one_more(model, i, measure)
        tails.append(known.get(key, 0))
    image = next((operators[i].outputs or ())[0] for i, rule in enumerate(rules) if rule is not None)
    return OperatorCosts(
        tail=tuple(tails),
        scratch=tuple(scratch),
        macs=tuple(multiply_accumulates(model, main, operator) for operator in operators),
        slice=_tail_of_movers(model, image, _slice, measure),
        concatenation=_tail_of_movers(model, image, _concatenation, measure),
    )


def _kind_of(model: Model, operator: Operator) -> tuple[object, ...]:
    """A key of everything that an operator's tail depends on."""
    tensors = model.subgraphs[0].tensors or []
    inputs = [tensors[i] if i >= 0 else None for i in operator.inputs or ()]
    channels = [(tensors[i].shape or ())[-1:] for i in operator.outputs or ()]
    return (model.operator_name(operator), *channels, *(None if tensor is None else tensor.type for tensor in inputs))


def _tail_of_one_more(model: Model, index: int, measure: Measure) -> int:
    def with_copies(count: int) -> Model:
        graph = Graph(model)
        operator = graph.operators[index]
        (output,) = operator.outputs or ()
        copies = [graph.add_tensor(output, "", graph.shape(output)) for _ in range(count)]
        graph.operators = [operator, *(graph.like(operator, operator.inputs or (), [copy]) for copy in copies)]
        varying = [tensor for tensor in operator.inputs or () if tensor >= 0 and not graph.is_constant(tensor)]
        graph.set_ends(list(dict.fromkeys(varying)), [output])
        return graph.checked()

    return _difference(with_copies, measure)


def _tail_of_movers(model: Model, image: int, make: Callable[[Graph, int, int], Operator], measure: Measure) -> int:
    def with_movers(count: int) -> Model:
        graph = Graph(model)
        graph.operators = [make(graph, image, i) for i in range(count)]
        last = graph.operators[-1:]
        graph.set_ends([image], [(operator.outputs or ())[0] for operator in last] or [image])
        return graph.checked()

    return _difference(lambda count: with_movers(count + 1), measure)


def _slice(graph: Graph, image: int, number: int) -> Operator:
    shape = (*graph.shape(image)[:3], number + 1)
    begin, size = (graph.add_constant("", np.array(numbers, np.int32)) for numbers in ((0, 0, 0, number), shape))
    output = graph.add_tensor(image, "", shape)
    return graph.make_operator(BuiltinOperator.SLICE, 1, [image, begin, size], [output], SliceOptions())


def _concatenation(graph: Graph, image: int, number: int) -> Operator:
    batches, *rest = graph.shape(image)
    output = graph.add_tensor(image, "", (2 * batches, *rest))
    options = ConcatenationOptions(axis=0)
    return graph.make_operator(BuiltinOperator.CONCATENATION, 1, [image, image], [output], options)


MEASURED_COPIES = 8
"""Number of copies over which the cost is averaged, because alignment varies between copies."""


def _difference(with_copies: Callable[[int], Model], measure: Measure) -> int:
    """Return the bytes of the tail that another copy adds."""
    none, some = (measure(with_copies(count)).tail_bytes for count in (0, MEASURED_COPIES))
    return -(-(some - none) // MEASURED_COPIES)


TOO_LARGE = sys.maxsize
"""Objective of a model whose tail exceeds its memory; worse than any other."""


@dataclass(frozen=True)
class OneArena:
    """The smallest arena for head and tail together.

    Attributes:
        measure: lays a model out.
    """

    measure: Measure

    def measured(self, model: Model) -> int:
        """The objective of a complete model, in bytes."""
        return self.measure(model).minimum_arena_bytes

    def expected(self, head_bytes: int, tail_bytes: int) -> int:
        """The objective from estimates of head and tail, in bytes."""
        return head_bytes + tail_bytes


@dataclass(frozen=True)
class HeadArena:
    """The smallest arena for the head, if the tail fits its own memory.

    Attributes:
        measure: lays a model out in two arenas.
        tail_ram: bytes of the tail's memory; None for any number.
    """

    measure: Callable[[Model], SeparateArenas]
    tail_ram: int | None

    def measured(self, model: Model) -> int:
        """The objective of a complete model, in bytes."""
        arenas = self.measure(model)
        return self.expected(arenas.head_arena_bytes, arenas.tail_arena_bytes)

    def expected(self, head_bytes: int, tail_bytes: int) -> int:
        """The objective from estimates of head and tail, in bytes."""
        fits = self.tail_ram is None or tail_bytes <= self.tail_ram
        return head_bytes if fits else TOO_LARGE


Objective = Union[OneArena, HeadArena]
"""The size in bytes that a search minimizes."""
