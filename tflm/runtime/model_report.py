"""The contents of a model, as `tflm inspect` shows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from tflm.graph import multiply_accumulates
from tflm.report import (
    NAME,
    NUMBER,
    TEXT,
    AnyFloat,
    Figure,
    Report,
    Table,
    document_of,
    json_key,
    sizes_of,
    with_thousands,
)
from tflm.schema.model import FLEX_PREFIX, Model
from tflm.schema.tables import Operator, QuantizationParameters, SubGraph, Tensor
from tflm.versioning import OperatorVersion, operator_versions, runtime_needed, runtime_of

Role = Literal["input", "output", "variable", "constant", ""]


@dataclass(frozen=True)
class TensorIn:
    """A tensor in a model."""

    model: Model
    subgraph: SubGraph
    index: int
    table: Tensor

    @property
    def quantization(self) -> QuantizationParameters:
        """Its quantization, with no scales if it has none."""
        return self.table.quantization or QuantizationParameters()

    @property
    def file_bytes(self) -> int:
        """Bytes of its constant data; 0 for other tensors."""
        return len(self.model.buffers[self.table.buffer].data or b"")

    @property
    def role(self) -> Role:
        """Its role in the model; empty for intermediate results."""
        if self.index in (self.subgraph.inputs or ()):
            return "input"
        if self.index in (self.subgraph.outputs or ()):
            return "output"
        if self.table.is_variable:
            return "variable"
        return "constant" if self.file_bytes else ""


class OperatorIn(NamedTuple):
    """An operator in a model, with its versions."""

    model: Model
    subgraph: SubGraph
    table: Operator
    versions: OperatorVersion

    @property
    def multiply_accumulates(self) -> int:
        """Those of one run."""
        return multiply_accumulates(self.model, self.subgraph, self.table)


MODEL_FIGURES = (
    json_key("description", str, "the description in the model"),
    Figure("file", NUMBER, lambda model: len(model.data)).as_key(int, "size of the file", "file_bytes"),
    Figure("constants", NUMBER, lambda model: sum(len(buffer.data or b"") for buffer in model.buffers)).as_key(
        int, "size of weights and other constants in the file", "constant_bytes"
    ),
    json_key(
        "multiply_accumulates",
        int,
        "multiply-accumulates of one invoke of the first subgraph",
        lambda model: _multiply_accumulates(model),
    ),
    json_key(
        "runtime",
        str,
        "the first TensorFlow Lite with the operator versions in the model; empty if there is none",
        lambda model: runtime_of(model.root),
    ),
    json_key(
        "runtime_needed",
        str,
        "the first one with the versions that the operators need",
        lambda model: runtime_needed(model.root),
    ),
    json_key("metadata", dict[str, int], "size of each entry by its name", lambda model: _metadata(model)),
    json_key("signatures", list[str], "names of the signatures", lambda model: _signatures(model)),
)
"""The figures of a model; those with a label are sizes in bytes."""

OPERATOR_FIGURES = (
    Figure("#", NUMBER, "versions.index").as_key(int, "place of the operator", "index"),
    Figure("operator", NAME, lambda each: each.model.operator_name(each.table)).as_key(str, "its name", "operator"),
    Figure("version", NUMBER, "versions.version").as_key(int, "its version", "version"),
    Figure("needed", NUMBER, "versions.needed").as_key(
        int | None, "the version that its options and tensors need; null for a custom operator", "needed_version"
    ),
    Figure("inputs", TEXT, lambda each: _list(each.table.inputs or ())),
    json_key("inputs", list[int], "tensor indices; -1 for an omitted one", lambda each: list(each.table.inputs or ())),
    Figure("outputs", TEXT, lambda each: _list(each.table.outputs or ())),
    json_key("outputs", list[int], "tensor indices", lambda each: list(each.table.outputs or ())),
    Figure("MACs", NUMBER, "multiply_accumulates").as_key(
        int, "multiply-accumulates of one run; 0 for operators without weights"
    ),
)

TENSOR_FIGURES = (
    Figure("#", NUMBER, "index").as_key(int, "place of the tensor"),
    Figure("tensor", NAME, lambda each: each.table.name or "").as_key(str, "its name", "name"),
    Figure("", TEXT, "role"),
    Figure("type", TEXT, "table.type.name").as_key(str, "of its elements", "type"),
    Figure("shape", TEXT, lambda each: _list(each.table.shape or ())),
    json_key("shape", list[int], "its dimensions", lambda each: list(each.table.shape or ())),
    json_key("role", Role, "its role in the model, such as input; empty for intermediate results"),
    Figure("scale", TEXT, lambda each: _scale(each.quantization)),
    json_key(
        "scale",
        list[AnyFloat],
        "scale of its quantization: one, or one for each slice",
        lambda each: list(each.quantization.scale or ()),
    ),
    Figure("zero point", TEXT, lambda each: _zero_point(each.quantization)),
    json_key("zero_point", list[int], "zero point, likewise", lambda each: list(each.quantization.zero_point or ())),
    json_key(
        "quantized_dimension", int, "the dimension that the slices count along", "quantization.quantized_dimension"
    ),
    Figure("file bytes", NUMBER, lambda each: each.file_bytes or None),
    json_key("file_bytes", int, "bytes of its constant data; 0 for other tensors"),
)


def _tensors(model: Model, subgraph: SubGraph) -> list[TensorIn]:
    return [TensorIn(model, subgraph, index, table) for index, table in enumerate(subgraph.tensors or ())]


def _operators(model: Model) -> Iterator[list[OperatorIn]]:
    """Yield the operators of each subgraph."""
    versions = iter(operator_versions(model.root))
    for subgraph in model.subgraphs:
        yield [OperatorIn(model, subgraph, table, next(versions)) for table in subgraph.operators or ()]


def _multiply_accumulates(model: Model) -> int:
    return sum(operator.multiply_accumulates for operator in next(_operators(model)))


def _metadata(model: Model) -> dict[str, int]:
    return {entry.name or "": len(model.buffers[entry.buffer].data or b"") for entry in model.root.metadata or ()}


def _signatures(model: Model) -> list[str]:
    return [signature.signature_key or "" for signature in model.root.signature_defs or ()]


def model_figures(model: Model, name: str) -> dict[str, Any]:
    """Return the JSON document of a model; `name` is its name there."""
    subgraphs = [
        {
            "index": index,
            "name": subgraph.name or "",
            "operators": [document_of(operator, OPERATOR_FIGURES) for operator in operators],
            "tensors": [document_of(tensor, TENSOR_FIGURES) for tensor in _tensors(model, subgraph)],
        }
        for index, (subgraph, operators) in enumerate(zip(model.subgraphs, _operators(model)))
    ]
    return {"model": name, **document_of(model, MODEL_FIGURES), "subgraphs": subgraphs}


def model_html(model: Model) -> str:
    """The full report of a model, for a notebook."""
    return model_report(model).html()


def model_report(model: Model, name: str = "") -> Report:
    """Report the file's contents, then operators and tensors of each subgraph."""
    facts = [
        *sizes_of(model, MODEL_FIGURES),
        ("arithmetic", f"{_multiply_accumulates(model):,} multiply-accumulates an invoke"),
        ("TensorFlow Lite", _runtimes(runtime_of(model.root), runtime_needed(model.root))),
        *(("metadata", f"{name}: {with_thousands(size)}") for name, size in _metadata(model).items()),
        *(("signature", name) for name in _signatures(model)),
    ]
    tables, is_single = list[Table](), len(model.subgraphs) == 1
    for index, (subgraph, operators) in enumerate(zip(model.subgraphs, _operators(model))):
        where = "" if is_single else f" of subgraph {index} {subgraph.name or ''}".rstrip()
        tables.append(Table.of(f"Operators{where}", operators, *OPERATOR_FIGURES))
        tables.append(Table.of("Tensors", _tensors(model, subgraph), *TENSOR_FIGURES))
    names = [model.operator_name(operator) for subgraph in model.subgraphs for operator in subgraph.operators or ()]
    flex = [name for name in dict.fromkeys(names) if name.startswith(FLEX_PREFIX)]
    notes = [f"no device can run TensorFlow's operators: {', '.join(flex)}"] if flex else []
    return Report(" ".join(filter(None, (name, model.description))), facts, tables, notes)


def _runtimes(said: str, needed: str) -> str:
    text = f"needs {needed or 'none'}"
    return text if said == needed else f"{text}, says {said or 'none'}"


def _scale(quantization: QuantizationParameters) -> str:
    scales = quantization.scale or ()
    if len(scales) < 2:
        return "".join(f"{scale:.6g}" for scale in scales)
    return f"{min(scales):.3g}..{max(scales):.3g} ({len(scales)} along {quantization.quantized_dimension})"


def _zero_point(quantization: QuantizationParameters) -> str:
    zero_points = quantization.zero_point
    if not quantization.scale or not zero_points:
        return ""
    return "..".join(map(str, sorted({min(zero_points), max(zero_points)})))


def _list(numbers: Sequence[int]) -> str:
    return (
        " ".join(map(str, numbers))
        if len(numbers) <= 12
        else " ".join(map(str, numbers[:10])) + f" ... ({len(numbers)})"
    )
