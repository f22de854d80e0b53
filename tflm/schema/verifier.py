"""What the schema can't say: rules between the fields of a model whose structure is sound.

Each rule is a generator of findings over the tables; together they make sure that no index in the model leads
nowhere and that every constant is as large as its shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tflm.errors import ModelError
from tflm.schema.element_types import ELEMENT_TYPES
from tflm.schema.enums import BuiltinOperator
from tflm.schema.layout import Table
from tflm.schema.options import CallOnceOptions, IfOptions, WhileOptions
from tflm.schema.tables import Model, Operator, OperatorCode, QuantizationParameters, SubGraph, Tensor

SCHEMA_VERSION = 3

MAXIMUM_TENSOR_BYTES = 2**31 - 1
"""TFLM counts the bytes of a tensor in a 32-bit int."""

MAXIMUM_RANK = 32
"""No array of numpy has more dimensions, in any version."""

MAXIMUM_DEPTH = 100
"""Of subgraphs that run subgraphs. TFLM plans and runs them by recursion, on a small stack."""

MAXIMUM_STEPS = 1_000_000
"""Operators in one pass through a model, those of the subgraphs that it runs included."""

CALLED_SUBGRAPHS: dict[type, tuple[str, ...]] = {
    IfOptions: ("then_subgraph_index", "else_subgraph_index"),
    CallOnceOptions: ("init_subgraph_index",),
    WhileOptions: ("cond_subgraph_index", "body_subgraph_index"),
}
"""The options of operators that run other subgraphs, and the fields that name them, in the order they are planned."""

Findings = Iterator[ModelError]


def findings_in(model: Model) -> Findings:
    """Every finding in a model's tables, in the order of the file; nothing for a good model."""
    if model.version != SCHEMA_VERSION:
        reason = f"schema version {model.version}, only version {SCHEMA_VERSION} is known; convert the model again"
        yield ModelError(reason, table="Model", field="version")
    if not model.subgraphs:
        yield ModelError("a model needs at least one subgraph", table="Model", field="subgraphs")
    for i, code in enumerate(model.operator_codes or ()):
        yield from _operator_code(code, f"operator_codes[{i}]")
    for i, subgraph in enumerate(model.subgraphs or ()):
        yield from _subgraph(model, subgraph, f"subgraphs[{i}]")
    yield from _calls(model)
    for i, metadata in enumerate(model.metadata or ()):
        yield from _in_range(metadata, "buffer", model.buffers, f"metadata[{i}]")
    for i, signature in enumerate(model.signature_defs or ()):
        place = f"signature_defs[{i}]"
        bad_subgraph = list(_in_range(signature, "subgraph_index", model.subgraphs, place))
        yield from bad_subgraph
        if bad_subgraph or not model.subgraphs:
            continue
        tensors = model.subgraphs[signature.subgraph_index].tensors
        for side in ("inputs", "outputs"):
            for j, tensor_map in enumerate(getattr(signature, side) or ()):
                yield from _in_range(tensor_map, "tensor_index", tensors, f"{place}.{side}[{j}]")


def builtin_code(code: OperatorCode) -> BuiltinOperator:
    """The operator that a code stands for.

    Old writers know only `deprecated_builtin_code`, a byte; new ones write both, with a placeholder in the byte for
    codes beyond 127. The larger of the two is right in every case.
    """
    return max(code.builtin_code, BuiltinOperator(max(code.deprecated_builtin_code, 0)))


def called_subgraphs(operator: Operator) -> list[int]:
    """Indices of the subgraphs that an operator runs, in the order in which they are planned."""
    fields = CALLED_SUBGRAPHS.get(type(operator.builtin_options), ())
    return [getattr(operator.builtin_options, field) for field in fields]


def _operator_code(code: OperatorCode, place: str) -> Findings:
    if builtin_code(code) is BuiltinOperator.CUSTOM and not code.custom_code:
        yield ModelError("a CUSTOM operator needs a name", table="OperatorCode", field="custom_code", place=place)


def _subgraph(model: Model, subgraph: SubGraph, place: str) -> Findings:
    tensors = subgraph.tensors or []
    made = {index for operator in subgraph.operators or () for index in operator.outputs or ()}
    for i, tensor in enumerate(tensors):
        yield from _tensor(model, tensor, i in made, f"{place}.tensors[{i}]")
    for side in ("inputs", "outputs"):
        yield from _indices(subgraph, side, 0, tensors, place)
    for i, operator in enumerate(subgraph.operators or ()):
        here = f"{place}.operators[{i}]"
        yield from _in_range(operator, "opcode_index", model.operator_codes, here)
        yield from _indices(operator, "inputs", -1, tensors, here)
        yield from _indices(operator, "outputs", 0, tensors, here)
        yield from _indices(operator, "intermediates", 0, tensors, here)
        for field in CALLED_SUBGRAPHS.get(type(operator.builtin_options), ()):
            assert operator.builtin_options is not None
            yield from _in_range(operator.builtin_options, field, model.subgraphs, f"{here}.builtin_options")


