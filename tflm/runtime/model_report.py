"""The contents of a model, as `tflm inspect` shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tflm.graph import multiply_accumulates
from tflm.report import NAME, NUMBER, TEXT, AnyFloat, Figure, Report, Table, with_thousands
from tflm.schema.model import FLEX_PREFIX, Model
from tflm.schema.tables import QuantizationParameters, SubGraph, Tensor
from tflm.versioning import operator_versions, runtime_needed, runtime_of

Role = Literal["input", "output", "variable", "constant", ""]


@dataclass
class TensorReport:
    """A tensor.

    Attributes:
        index: place of the tensor.
        name: its name.
        type: of its elements.
        shape: its dimensions.
        role: its role in the model, such as input; empty for intermediate results.
        scale: scale of its quantization: one, or one for each slice.
        zero_point: zero point, likewise.
        quantized_dimension: the dimension that the slices count along.
        file_bytes: bytes of its constant data; 0 for other tensors.
    """

    index: int
    name: str
    type: str
    shape: list[int]
    role: Role
    scale: list[AnyFloat]
    zero_point: list[int]
    quantized_dimension: int
    file_bytes: int


@dataclass
class OperatorReport:
    """An operator.

    Attributes:
        index: place of the operator.
        operator: its name.
        version: its version.
        needed_version: the version that its options and tensors need; None for a custom operator.
        inputs: tensor indices; -1 for an omitted one.
        outputs: tensor indices.
        multiply_accumulates: multiply-accumulates of one run; 0 for operators without weights.
    """

    index: int
    operator: str
    version: int
    needed_version: int | None
    inputs: list[int]
    outputs: list[int]
    multiply_accumulates: int


@dataclass
class SubgraphReport:
    """A subgraph.

    Attributes:
        index: place of the subgraph.
        name: its name.
        operators: in the order in which they run.
        tensors: by place.
    """

    index: int
    name: str
    operators: list[OperatorReport]
    tensors: list[TensorReport]


@dataclass
class ModelReport:
    """A model.

    Attributes:
        model: the path, as typed.
        description: the description in the model.
        file_bytes: size of the file.
        constant_bytes: size of weights and other constants in the file.
        multiply_accumulates: multiply-accumulates of one invoke of the first subgraph.
        runtime: the first TensorFlow Lite with the operator versions in the model; empty if there is none.
        runtime_needed: the first one with the versions that the operators need.
        metadata: size of each entry by its name.
        signatures: names of the signatures.
        subgraphs: all of them.
    """

    model: str
    description: str
    file_bytes: int
    constant_bytes: int
    multiply_accumulates: int
    runtime: str
    runtime_needed: str
    metadata: dict[str, int]
    signatures: list[str]
    subgraphs: list[SubgraphReport]


def model_report(model: Model, name: str = "") -> ModelReport:
    """The report of a model; `name` is its name there."""
    needed = {(op.subgraph_index, op.index): op.needed for op in operator_versions(model.root)}
    subgraphs = [_subgraph(model, i, subgraph, needed) for i, subgraph in enumerate(model.subgraphs)]
    return ModelReport(
        model=name,
        description=model.description,
        file_bytes=len(model.data),
        constant_bytes=sum(len(buffer.data or b"") for buffer in model.buffers),
        multiply_accumulates=sum(operator.multiply_accumulates for operator in subgraphs[0].operators),
        runtime=runtime_of(model.root),
        runtime_needed=runtime_needed(model.root),
        metadata={
            entry.name or "": len(model.buffers[entry.buffer].data or b"") for entry in model.root.metadata or ()
        },
        signatures=[signature.signature_key or "" for signature in model.root.signature_defs or ()],
        subgraphs=subgraphs,
    )


def _subgraph(
    model: Model, index: int, subgraph: SubGraph, needed: dict[tuple[int, int], int | None]
) -> SubgraphReport:
    operators = [
        OperatorReport(
            index=i,
            operator=model.operator_name(operator),
            version=model.operator_code(operator).version,
            needed_version=needed[index, i],
            inputs=list(operator.inputs or ()),
            outputs=list(operator.outputs or ()),
            multiply_accumulates=multiply_accumulates(model, subgraph, operator),
        )
        for i, operator in enumerate(subgraph.operators or ())
    ]
    tensors = [_tensor(model, subgraph, i, tensor) for i, tensor in enumerate(subgraph.tensors or ())]
    return SubgraphReport(index, subgraph.name or "", operators, tensors)


def _tensor(model: Model, subgraph: SubGraph, index: int, tensor: Tensor) -> TensorReport:
    quantization = tensor.quantization or QuantizationParameters()
    file_bytes = len(model.buffers[tensor.buffer].data or b"")
    return TensorReport(
        index=index,
        name=tensor.name or "",
        type=tensor.type.name,
        shape=list(tensor.shape or ()),
        role=_role(subgraph, index, tensor, file_bytes),
        scale=list(quantization.scale or ()),
        zero_point=list(quantization.zero_point or ()),
        quantized_dimension=quantization.quantized_dimension,
        file_bytes=file_bytes,
    )


def _role(subgraph: SubGraph, index: int, tensor: Tensor, file_bytes: int) -> Role:
    if index in (subgraph.inputs or ()):
        return "input"
    if index in (subgraph.outputs or ()):
        return "output"
    if tensor.is_variable:
        return "variable"
    return "constant" if file_bytes else ""


def model_html(model: Model) -> str:
    """The full report of a model, for a notebook."""
    return shown(model_report(model)).html()


def shown(figures: ModelReport) -> Report:
    """The report as text: the file's contents, then operators and tensors of each subgraph."""
    facts = [
        ("file", with_thousands(figures.file_bytes)),
        ("constants", with_thousands(figures.constant_bytes)),
        ("arithmetic", f"{figures.multiply_accumulates:,} multiply-accumulates an invoke"),
        ("TensorFlow Lite", _runtimes(figures)),
        *(("metadata", f"{name}: {with_thousands(size)}") for name, size in figures.metadata.items()),
        *(("signature", name) for name in figures.signatures),
    ]
    several = len(figures.subgraphs) > 1
    tables = [
        table
        for subgraph in figures.subgraphs
        for table in (_operator_table(subgraph, several), _tensor_table(subgraph))
    ]
    operators = [operator.operator for subgraph in figures.subgraphs for operator in subgraph.operators]
    flex = [name for name in dict.fromkeys(operators) if name.startswith(FLEX_PREFIX)]
    notes = [f"no device can run TensorFlow's operators: {', '.join(flex)}"] if flex else []
    return Report(" ".join(filter(None, (figures.model, figures.description))), facts, tables, notes)


