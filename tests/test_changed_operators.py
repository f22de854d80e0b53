"""Operators with a changed option, shape, quantization, type or number of tensors: refused wherever TFLM refuses them.

What TFLM runs, it may run into memory that it does not own: such models may be refused here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from differential import assert_close, run
from models import renumbered
from oracle import Oracle, OracleError
from sampling import drawn

import tflm
from tflm.schema import ELEMENT_TYPES, TensorType, read_model
from tflm.schema.layout import fields_of
from tflm.schema.tables import Operator, SubGraph
from tflm.schema.writer import write_model
from tflm.testing.operators import OPERATORS

Setting = tuple[Any, str, Any]
"""What to set: an object, the name of a field, and a value."""

CASES = 6
"""Models that are drawn of an operator; of the second and later ones, only quantization of other types is changed."""

TYPES = (TensorType.INT8, TensorType.INT16, TensorType.FLOAT32)


def settings_of(subgraph: SubGraph, operator: Operator, constants: set[int]) -> Iterator[Setting]:
    """One change of the operator after the other."""
    options = operator.builtin_options
    for field in () if options is None else fields_of(type(options)):
        value = getattr(options, field.name)
        if isinstance(value, bool):
            yield options, field.name, not value
        elif isinstance(value, int):
            yield from ((options, field.name, type(value)(each)) for each in _other_numbers(value))
    for side in ("inputs", "outputs"):
        places = getattr(operator, side) or ()
        yield operator, side, places[:-1]
        yield operator, side, (*places, *places[-1:])
        for index in (i for i in places if i >= 0):
            tensor = (subgraph.tensors or [])[index]
            yield from (
                (tensor, "shape", shape) for shape in _other_shapes(tuple(tensor.shape or ()), index in constants)
            )
            if index not in constants:
                yield from ((tensor, "type", type) for type in TYPES if type != tensor.type)
            found = tensor.quantization
            if found is not None and found.scale:
                yield tensor, "quantization", replace(found, scale=tuple(2 * each for each in found.scale))
                yield (
                    tensor,
                    "quantization",
                    replace(found, zero_point=tuple(each + 1 for each in found.zero_point or (0,))),
                )
    inputs = operator.inputs or ()
    yield from ((operator, "inputs", (*inputs[:i], -1, *inputs[i + 1 :])) for i in range(len(inputs)))


def _other_numbers(value: int) -> list[int]:
    """Numbers at the ends of what an option may be; of an enumeration, its neighbours."""
    kind = type(value)
    if kind is int:
        return [each for each in (0, -1, value + 1, 1000) if each != value]
    members = {*map(int, kind.__members__.values())}  # type: ignore[attr-defined]
    return [each for each in (value - 1, value + 1) if each in members]


def _other_shapes(shape: tuple[int, ...], is_constant: bool) -> list[tuple[int, ...]]:
    """With as many elements; and with more, unless the elements are in the file."""
    found = [(1, *shape), (*shape, 1)]
    if shape:
        found += [] if is_constant else [(*shape[:-1], shape[-1] + 1), (shape[0] + 1, *shape[1:])]
        found += [shape[1:]] if shape[0] == 1 else []
    return found


def changed(data: bytes, kind: str, field: str | None) -> Iterator[tuple[str, bytes]]:
    """Each change of the first subgraph's last operator of a kind, or of one field, in words, and the model with it."""
    root, model = read_model(memoryview(data)), tflm.Model(data)
    (subgraph, *_) = root.subgraphs or ()
    (*_, operator) = (each for each in subgraph.operators or () if model.operator_name(each) == kind)
    constants = {i for i, each in enumerate(subgraph.tensors or ()) if (root.buffers or [])[each.buffer].data}
    for owner, name, value in [*settings_of(subgraph, operator, constants)]:
        if field not in (None, name):
            continue
        before = getattr(owner, name)
        setattr(owner, name, value)
        try:
            yield f"{type(owner).__name__}.{name} = {value} instead of {before}", write_model(root)
        except (OverflowError, ValueError):  # the file format has no such number
            continue
        finally:
            setattr(owner, name, before)


