"""BasicClassifier: the posteriors of chosen classes, and whether each reaches its threshold."""

from __future__ import annotations

import numpy as np

from tflm.compiler.language import DONE, REFUSED, Int32s, Step, UInt8s, kernel
from tflm.compiler.processor import Profile
from tflm.kernels.node import KernelContext, Node


@kernel
def classify(
    posteriors: Int32s, classes: Int32s, thresholds: Int32s, reached: UInt8s, chosen: Int32s, size: int, count: int
) -> int:
    """Look up `count` of the `size` posteriors."""
    outside = 0
    for i in range(count):
        outside += classes[i] < 0 or classes[i] >= size
    if outside:
        return REFUSED
    for i in range(count):
        posterior = posteriors[classes[i]]
        reached[i] = posterior >= thresholds[i]
        chosen[i] = posterior
    return DONE


def _bind(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    posteriors, classes, thresholds = (node.eval_input(i).elements.reshape(-1) for i in range(3))
    reached, chosen = (node.eval_output(i).elements for i in range(2))
    inputs = {"posteriors": posteriors, "classes": classes, "thresholds": thresholds}
    outputs = {"reached": reached.view(np.uint8), "chosen": chosen}
    return [classify.step(**inputs, **outputs, size=posteriors.size, count=classes.size)]


BINDINGS = {"BasicClassifier": _bind}
