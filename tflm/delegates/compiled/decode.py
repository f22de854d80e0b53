"""TFLM_DECODE: constants are decoded once. Each invoke only copies them, because other tensors share their memory."""

from __future__ import annotations

from tflm.compiler.language import Step
from tflm.compiler.processor import Profile
from tflm.delegates.compiled.movement import copy_steps
from tflm.errors import OperatorError
from tflm.kernels.node import KernelContext, Node


def _bind(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    copies = []
    for i, (scheme, encoded) in enumerate(node.op_data):
        try:
            elements = scheme.decode(encoded)
        except OperatorError:
            return None  # numpy rejects it when it runs
        copies.append((node.eval_output(i).elements.reshape(-1).view(elements.dtype), elements))
    return copy_steps(copies)


BINDINGS = {"TFLM_DECODE": _bind}
