"""Rules that the schema can't express, between the fields of a structurally valid model.

Each rule is a generator of findings over the tables. Together they ensure that every index is in range, that every
constant has the size of its shape, that every tensor has one writer, which comes before its readers, that every scale
is a valid divisor, and that no subgraph runs itself.

Oddities that TFLM runs anyway are warnings. If TFLM runs a model on uninitialized bytes, or its results depend on which
operator writes last, the error is marked as unsound: such a model can be run on request.

A dimension of zero is allowed: such models run in TFLM. Operators that don't support it raise an error in `prepare`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tflm.errors import ModelError
from tflm.hooks import plan_findings
from tflm.schema.enums import ELEMENT_TYPES, BuiltinOperator, TensorType
from tflm.schema.layout import Table
from tflm.schema.tables import (
    CALLED_SUBGRAPHS,
    ONLINE,
    Model,
    Operator,
    OperatorCode,
    QuantizationParameters,
    SignatureDef,
    SubGraph,
    Tensor,
    builtin_code,
    called_subgraphs,
    offline_offsets,
)

SCHEMA_VERSION = 3

MAXIMUM_TENSOR_BYTES = 2**31 - 1
"""TFLM counts the bytes of a tensor in a 32-bit int."""

MAXIMUM_RANK = 32
"""Maximum number of dimensions that every version of numpy supports."""

MAXIMUM_DEPTH = 100
"""Nesting of subgraphs that run subgraphs. TFLM plans and runs them by recursion, on a small stack."""

MAXIMUM_STEPS = 100_000
"""Operators in one pass through a model, including those of the subgraphs that it runs."""

SMALLEST_SCALE, LARGEST_SCALE = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)

TYPES_OF_BIASES = (TensorType.INT32, TensorType.INT64)
"""The scale of a bias is a product of two others, which may underflow. No operator divides by it."""

Findings = Iterator[ModelError]


def findings_in(model: Model) -> Findings:
    """Every finding in a model's tables, in the order of the file; none for a valid model.

    An offline plan is checked for lost values only if the model has no other errors.
    """
    is_good = True
    for finding in _findings_in_tables(model):
        is_good = is_good and finding.level == "warning"
        yield finding
    try:
        offsets = offline_offsets(model)
    except ModelError as finding:
        yield finding
        return
    if is_good and offsets is not None and any(offset != ONLINE for offset in offsets):
        yield from plan_findings(model, offsets)


def _findings_in_tables(model: Model) -> Findings:
    if model.version != SCHEMA_VERSION:
        reason = f"schema version {model.version}, only version {SCHEMA_VERSION} is known"
        yield ModelError(reason, table="Model", field="version", level="warning")
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
        yield from _signature(model, signature, f"signature_defs[{i}]")


def _signature(model: Model, signature: SignatureDef, place: str) -> Findings:
    bad_subgraph = list(_in_range(signature, "subgraph_index", model.subgraphs, place))
    yield from bad_subgraph
    if bad_subgraph or not model.subgraphs:
        return
    tensors = model.subgraphs[signature.subgraph_index].tensors
    for side in ("inputs", "outputs"):
        for i, tensor_map in enumerate(getattr(signature, side) or ()):
            yield from _in_range(tensor_map, "tensor_index", tensors, f"{place}.{side}[{i}]")


def _operator_code(code: OperatorCode, place: str) -> Findings:
    if builtin_code(code) is BuiltinOperator.CUSTOM and not code.custom_code:
        yield ModelError("a CUSTOM operator needs a name", table="OperatorCode", field="custom_code", place=place)


def _subgraph(model: Model, subgraph: SubGraph, place: str) -> Findings:
    tensors = subgraph.tensors or []
    made = {index for operator in subgraph.operators or () for index in operator.outputs or ()}
    codes = _codes_of_compressed_tensors(model, subgraph)
    for i, tensor in enumerate(tensors):
        here = f"{place}.tensors[{i}]"
        yield from _tensor(model, tensor, i in made, here)
        if tensor.quantization is not None and i not in codes:
            yield from _quantization(tensor.quantization, tensor, f"{here}.quantization")
    sound = True
    for finding in _indices_of_tensors(subgraph, place):
        sound = False
        yield finding
    for i, operator in enumerate(subgraph.operators or ()):
        here = f"{place}.operators[{i}]"
        yield from _in_range(operator, "opcode_index", model.operator_codes, here)
        for field in CALLED_SUBGRAPHS.get(type(operator.builtin_options), ()):
            assert operator.builtin_options is not None
            yield from _in_range(operator.builtin_options, field, model.subgraphs, f"{here}.builtin_options")
    if sound:
        yield from _dataflow(model, subgraph, place)


def _codes_of_compressed_tensors(model: Model, subgraph: SubGraph) -> set[int]:
    """Tensors that only TFLM_DECODE reads. TFLM's tool leaves them the quantization of the tensor that they encode."""
    names = [code.custom_code for code in model.operator_codes or ()]
    decoded: set[int] = set()
    others = {*(subgraph.inputs or ()), *(subgraph.outputs or ())}
    for operator in subgraph.operators or ():
        is_decoder = 0 <= operator.opcode_index < len(names) and names[operator.opcode_index] == "TFLM_DECODE"
        (decoded if is_decoder else others).update(operator.inputs or ())
        others.update(operator.outputs or ())
    return decoded - others


