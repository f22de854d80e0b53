"""An input whose rows the caller passes a few at a time: an operator copies them to a line buffer."""

from __future__ import annotations

from typing import NamedTuple

from tflm.errors import ArgumentError, CompileError
from tflm.graph import Graph
from tflm.schema.enums import BuiltinOperator
from tflm.schema.model import Model
from tflm.schema.options import CastOptions

FEEDER = 0
"""Index of the operator that copies rows: a CAST to the same type, the first operator of the model."""


class Feed(NamedTuple):
    """An input that is fed in rows.

    Attributes:
        number: number of the input.
        tensor: tensor of the input, which is not in RAM.
        image: the tensor that rows are copied to.
        rows: number of rows in a call; the last call has the rest.
        height: number of rows of the input.
    """

    number: int
    tensor: int
    image: int
    rows: int
    height: int

    @property
    def calls(self) -> int:
        """Number of calls for the whole input."""
        return -(-self.height // self.rows)


def with_feeder(model: Model, rows: int) -> tuple[Model, Feed]:
    """Return the model with an operator that copies rows of its largest image.

    Raises:
        ArgumentError: the number of rows is out of range.
        CompileError: no input is an image.
    """
    graph = Graph(model)
    images = [tensor for tensor in graph.inputs if len(graph.shape(tensor)) == 4 and graph.shape(tensor)[:1] == (1,)]
    if not images:
        shapes = ", ".join(str(list(graph.shape(tensor))) for tensor in graph.inputs)
        raise CompileError(
            f"no input is an image of one batch that could be fed rows at a time (found {shapes}); compile the model "
            "with its whole input"
        )
    tensor = max(images, key=graph.tensor_bytes)
    height = graph.shape(tensor)[1]
    if isinstance(rows, bool) or not isinstance(rows, int) or not 1 <= rows <= height:
        raise ArgumentError(f"invalid number of rows {rows!r} (expected 1 to {height}, the height of the input)")
    if tensor in graph.outputs:
        raise CompileError(
            "the image is an output as well, so it must be in RAM; compile the model without feeding rows"
        )
    kind = graph.tensors[tensor].type
    image = graph.add_tensor(tensor, graph.tensors[tensor].name, graph.shape(tensor))
    operators = [
        graph.like(
            operator, [image if each == tensor else each for each in operator.inputs or ()], operator.outputs or ()
        )
        for operator in graph.operators
    ]
    options = CastOptions(in_data_type=kind, out_data_type=kind)
    graph.operators = [graph.make_operator(BuiltinOperator.CAST, 1, [tensor], [image], options), *operators]
    return graph.model(model.checks), Feed(graph.inputs.index(tensor), tensor, image, rows, height)
