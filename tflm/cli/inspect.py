"""`tflm inspect`: what is in a model."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from tflm.cli.command_line import AsJson, ModelPath, console, load_model, print_json, table, with_thousands
from tflm.cli.multiply_accumulates import multiply_accumulates
from tflm.schema.model import Model
from tflm.schema.tables import QuantizationParameters, SubGraph, Tensor


@dataclass
class TensorReport:
    """A tensor: its place in the subgraph, what it is, and the bytes of its constant data in the file (0: none)."""

    index: int
    name: str
    type: str
    shape: list[int]
    role: str
    scale: list[float]
    zero_point: list[int]
    quantized_dimension: int
    file_bytes: int


@dataclass
class OperatorReport:
    """An operator: its place in the subgraph, tensors by index, and multiply-accumulates of one run."""

    index: int
    operator: str
    version: int
    inputs: list[int]
    outputs: list[int]
    multiply_accumulates: int


@dataclass
class SubgraphReport:
    """A subgraph."""

    index: int
    name: str
    operators: list[OperatorReport]
    tensors: list[TensorReport]


@dataclass
class ModelReport:
    """A model. Sizes are bytes in the file; metadata is by name."""

    model: str
    description: str
    file_bytes: int
    constant_bytes: int
    multiply_accumulates: int
    metadata: dict[str, int]
    signatures: list[str]
    subgraphs: list[SubgraphReport]


def report(path: Path) -> ModelReport:
    """All there is to say of the model in a file.

    Raises:
        CommandError: it is no model.
        OSError: it can't be read.
    """
    model = load_model(path)
    subgraphs = [_subgraph(model, i, subgraph) for i, subgraph in enumerate(model.subgraphs)]
    return ModelReport(
        model=str(path),
        description=model.description or "",
        file_bytes=path.stat().st_size,
        constant_bytes=sum(len(buffer.data or b"") for buffer in model.buffers),
        multiply_accumulates=sum(operator.multiply_accumulates for operator in subgraphs[0].operators),
        metadata={
            entry.name or "": len(model.buffers[entry.buffer].data or b"") for entry in model.root.metadata or ()
        },
        signatures=[signature.signature_key or "" for signature in model.root.signature_defs or ()],
        subgraphs=subgraphs,
    )


def _subgraph(model: Model, index: int, subgraph: SubGraph) -> SubgraphReport:
    operators = [
        OperatorReport(
            index=i,
            operator=model.operator_name(operator),
            version=model.operator_code(operator).version,
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


def _role(subgraph: SubGraph, index: int, tensor: Tensor, file_bytes: int) -> str:
    if index in (subgraph.inputs or ()):
        return "input"
    if index in (subgraph.outputs or ()):
        return "output"
    if tensor.is_variable:
        return "variable"
    return "constant" if file_bytes else ""


def inspect(model: ModelPath, as_json: AsJson = False) -> None:
    """Show operators, tensors, quantization, metadata and sizes of a model.

    \b
    Example:
      tflm inspect person_detect.tflite
    """
    figures = report(model)
    if as_json:
        print_json(asdict(figures))
        return
    out = console()
    if figures.description:
        out.print(figures.description, markup=False)
    out.print(f"file        {with_thousands(figures.file_bytes)}")
    out.print(f"constants   {with_thousands(figures.constant_bytes)}")
    out.print(f"arithmetic  {figures.multiply_accumulates:,} multiply-accumulates an invoke")
    for name, size in figures.metadata.items():
        out.print(f"metadata    {name}: {with_thousands(size)}", markup=False)
    for name in figures.signatures:
        out.print(f"signature   {name}", markup=False)
    for subgraph in figures.subgraphs:
        out.print()
        out.print(_operator_table(subgraph, several=len(figures.subgraphs) > 1))
        out.print()
        out.print(_tensor_table(subgraph))


def _operator_table(subgraph: SubgraphReport, several: bool) -> object:
    columns = {
        "#": "right",
        "operator": "left",
        "version": "right",
        "inputs": "left",
        "outputs": "left",
        "MACs": "right",
    }
    rows = (
        (op.index, op.operator, op.version, _list(op.inputs), _list(op.outputs), op.multiply_accumulates)
        for op in subgraph.operators
    )
    where = f" of subgraph {subgraph.index} {subgraph.name}".rstrip() if several else ""
    return table(f"Operators{where}", columns, rows)


def _tensor_table(subgraph: SubgraphReport) -> object:
    columns = {
        "#": "right",
        "tensor": "left",
        "": "left",
        "type": "left",
        "shape": "left",
        "scale": "left",
        "zero point": "left",
        "file bytes": "right",
    }
    rows = (
        (t.index, t.name, t.role, t.type, _list(t.shape), *_quantization(t), t.file_bytes or "")
        for t in subgraph.tensors
    )
    return table("Tensors", columns, rows)


def _quantization(tensor: TensorReport) -> tuple[str, str]:
    if not tensor.scale:
        return "", ""
    zero_points = sorted(set(tensor.zero_point))
    zero_point = "..".join(map(str, {zero_points[0], zero_points[-1]})) if zero_points else ""
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
