"""A node as declarations see it: one that the runtime prepares, or one that is only looked at in its model."""

from __future__ import annotations

from tflm.errors import OperatorError
from tflm.kernels.registration import KernelContext, Node
from tflm.kernels.requests import NodeView, Options
from tflm.memory.tensor import TfLiteEvalTensor, TfLiteTensor
from tflm.schema.model import Model
from tflm.schema.tables import Operator
from tflm.targets import Target


class MicroNodeView(NodeView):
    """A node that the runtime prepares; see `tflm.kernels.requests.NodeView`."""

    def __init__(self, context: KernelContext, node: Node):
        self._context, self._node = context, node

    @property
    def target(self) -> Target:
        return self._context.target

    @property
    def input_count(self) -> int:
        return len(self._node.inputs)

    @property
    def output_count(self) -> int:
        return len(self._node.outputs)

    @property
    def custom_options(self) -> memoryview:
        return self._node.custom_options

    def has_input(self, index: int) -> bool:
        return self._node.has_input(index)

    def has_intermediate(self, index: int) -> bool:
        return index < len(self._node.intermediates) and self._node.intermediates[index] >= 0

    def input(self, index: int) -> TfLiteTensor:
        return self._context.input_tensor(self._node, index)

    def output(self, index: int) -> TfLiteTensor:
        return self._context.output_tensor(self._node, index)

    def options(self, kind: type[Options]) -> Options:
        return self._node.options(kind) or kind()


class ModelNodeView(NodeView):
    """An operator as it stands in a model that nobody runs; see `tflm.kernels.requests.NodeView`.

    Args:
        model: the model.
        subgraph_index: where the operator is.
        operator: the operator.
        target: the machine that it would run on.

    Inputs and outputs that the operator does not have raise `OperatorError`.
    """

    def __init__(self, model: Model, subgraph_index: int, operator: Operator, target: Target):
        self._model, self._operator, self._target = model, operator, target
        self._tensors = model.subgraphs[subgraph_index].tensors or []

    @property
    def target(self) -> Target:
        return self._target

    @property
    def input_count(self) -> int:
        return len(self._operator.inputs or ())

    @property
    def output_count(self) -> int:
        return len(self._operator.outputs or ())

    @property
    def custom_options(self) -> memoryview:
        return memoryview(self._operator.custom_options or b"")

    def has_input(self, index: int) -> bool:
        return _has(self._operator.inputs, index)

    def has_intermediate(self, index: int) -> bool:
        return _has(self._operator.intermediates, index)

    def input(self, index: int) -> TfLiteTensor:
        return self._tensor(self._operator.inputs, index, "input")

    def output(self, index: int) -> TfLiteTensor:
        return self._tensor(self._operator.outputs, index, "output")

    def options(self, kind: type[Options]) -> Options:
        options = self._operator.builtin_options
        return options if isinstance(options, kind) else kind()

    def _tensor(self, places: tuple[int, ...] | None, index: int, what: str) -> TfLiteTensor:
        if places is None or not _has(places, index):
            raise OperatorError(f"{what} {index} is missing")
        table = self._tensors[places[index]]
        return TfLiteTensor(table, TfLiteEvalTensor(self._model, table))


def _has(places: tuple[int, ...] | None, index: int) -> bool:
    return places is not None and index < len(places) and places[index] >= 0