def _tensor(model: Model, tensor: Tensor, made_by_operator: bool, place: str) -> Findings:
    def finding(field: str, reason: str) -> ModelError:
        return ModelError(reason, table="Tensor", field=field, place=place)

    shape = tensor.shape or ()
    lowest = -1 if made_by_operator else 0  # -1: an operator works the dimension out when it is prepared
    if any(dimension < lowest for dimension in shape):
        yield finding("shape", f"{list(shape)} has a negative dimension; give the tensor a fixed shape")
        return
    if len(shape) > MAXIMUM_RANK:
        yield finding("shape", f"has {len(shape)} dimensions, {MAXIMUM_RANK} is the most")
        return
    element = ELEMENT_TYPES[tensor.type]
    largest = element.packed_bytes(tuple(max(dimension, 1) for dimension in shape))
    if largest > MAXIMUM_TENSOR_BYTES:
        yield finding("shape", f"{list(shape)} of {tensor.type.name} takes {largest} bytes, more than 2 GiB")
    if tensor.quantization is not None:
        yield from _quantization(tensor.quantization, tensor, f"{place}.quantization")
    bad_buffer = list(_in_range(tensor, "buffer", model.buffers, place))
    yield from bad_buffer
    if bad_buffer or not model.buffers:
        return
    data = model.buffers[tensor.buffer].data
    if data and made_by_operator:
        yield finding("buffer", f"buffer {tensor.buffer} has data, but an operator writes the tensor")
        return
    needed = element.packed_bytes(shape)
    if data and element.bits and len(data) < needed:
        reason = f"{list(shape)} of {tensor.type.name} takes {needed} bytes, buffer {tensor.buffer} has {len(data)}"
        yield finding("buffer", reason)


def _quantization(quantization: QuantizationParameters, tensor: Tensor, place: str) -> Findings:
    dtype = ELEMENT_TYPES[tensor.type].dtype
    limits = np.iinfo(dtype if dtype.kind in "iu" and dtype.itemsize < 4 else np.int32)
    for zero_point in quantization.zero_point or ():
        if not limits.min <= zero_point <= limits.max:
            reason = f"{zero_point} is not between {limits.min} and {limits.max}, as {tensor.type.name} needs it"
            yield ModelError(reason, table="QuantizationParameters", field="zero_point", place=place)


def _in_range(table: Table, field: str, targets: Sequence[Any] | None, place: str) -> Findings:
    index, count = getattr(table, field), len(targets or ())
    if not 0 <= index < count:
        reason = f"index {index} is out of range, there are {count}"
        yield ModelError(reason, table=type(table).__name__, field=field, place=place)


def _indices(table: Table, field: str, lowest: int, tensors: list[Tensor], place: str) -> Findings:
    for index in getattr(table, field) or ():
        if not lowest <= index < len(tensors):
            reason = f"tensor index {index} is out of range, the subgraph has {len(tensors)} tensors"
            yield ModelError(reason, table=type(table).__name__, field=field, place=place)


def _calls(model: Model) -> Findings:
    """Subgraphs that run others must come to an end in sight: none runs itself, nor too deep, nor too often."""
    subgraphs = model.subgraphs or []
    calls = [
        [i for operator in subgraph.operators or () for i in called_subgraphs(operator) if 0 <= i < len(subgraphs)]
        for subgraph in subgraphs
    ]
    order, cycle = _callees_first(calls)
    if cycle is not None:
        reason = f"subgraph {cycle} runs itself, by way of IF, WHILE or CALL_ONCE"
        yield ModelError(reason, table="SubGraph", field="operators", place=f"subgraphs[{cycle}]")
        return
    depths, steps = [0] * len(calls), [0] * len(calls)
    for i in order:
        depths[i] = 1 + max((depths[called] for called in calls[i]), default=0)
        steps[i] = len(subgraphs[i].operators or ()) + sum(1 + steps[called] for called in calls[i])
        if depths[i] > MAXIMUM_DEPTH or steps[i] > MAXIMUM_STEPS:
            reason = (
                f"running it runs subgraphs {depths[i]} deep, and {steps[i]} operators in all; "
                f"{MAXIMUM_DEPTH} and {MAXIMUM_STEPS} are the most"
            )
            yield ModelError(reason, table="SubGraph", field="operators", place=f"subgraphs[{i}]")
            return


def _callees_first(calls: list[list[int]]) -> tuple[list[int], int | None]:
    """All nodes, each after those that it calls; and a node on a cycle, if there is one. Without recursion."""
    order: list[int] = []
    finished: set[int] = set()
    path: dict[int, Iterator[int]] = {}
    for start in range(len(calls)):
        pending = [start] if start not in finished else []
        while pending:
            node = pending[-1]
            called = next(path.setdefault(node, iter(calls[node])), None)
            if called is None:
                order.append(pending.pop())
                finished.add(node)
                del path[node]
            elif called in path:
                return order, called
            elif called not in finished:
                pending.append(called)
    return order, None