def _runtimes(figures: ModelReport) -> str:
    needed = f"needs {figures.runtime_needed or 'none'}"
    return needed if figures.runtime == figures.runtime_needed else f"{needed}, says {figures.runtime or 'none'}"


def _operator_table(subgraph: SubgraphReport, several: bool) -> Table:
    where = f" of subgraph {subgraph.index} {subgraph.name}".rstrip() if several else ""
    return Table.of(
        f"Operators{where}",
        subgraph.operators,
        Figure("#", NUMBER, "index"),
        Figure("operator", NAME, "operator"),
        Figure("version", NUMBER, "version"),
        Figure("needed", NUMBER, "needed_version"),
        Figure("inputs", TEXT, lambda op: _list(op.inputs)),
        Figure("outputs", TEXT, lambda op: _list(op.outputs)),
        Figure("MACs", NUMBER, "multiply_accumulates"),
    )


def _tensor_table(subgraph: SubgraphReport) -> Table:
    return Table.of(
        "Tensors",
        subgraph.tensors,
        Figure("#", NUMBER, "index"),
        Figure("tensor", NAME, "name"),
        Figure("", TEXT, "role"),
        Figure("type", TEXT, "type"),
        Figure("shape", TEXT, lambda tensor: _list(tensor.shape)),
        Figure("scale", TEXT, lambda tensor: _quantization(tensor)[0]),
        Figure("zero point", TEXT, lambda tensor: _quantization(tensor)[1]),
        Figure("file bytes", NUMBER, lambda tensor: tensor.file_bytes or None),
    )


def _quantization(tensor: TensorReport) -> tuple[str, str]:
    if not tensor.scale:
        return "", ""
    zero_points = tensor.zero_point
    zero_point = "..".join(map(str, sorted({min(zero_points), max(zero_points)}))) if zero_points else ""
    if len(tensor.scale) == 1:
        return f"{tensor.scale[0]:.6g}", zero_point
    low, high = min(tensor.scale), max(tensor.scale)
    return f"{low:.3g}..{high:.3g} ({len(tensor.scale)} along {tensor.quantized_dimension})", zero_point


def _list(numbers: list[int]) -> str:
    return (
        " ".join(map(str, numbers))
        if len(numbers) <= 12
        else " ".join(map(str, numbers[:10])) + f" ... ({len(numbers)})"
    )
