"""BasicClassifier, a custom operator: the posteriors of chosen classes, and whether each reaches its threshold.

Inputs, all int32: the posteriors of all classes, of one or two dimensions; the classes that are asked for, as indices
into the posteriors; and a threshold for each of them. Outputs, an element for each class asked for: whether its
posterior is at least the threshold (bool), and the posterior itself (int32).
"""

from __future__ import annotations

import numpy as np

from tflm.errors import OperatorError
from tflm.kernels.host_memory import kept
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.support.checks import require_type
from tflm.releases.timeline import WHEEL_SOURCE
from tflm.schema.enums import TensorType

TYPES = (TensorType.INT32,)


def _prepare(context: KernelContext, node: Node) -> None:
    node.expect(inputs=3, outputs=2)
    posteriors, classes, thresholds = (context.input_tensor(node, i) for i in range(3))
    reached, chosen = (context.output_tensor(node, i) for i in range(2))
    if len(posteriors.dims) not in (1, 2):
        raise OperatorError(f"has shape {list(posteriors.dims)}, must have 1 or 2 dimensions", tensor=posteriors.name)
    for tensor in (classes, thresholds, reached, chosen):
        if len(tensor.dims) != 1 or tensor.dims != classes.dims:
            reason = f"has shape {list(tensor.dims)}; there must be one element for each class that is asked for"
            raise OperatorError(reason, tensor=tensor.name)
    for tensor in (posteriors, classes, thresholds, chosen):
        require_type(tensor, *TYPES)
    require_type(reached, TensorType.BOOL)


def _bind(context: KernelContext, node: Node) -> Run:
    classes = context.get_eval_input(node, 1)
    posteriors, indices, thresholds = (context.get_eval_input(node, i).elements.reshape(-1) for i in range(3))
    reached, chosen = (context.get_eval_output(node, i).elements for i in range(2))
    count = len(posteriors)
    places = kept(np.empty(indices.shape, np.intp))
    unsigned = indices.view(np.uint32)  # in which a negative index is too large as well

    def run() -> None:
        if unsigned.max(initial=0) >= count:
            raise OperatorError(f"asks for a class beyond the {count} posteriors", tensor=classes.name)
        np.copyto(places, indices)
        posteriors.take(places, out=chosen, mode="clip")
        np.greater_equal(chosen, thresholds, out=reached)

    return run


BASIC_CLASSIFIER = Registration(
    "BasicClassifier", _bind, _prepare, requests=tensors(3, 2), types=TYPES, since=WHEEL_SOURCE
)