def fitting(model: tflm.Model, values: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    """The values, or some of them again, as the model's inputs."""
    main = model.subgraphs[0]
    tensors = [(main.tensors or [])[i] for i in main.inputs or ()]
    dtypes = (ELEMENT_TYPES[tensor.type].dtype for tensor in tensors)
    return [np.resize(each, of.shape or ()).astype(dtype) for each, of, dtype in zip(values, tensors, dtypes)]


OF_TENSOR = re.compile(r"has (?:type (?P<type>\w+)|shape (?P<shape>\[.*?\])|scale|zero point|\d+ dimensions)")
"""Reasons that are about a tensor."""


def require_place(error: tflm.OperatorError, model: tflm.Model) -> None:
    """Require that an error names the operator, and the tensor whose type, shape or quantization it is about."""
    assert error.operator_index is not None, error
    subgraph = model.subgraphs[error.subgraph_index or 0]
    operator = (subgraph.operators or [])[error.operator_index]
    assert error.operator == model.operator_name(operator)
    assert f"operator {error.operator_index} {error.operator}" in str(error)
    found = OF_TENSOR.match(error.reason)
    if found is not None:
        used = [(subgraph.tensors or [])[i] for i in (*(operator.inputs or ()), *(operator.outputs or ())) if i >= 0]
        named = [tensor for tensor in used if tensor.name == error.tensor]
        assert named, error
        assert found["type"] in (None, *(tensor.type.name for tensor in named)), error
        assert found["shape"] in (None, *(str([*(tensor.shape or ())]) for tensor in named)), error


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_what_tflm_refuses_is_refused(oracle: Oracle, name: str) -> None:
    wrong: dict[str, str] = {}
    seen: set[frozenset[tuple[TensorType, bool]]] = set()
    for data, invocations in drawn(name, CASES):
        tensors = tflm.Model(data).subgraphs[0].tensors or ()
        types = frozenset((tensor.type, tensor.quantization is not None) for tensor in tensors)
        if types in seen:
            continue
        for change, model in changed(bytes(data), name, "quantization" if seen else None):
            try:
                parsed = tflm.Model(model)
            except tflm.TflmError:
                continue
            inputs = fitting(parsed, invocations[0])
            try:
                answer: Any = run(parsed, [inputs], delegates=())
            except tflm.OperatorError as error:
                require_place(error, parsed)
                continue
            except tflm.TflmError:
                continue
            try:
                expected = oracle.run(model, [inputs])
            except OracleError as error:
                wrong[change] = str(error)
                continue
            if ".shape" not in change:  # TFLM may leave a part of another shape as it is
                assert_close(answer[0], expected[0])
        seen.add(types)
    assert wrong == {}


@pytest.mark.parametrize(
    "name",
    ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "RESHAPE", "SVDF", "TRANSPOSE_CONV", "TFLM_DECODE"],
)
def test_an_operator_computes_the_same_whatever_the_numbers_of_its_tensors(name: str) -> None:
    """An optional input may be tensor 0, and an output come before all inputs."""
    for data, invocations in drawn(name, CASES)[:3]:
        expected = outcome(data, invocations)
        for by in range(1, len(tflm.Model(data).subgraphs[0].tensors or ())):
            found = outcome(renumbered(data, by), invocations)
            for one, other in zip(found, expected, strict=True):
                for ours, theirs in zip(one, other, strict=True):
                    np.testing.assert_array_equal(ours, theirs)


def outcome(data: bytes, invocations: Any) -> Any:
    """The answers of numpy, or why there are none."""
    try:
        return run(data, invocations, delegates=())
    except tflm.OperatorError as error:
        return (error.reason,)
