"""A node as declarations of memory see it, in the runtime that prepares it."""

from __future__ import annotations

from tflm.kernels.registration import KernelContext, Node
from tflm.kernels.requests import NodeView, Options
from tflm.memory.tensor import TfLiteTensor
from tflm.releases import Release
from tflm.targets import Target


class MicroNodeView(NodeView):
    """A node that the runtime prepares; see `tflm.kernels.requests.NodeView`."""

    def __init__(self, context: KernelContext, node: Node):
        self._context, self._node = context, node

    @property
    def target(self) -> Target:
        return self._context.target

    @property
    def release(self) -> Release:
        return self._context.release

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
