"""An input that the caller feeds rows at a time: an operator copies them to where line buffers hold them."""

from __future__ import annotations

from typing import NamedTuple

from tflm.errors import ArgumentError, CompileError
from tflm.graph import Graph
from tflm.schema.enums import BuiltinOperator
from tflm.schema.model import Model
from tflm.schema.options import CastOptions

FEEDER = 0
"""The operator that copies rows: a CAST that changes nothing, the first one of the model."""


class Feed(NamedTuple):
    """How an input is fed.

    Attributes:
        number: of the input.
        tensor: the input, of which no byte is in RAM.
        image: the tensor that rows are copied to.
        rows: how many rows a call gets; the last call the rest.
        height: how many the input has.
    """

    number: int
    tensor: int
    image: int
    rows: int
    height: int

    @property
    def calls(self) -> int:
        """Calls for the whole input."""
        return -(-self.height // self.rows)


def with_feeder(model: Model, rows: int) -> tuple[Model, Feed]:
    """The model with an operator that copies rows of its largest image.

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
        raise CompileError("the image is an output as well, so it has to be in RAM; compile it without feeding rows")
    kind = graph.tensors[tensor].type
    image = graph.add_tensor(tensor, graph.tensors[tensor].name, graph.shape(tensor))
    operators = [
        graph.like(
            operator, [image if each == tensor else each for each in operator.inputs or ()], operator.outputs or ()
        )
        for operator in graph.operators
    ]
    options = CastOptions(in_data_type=kind, out_data_type=kind)
    graph.operators = [graph.new_operator(BuiltinOperator.CAST, [tensor], [image], options), *operators]
    return Model(graph.written(), model.checks), Feed(graph.inputs.index(tensor), tensor, image, rows, height)
