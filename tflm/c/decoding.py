"""Prepare a model for the compiler: replace TFLM_DECODE by constants, and set the shapes that operators give tensors.

For encoded constants, both the elements and the codes are available: kernels are bound to the elements, but may read
the codes instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tflm.graph import Graph
from tflm.kernels.node import Node
from tflm.kernels.reference.decode import TFLM_DECODE, Encoded, Scheme
from tflm.memory.tensor import TfLiteEvalTensor
from tflm.schema.element_types import ELEMENT_TYPES
from tflm.schema.model import Model
from tflm.schema.patch import with_data_inside
from tflm.schema.reader import read_model
from tflm.schema.writer import write_model


class Encoding(NamedTuple):
    """The encoding of a constant."""

    scheme: Scheme
    encoded: Encoded


Encodings = Mapping[int, Encoding]
"""Encodings, by tensor of the first subgraph."""


def has_decoders(model: Model) -> bool:
    """Whether the first subgraph has TFLM_DECODE operators."""
    return any(model.operator_name(operator) == TFLM_DECODE.name for operator in model.subgraphs[0].operators or ())


def with_constants(model: Model, nodes: Mapping[int, Node]) -> tuple[Model, dict[int, Encoding]]:
    """Return the model with constants in place of the results of its TFLM_DECODE operators, and their encodings.

    A result that is an output of the model is not replaced.

    Args:
        model: the model.
        nodes: the nodes of the first subgraph by their index, prepared.
    """
    graph = Graph(with_data_inside(model))
    constants: dict[int, int] = {}
    encodings: dict[int, Encoding] = {}
    operators = []
    for index, operator in enumerate(graph.operators):
        outputs = operator.outputs or ()
        if graph.registration(operator).name != TFLM_DECODE.name or set(outputs) & set(graph.outputs):
            operators.append(operator)
            continue
        for tensor, encoding in zip(outputs, nodes[index].op_data):
            scheme, encoded = encoding
            values = np.ascontiguousarray(scheme.decode(encoded), None).view(ELEMENT_TYPES[encoded.type].dtype)
            table = graph.tensors[tensor]
            constants[tensor] = graph.add_constant(table.name, values.reshape(encoded.dims), table.quantization)
            encodings[constants[tensor]] = Encoding(scheme, encoded)
    graph.operators = [
        graph.like(one, (constants.get(tensor, tensor) for tensor in one.inputs or ()), one.outputs or ())
        for one in operators
    ]
    made = Model(graph.build(), model.checks)
    return made, {graph.moved[tensor]: encoding for tensor, encoding in encodings.items()}


def with_shapes(model: Model, tensors: list[list[TfLiteEvalTensor]]) -> Model:
    """Return the model with the tensor shapes that operators have after they are prepared.

    Args:
        model: the model.
        tensors: the prepared tensors of each subgraph.
    """
    pairs = [zip(subgraph.tensors or (), found) for subgraph, found in zip(model.subgraphs, tensors)]
    if all((table.shape or ()) == tensor.dims for pair in pairs for table, tensor in pair):
        return model
    root = read_model(with_data_inside(model).data)
    for subgraph, found in zip(root.subgraphs or (), tensors):
        for table, tensor in zip(subgraph.tensors or (), found):
            table.shape = tensor.dims
    return Model(write_model(root), model.checks)
