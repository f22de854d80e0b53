"""Operators whose tensors share bytes: what registrations declare of it, against kernels here and in TFLM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from differential import assert_close, run
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st
from large_operators import LARGE
from oracle import Oracle, OracleError
from sampling import examples, one_type_each, some

import tflm
from tflm.kernels import REGISTRATIONS
from tflm.kernels.overlap import OperatorFacts
from tflm.schema.enums import ELEMENT_TYPES
from tflm.schema.patch import with_metadata
from tflm.schema.tables import METADATA_NAME, ONLINE, encode_offsets
from tflm.testing.operators import OPERATORS

CLAIMING = sorted(name for name, r in REGISTRATIONS.items() if r.overlap is not None or r.moves is not None)

FLOOR = 1 << 14
"""Where the output lies, so that an input may begin before it."""


def shared_places(model: tflm.Model) -> Iterator[dict[int, int]]:
    """Offsets of inputs and outputs of a model's one operator that share bytes, in every way that is declared.

    Each input alone: at the begin of the output, as near as it may, and some bytes farther; what is moved, where it
    ends up, alone and all at once.
    """
    operator = (model.subgraphs[0].operators or [])[-1]
    registration = REGISTRATIONS[model.operator_name(operator)]
    facts = OperatorFacts.of(model.root, model.subgraphs[0], operator)
    inputs, outputs = operator.inputs or (), operator.outputs or ()
    in_arena = [i for i, fact in enumerate(facts.inputs) if fact is not None and fact.constant is None and fact.bytes]
    moves = (registration.moves(facts) if registration.moves is not None else None) or ()
    placed = [
        {outputs[m.output]: FLOOR, inputs[m.input]: FLOOR + m.target - m.source} for m in moves if m.input in in_arena
    ]
    yield from placed
    if len({inputs[m.input] for m in moves}) == 1:
        yield {
            tensor: offset
            for places in ({inputs[m.input]: FLOOR, outputs[m.output]: FLOOR + m.source} for m in moves)
            for tensor, offset in places.items()
        }
    elif moves and len(set(inputs)) == len(inputs):
        yield {outputs[0]: FLOOR} | {inputs[m.input]: FLOOR + m.target for m in moves if m.input in in_arena}
    yield from (
        {outputs[m.output]: FLOOR, inputs[m.input]: FLOOR + m.target - m.source + 16}
        for m in moves
        if m.ascending and m.input in in_arena
    )
    if registration.overlap is not None:
        for i in in_arena:
            allowed = registration.overlap(facts, i)
            nearest = -(-allowed.start // 16) * 16 if allowed else 0
            for distance in {0, nearest, nearest + 16, 64}:
                if distance in allowed and abs(distance) < FLOOR:
                    yield {outputs[0]: FLOOR, inputs[i]: FLOOR + distance}


def with_places(model: tflm.Model, places: dict[int, int]) -> bytes:
    """The model with a plan that has those tensors there, and all others apart, above them."""
    tensors = model.subgraphs[0].tensors or []
    largest = max(ELEMENT_TYPES[tensor.type].packed_bytes(tuple(tensor.shape or ())) for tensor in tensors)
    apart = -(-largest // 16) * 16
    offsets = [
        ONLINE if model.buffers[tensor.buffer].data else 2 * FLOOR + (i + 2) * apart for i, tensor in enumerate(tensors)
    ]
    for tensor, offset in places.items():
        if offsets[tensor] != ONLINE:
            offsets[tensor] = offset
    return with_metadata(model, METADATA_NAME, encode_offsets(offsets))


@pytest.mark.parametrize("operator", [name for name in CLAIMING if name in OPERATORS])
@given(data=st.data())
@settings(max_examples=examples(10))
def test_tensors_may_share_bytes_where_it_is_declared(oracle: Oracle, operator: str, data: st.DataObject) -> None:
    case, invocations = data.draw(OPERATORS[operator])
    try:
        expected = oracle.run(case, invocations)
        model = tflm.Model(case)
        run(case, invocations)
    except (OracleError, tflm.TflmError):
        reject()  # such cases do not count: without any other, the test fails
    shares = list(shared_places(model))
    assume(shares)
    for places in shares:
        shared = with_places(model, places)
        assert tflm.verify(shared) == []
        for answers in (run(shared, invocations, arena_bytes=1 << 20), oracle.run(shared, invocations)):
            for answer, right in zip(answers, expected):
                assert_close(answer, right)


def test_every_operator_that_claims_it_is_tried() -> None:
    assert set(CLAIMING) <= set(OPERATORS)


def claiming(names: Iterable[str]) -> list[str]:
    """The large operators that claim it."""
    return [name for name in names if name.split("-")[0] in CLAIMING]


@pytest.mark.parametrize("name", some(claiming(LARGE), *claiming(one_type_each(LARGE))))
def test_so_may_large_tensors(name: str) -> None:
    case, invocations = LARGE[name]()
    plan = tflm.plan(tflm.Model(case), in_place=True)
    for answer, right in zip(*(run(data, invocations, arena_bytes=1 << 23) for data in (plan.data, case))):
        assert_close(answer, right)


@pytest.mark.parametrize("position", range(4))
def test_a_float_sum_may_lie_on_any_of_its_inputs(position: int) -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    inputs = [main.input(f"x{i}", (1, 4), tflm.schema.TensorType.FLOAT32) for i in range(4)]
    sum = main.tensor("sum", (1, 4), tflm.schema.TensorType.FLOAT32)
    main.operator(tflm.schema.BuiltinOperator.ADD_N, inputs, [sum])
    main.output(sum)
    data = with_places(tflm.Model(builder.build()), {inputs[position]: 0, sum: 0})
    values: list[Any] = [np.full((1, 4), value, np.float32) for value in (1, 10, -100, 1000)]
    (((answer,)),) = run(data, [values], arena_bytes=1 << 20)
    assert np.array_equal(answer, np.full((1, 4), 911, np.float32))
