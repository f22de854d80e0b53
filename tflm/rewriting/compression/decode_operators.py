"""Inserts TFLM_DECODE operators, each right before the operator that reads the tensors that it decodes."""

from __future__ import annotations

from collections.abc import Mapping

from tflm.graph import Graph
from tflm.kernels.reference.decode import TFLM_DECODE
from tflm.rewriting.compression.encodings import Encoding
from tflm.schema.model import Model
from tflm.schema.tables import Operator


def with_decoded(model: Model, encodings: Mapping[int, Encoding]) -> Model:
    """A copy of a model in which constants are stored encoded.

    One TFLM_DECODE decodes all encoded tensors of an operator, in the order of their indices. A tensor that several
    operators read is decoded before each: decompression memory holds tensors only until the next TFLM_DECODE.

    Args:
        model: the model.
        encodings: the encoding of each constant, by its place among the tensors of all subgraphs.
    """
    first = 0
    for subgraph, table in enumerate(model.subgraphs):
        end = first + len(table.tensors or ())
        here = {tensor - first: encoding for tensor, encoding in encodings.items() if first <= tensor < end}
        graph = Graph(model, subgraph)
        _insert_operators(graph, here)
        model, first = Model(graph.build()), end
    return model


def _insert_operators(graph: Graph, encodings: Mapping[int, Encoding]) -> None:
    operators: list[Operator] = []
    for operator in graph.operators:
        encoded = sorted(set(operator.inputs or ()) & encodings.keys())
        if encoded:
            decoded = {tensor: _decoded_tensor(graph, tensor) for tensor in encoded}
            inputs = [part for tensor in encoded for part in _constants(graph, encodings[tensor])]
            operators.append(graph.make_custom_operator(TFLM_DECODE.name, inputs, list(decoded.values())))
            operator = graph.like(
                operator, (decoded.get(tensor, tensor) for tensor in operator.inputs or ()), operator.outputs or ()
            )
        operators.append(operator)
    graph.operators = operators


def _decoded_tensor(graph: Graph, tensor: int) -> int:
    return graph.add_tensor(tensor, graph.tensors[tensor].name, graph.shape(tensor))


def _constants(graph: Graph, encoding: Encoding) -> tuple[int, int]:
    """Codes and metadata, without names, which would take flash."""
    return graph.add_constant(None, encoding.codes), graph.add_constant(None, encoding.metadata)
