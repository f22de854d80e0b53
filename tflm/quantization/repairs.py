"""Repairs of models: before litert-quantizer, which misreads some files, and after it, for TFLM."""

from __future__ import annotations

from collections import Counter

from tflm.errors import ArgumentError
from tflm.rewriting.cleanup import drop_operators_to_no_effect
from tflm.rewriting.graph import Graph
from tflm.schema.enums import TensorType
from tflm.schema.model import Model
from tflm.schema.offline_plan import drop_plan
from tflm.schema.patch import with_data_inside
from tflm.schema.reader import read_model
from tflm.schema.tables import Model as Root
from tflm.schema.tables import SignatureDef, TensorMap
from tflm.schema.verifier import builtin_code, called_subgraphs
from tflm.schema.versioning.update import update_versions
from tflm.schema.writer import write_model

SIGNATURE_KEY = "serving_default"
"""The key that converters give the only signature."""


def require_float(model: Model) -> None:
    """Check that a model can be quantized.

    Raises:
        ArgumentError: it has quantized tensors already, or operators that run other subgraphs.
    """
    for subgraph in model.subgraphs:
        for tensor in subgraph.tensors or ():
            if tensor.quantization is not None and tensor.quantization.scale:
                raise ArgumentError(
                    f"the model is quantized already: tensor {tensor.name!r} is {tensor.type.name}; "
                    "quantize the float model that it was made from"
                )
        for operator in subgraph.operators or ():
            if called_subgraphs(operator):
                raise ArgumentError(f"{model.operator_name(operator)} runs another subgraph, which cannot be quantized")


def is_float(model: Model) -> bool:
    """Whether a model has float tensors, and can be quantized."""
    try:
        require_float(model)
    except ArgumentError:
        return False
    return any(tensor.type is TensorType.FLOAT32 for tensor in model.subgraphs[0].tensors or ())


def prepared(model: Model) -> bytes:
    """The bytes of a float model that litert-quantizer reads correctly.

    Constants are inside the flatbuffer. Each operator code is in the newer of its two fields, the only one that is
    read. Every tensor has a name of its own, and the model has a signature. A memory plan is removed.
    """
    root = read_model(with_data_inside(model).data)
    for code in root.operator_codes or ():
        code.builtin_code = builtin_code(code)
    _name_tensors(root)
    _add_signature(root)
    drop_plan(root)
    return write_model(root)


def finished(data: bytes) -> bytes:
    """The bytes of a quantized model that TFLM reads correctly.

    Constants are inside the flatbuffer: litert-quantizer stores large ones after it, where TFLM does not read them.
    Operators have the versions that they need. QUANTIZEs that change nothing are removed.
    """
    graph = Graph(with_data_inside(Model(data)))
    drop_operators_to_no_effect(graph)
    return update_versions(Model(graph.build()))


def _name_tensors(root: Root) -> None:
    """Rename tensors that share a name or have none."""
    tensors = [tensor for subgraph in root.subgraphs or () for tensor in subgraph.tensors or ()]
    counts = Counter(tensor.name for tensor in tensors)
    for index, tensor in enumerate(tensors):
        if not tensor.name or counts[tensor.name] > 1:
            tensor.name = _free_name(f"{tensor.name or 'tensor'}_{index}", counts)
            counts[tensor.name] += 1


def _free_name(name: str, taken: Counter[str | None]) -> str:
    while taken[name]:
        name += "_"
    return name


def _add_signature(root: Root) -> None:
    """Add a signature with the names of inputs and outputs, unless the model has one."""
    if root.signature_defs or not root.subgraphs:
        return
    main = root.subgraphs[0]
    tensors = main.tensors or []
    inputs, outputs = (
        [TensorMap(name=tensors[index].name, tensor_index=index) for index in side or ()]
        for side in (main.inputs, main.outputs)
    )
    root.signature_defs = [SignatureDef(inputs=inputs, outputs=outputs, signature_key=SIGNATURE_KEY)]
