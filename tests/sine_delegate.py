"""A delegate that computes SIN in double precision, and says so."""

from collections.abc import Callable

import numpy as np

import tflm
from tflm.delegates import Delegate, DelegateContext
from tflm.schema import TensorType


def bind(context: tflm.KernelContext, node: tflm.Node) -> Callable[[], None]:
    """Return the function that runs a subset: one SIN after the other, on views of the arena."""
    pairs = [
        (context.get_eval_input(sine, 0).elements, context.get_eval_output(sine, 0).elements)
        for sine, _ in node.op_data.replaced
    ]

    def run() -> None:
        for x, y in pairs:
            y[...] = np.sin(x, dtype=np.float64)

    return run


class SineDelegate(Delegate):
    """Takes every SIN of floats."""

    def prepare(self, context: DelegateContext) -> None:
        nodes = [(i, context.node_and_registration(i)[0]) for i in context.execution_plan()]
        sines = [i for i, node in nodes if node.operator == "SIN" and self.is_float(context, node)]
        context.replace_node_subsets_with_delegate_kernels(tflm.Registration("SINE", bind), sines)

    def is_float(self, context: DelegateContext, node: tflm.Node) -> bool:
        return context.tensors[node.inputs[0]].type == TensorType.FLOAT32