def _indices_of_tensors(subgraph: SubGraph, place: str) -> Findings:
    tensors = subgraph.tensors or []
    for side in ("inputs", "outputs"):
        yield from _indices(subgraph, side, 0, tensors, place)
    for i, operator in enumerate(subgraph.operators or ()):
        here = f"{place}.operators[{i}]"
        yield from _indices(operator, "inputs", -1, tensors, here)
        yield from _indices(operator, "outputs", 0, tensors, here)
        yield from _indices(operator, "intermediates", 0, tensors, here)


def _dataflow(model: Model, subgraph: SubGraph, place: str) -> Findings:
    """Check that each tensor has at most one writer, and is not read before it. Indices are already checked."""
    operators, inputs = subgraph.operators or [], set(subgraph.inputs or ())
    filled = inputs | {i for i, tensor in enumerate(subgraph.tensors or ()) if _is_filled(model, tensor)}
    writers: dict[int, int] = {}
    for i, operator in enumerate(operators):
        for index in operator.outputs or ():
            writers.setdefault(index, i)

    def unfilled(index: int) -> str:
        if index in writers:
            return f"tensor {index} is used before operator {writers[index]} writes it"
        return f"tensor {index} has no value: it is not an input, constant or variable, and no operator writes it"

    for i, operator in enumerate(operators):
        here = f"{place}.operators[{i}]"
        for index in operator.inputs or ():
            is_scratch = index not in writers and _has_scratch_inputs(model, operator)
            if index >= 0 and index not in filled and not is_scratch:
                filled.add(index)
                level = "warning" if index not in writers and _assigns_variable(model, operator) else "error"
                yield ModelError(
                    unfilled(index), table="Operator", field="inputs", place=here, level=level, unsound=True
                )
        own: set[int] = set()
        for index in operator.outputs or ():
            if index in inputs or index in own or writers[index] != i:
                other = "the subgraph's caller" if index in inputs else f"operator {writers[index]}"
                reason = f"tensor {index} is also written by {other}; a tensor has one writer"
                yield ModelError(reason, table="Operator", field="outputs", place=here, unsound=True)
            own.add(index)
        filled |= own
    for index in subgraph.outputs or ():
        if index not in filled:
            yield ModelError(unfilled(index), table="SubGraph", field="outputs", place=place, unsound=True)


def _has_scratch_inputs(model: Model, operator: Operator) -> bool:
    """Whether inputs of the operator may be memory that only it writes, as for an NPU's command stream."""
    codes = model.operator_codes or []
    return 0 <= operator.opcode_index < len(codes) and codes[operator.opcode_index].custom_code == "ethos-u"


def _assigns_variable(model: Model, operator: Operator) -> bool:
    """Whether the operator sets a resource variable; tools omit its initial value if that is the default."""
    codes = model.operator_codes or []
    is_known = 0 <= operator.opcode_index < len(codes)
    return is_known and builtin_code(codes[operator.opcode_index]) is BuiltinOperator.ASSIGN_VARIABLE


def _is_filled(model: Model, tensor: Tensor) -> bool:
    """Whether a tensor is empty or has its elements before any operator runs."""
    has_data = tensor.buffer < len(model.buffers or ()) and bool((model.buffers or [])[tensor.buffer].data)
    return has_data or tensor.is_variable or 0 in (tensor.shape or ())


