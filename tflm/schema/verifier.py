"""What the schema can't say: rules between the fields of a model whose structure is sound.

Each rule is a generator of findings over the tables; together they make sure that no index in the model leads
nowhere and that every constant is as large as its shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tflm.errors import ModelError
from tflm.schema.element_types import ELEMENT_TYPES
from tflm.schema.enums import BuiltinOperator
from tflm.schema.layout import Table
from tflm.schema.options import CallOnceOptions, IfOptions, WhileOptions
from tflm.schema.tables import Model, Operator, OperatorCode, SubGraph, Tensor

SCHEMA_VERSION = 3

MAXIMUM_TENSOR_BYTES = 2**31 - 1
"""TFLM counts the bytes of a tensor in a 32-bit int."""

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
    yield from _recursion(model)
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
    element = ELEMENT_TYPES[tensor.type]
    needed = element.packed_bytes(shape)
    if needed > MAXIMUM_TENSOR_BYTES:
        yield finding("shape", f"{list(shape)} of {tensor.type.name} takes {needed} bytes, more than 2 GiB")
    bad_buffer = list(_in_range(tensor, "buffer", model.buffers, place))
    yield from bad_buffer
    if bad_buffer or not model.buffers:
        return
    data = model.buffers[tensor.buffer].data
    if data and element.bits and len(data) < needed:
        reason = f"{list(shape)} of {tensor.type.name} takes {needed} bytes, buffer {tensor.buffer} has {len(data)}"
        yield finding("buffer", reason)


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


def _recursion(model: Model) -> Findings:
    """A subgraph that ends up running itself could never be planned."""
    subgraphs = model.subgraphs or []
    calls = [
        [i for operator in subgraph.operators or () for i in called_subgraphs(operator) if 0 <= i < len(subgraphs)]
        for subgraph in subgraphs
    ]
    finished: set[int] = set()
    for start in range(len(subgraphs)):
        cycle = _cycle_from(start, calls.__getitem__, finished)
        if cycle is not None:
            reason = f"subgraph {cycle} runs itself, by way of IF, WHILE or CALL_ONCE"
            yield ModelError(reason, table="SubGraph", field="operators", place=f"subgraphs[{cycle}]")


def _cycle_from(start: int, calls: Callable[[int], list[int]], finished: set[int]) -> int | None:
    """A node on a cycle that can be reached from `start`, by depth-first search without recursion."""
    path: dict[int, Iterator[int]] = {}
    pending = [start]
    while pending:
        node = pending[-1]
        if node not in path and node not in finished:
            path[node] = iter(calls(node))
        successor = next(path[node], None) if node in path else None
        if successor is None:
            finished.add(pending.pop())
            path.pop(node, None)
        elif successor in path:
            return successor
        elif successor not in finished:
            pending.append(successor)
    return None
