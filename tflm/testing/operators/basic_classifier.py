"""Models of BasicClassifier."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from tflm.schema import TensorType
from tflm.testing.drawing import INT32, LARGE_SHAPE, Draw, OperatorCase, values
from tflm.testing.operators.declared import LARGE, DrawnOperator, strategy
from tflm.testing.operators.single_operator import SingleOperator


def _case(model: SingleOperator, *inputs: npt.NDArray[Any]) -> OperatorCase:
    for array in inputs:
        model.input(INT32, [array])
    classes = inputs[1]
    return model.case("BasicClassifier", [(classes.shape, TensorType.BOOL, None), (classes.shape, INT32, None)])


@strategy("BasicClassifier")
def basic_classifier(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Any classes, sometimes one that does not exist."""
    shape = draw(st.sampled_from([(1,), (7,), (40,), (1, 5), (1, 9), (2, 3), (3, 8), (1, 1, 3)]))
    count = math.prod(shape)
    lowest, highest = draw(st.sampled_from([(0, count - 1)] * 4 + [(-1, count - 1), (0, count)]))
    classes = np.array(draw(st.lists(st.integers(lowest, highest), min_size=1, max_size=6)), np.int32)
    posteriors, thresholds = values(draw, INT32, shape), values(draw, INT32, classes.shape)
    if draw(st.booleans()):
        thresholds[0] = posteriors.reshape(-1)[classes[0] % count]
    return _case(model, posteriors, classes, thresholds)


def _large() -> OperatorCase:
    count = math.prod(LARGE_SHAPE)
    numbers = np.arange(count, dtype=np.int32)
    return _case(SingleOperator(), numbers, numbers[::-1], numbers)


LARGE["BasicClassifier"] = _large