def _tensor(model: Model, tensor: Tensor, made_by_operator: bool, place: str) -> Findings:
    def finding(field: str, reason: str) -> ModelError:
        return ModelError(reason, table="Tensor", field=field, place=place)

    shape = tensor.shape or ()
    lowest = -1 if made_by_operator else 0  # -1: an operator computes the dimension in its prepare phase
    if len(shape) > MAXIMUM_RANK:
        yield finding("shape", f"has {len(shape)} dimensions, at most {MAXIMUM_RANK} are supported")
        return
    if any(dimension < lowest for dimension in shape):
        yield finding("shape", f"{list(shape)} has a negative dimension; the tensor needs a fixed shape")
        return
    element = ELEMENT_TYPES[tensor.type]
    largest = element.packed_bytes(tuple(max(dimension, 1) for dimension in shape))
    if largest > MAXIMUM_TENSOR_BYTES:
        yield finding("shape", f"{list(shape)} of {tensor.type.name} takes {largest} bytes, more than 2 GiB")
    bad_buffer = list(_in_range(tensor, "buffer", model.buffers, place))
    yield from bad_buffer
    if bad_buffer or not model.buffers:
        return
    data = model.buffers[tensor.buffer].data
    if tensor.external_buffer and not data:
        reason = "leads to data outside of the model itself, which is not read; write the model with all data inside"
        yield ModelError(reason, table="Tensor", field="external_buffer", place=place)
    if data and made_by_operator:
        yield finding("buffer", f"buffer {tensor.buffer} has data, but an operator writes the tensor")
        return
    needed = element.packed_bytes(shape)
    if data and element.bits and len(data) < needed:
        reason = f"{list(shape)} of {tensor.type.name} takes {needed} bytes, buffer {tensor.buffer} has {len(data)}"
        yield finding("buffer", reason)


def _quantization(quantization: QuantizationParameters, tensor: Tensor, place: str) -> Findings:
    def finding(field: str, reason: str) -> ModelError:
        return ModelError(reason, table="QuantizationParameters", field=field, place=place)

    scales, zero_points = quantization.scale or (), quantization.zero_point or ()
    lowest = 0.0 if tensor.type in TYPES_OF_BIASES else SMALLEST_SCALE
    bad_scale = next((scale for scale in scales if not lowest <= scale <= LARGEST_SCALE), None)
    if bad_scale is not None:
        yield finding("scale", f"invalid scale {bad_scale:g}: it must be positive, finite and not denormal")
    dtype = ELEMENT_TYPES[tensor.type].dtype
    limits = np.iinfo(dtype if dtype.kind in "iu" and dtype.itemsize < 4 else np.int32)
    low, high = int(limits.min), int(limits.max)
    for zero_point in zero_points:
        if not low <= zero_point <= high:
            yield finding("zero_point", f"{zero_point} is out of range for {tensor.type.name}: {low} to {high}")
    if scales and zero_points and len(zero_points) not in (1, len(scales)):
        reason = f"{len(zero_points)} zero points for {len(scales)} scales; the first counts for all"
        yield ModelError(reason, table="QuantizationParameters", field="zero_point", place=place, level="warning")
    shape, dimension = tensor.shape or (), quantization.quantized_dimension
    if len(scales) < 2 or shape == (len(scales),):  # a bias has the quantized dimension of its weights, or its own
        return
    if not 0 <= dimension < len(shape):
        yield finding("quantized_dimension", f"dimension {dimension} is out of range for shape {list(shape)}")
    elif shape[dimension] not in (len(scales), -1):
        reason = f"{len(scales)} scales along dimension {dimension}, which has {shape[dimension]} elements"
        yield finding("scale", reason)


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
    """Check that no subgraph runs itself, and that nesting and the number of steps stay within limits."""
    subgraphs = model.subgraphs or []
    calls = [
        [i for operator in subgraph.operators or () for i in called_subgraphs(operator) if 0 <= i < len(subgraphs)]
        for subgraph in subgraphs
    ]
    order, cycle = _callees_first(calls)
    if cycle is not None:
        reason = f"subgraph {cycle} runs itself, through IF, WHILE or CALL_ONCE"
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
    """All nodes, each after those that it calls, and a node on a cycle, if there is one. Not recursive."""
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
