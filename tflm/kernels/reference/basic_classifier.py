"""BasicClassifier, a custom operator: the posteriors of chosen classes, and whether each reaches its threshold.

Inputs, all int32: the posteriors of all classes, in one or two dimensions; the requested classes, as indices into the
posteriors; and a threshold for each of them. Outputs, with one element per requested class: whether its posterior
reaches the threshold (bool), and the posterior itself (int32).
"""

from __future__ import annotations

import numpy as np

from tflm.errors import OperatorError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.support.checks import require_type
from tflm.releases.timeline import WHEEL_SOURCE
from tflm.schema.enums import TensorType

TYPES = (TensorType.INT32,)


def _prepare(context: KernelContext, node: Node) -> None:
    node.expect(inputs=3, outputs=2)
    posteriors, classes, thresholds = (node.input(i) for i in range(3))
    reached, chosen = (node.output(i) for i in range(2))
    if len(posteriors.dims) not in (1, 2):
        raise OperatorError(f"has shape {list(posteriors.dims)}, must have 1 or 2 dimensions", tensor=posteriors.name)
    for tensor in (classes, thresholds, reached, chosen):
        if len(tensor.dims) != 1 or tensor.dims != classes.dims:
            reason = f"has shape {list(tensor.dims)}; must have one element for each requested class"
            raise OperatorError(reason, tensor=tensor.name)
    for tensor in (posteriors, classes, thresholds, chosen):
        require_type(tensor, *TYPES)
    require_type(reached, TensorType.BOOL)


def _bind(context: KernelContext, node: Node) -> Run:
    classes = node.eval_input(1)
    posteriors, indices, thresholds = (node.eval_input(i).elements.reshape(-1) for i in range(3))
    reached, chosen = (node.eval_output(i).elements for i in range(2))

    def run() -> None:
        if np.any((indices < 0) | (indices >= len(posteriors))):
            raise OperatorError(
                f"has a class that is out of range for {len(posteriors)} posteriors", tensor=classes.name
            )
        values = posteriors[indices]
        reached[...], chosen[...] = values >= thresholds, values

    return run


BASIC_CLASSIFIER = Registration(
    "BasicClassifier", _bind, _prepare, requests=tensors(3, 2), types=TYPES, since=WHEEL_SOURCE
)
