"""Models of BasicClassifier."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from tflm.schema import TensorType
from tflm.testing.drawing import INT32, LARGE_SHAPE, Draw, OperatorCase, values
from tflm.testing.operators.single_operator import SingleOperator


def _case(posteriors: npt.NDArray[Any], classes: npt.NDArray[Any], thresholds: npt.NDArray[Any]) -> OperatorCase:
    model = SingleOperator()
    for array in (posteriors, classes, thresholds):
        model.input(INT32, [array])
    return model.case("BasicClassifier", [(classes.shape, TensorType.BOOL, None), (classes.shape, INT32, None)])


@st.composite
def basic_classifier(draw: Draw) -> OperatorCase:
    """Any classes, sometimes one that does not exist."""
    shape = draw(st.sampled_from([(1,), (7,), (40,), (1, 5), (1, 9), (2, 3), (3, 8), (1, 1, 3)]))
    count = math.prod(shape)
    lowest, highest = draw(st.sampled_from([(0, count - 1)] * 4 + [(-1, count - 1), (0, count)]))
    classes = np.array(draw(st.lists(st.integers(lowest, highest), min_size=1, max_size=6)), np.int32)
    posteriors, thresholds = values(draw, INT32, shape), values(draw, INT32, classes.shape)
    if draw(st.booleans()):
        thresholds[0] = posteriors.reshape(-1)[classes[0] % count]
    return _case(posteriors, classes, thresholds)


def _large() -> OperatorCase:
    count = math.prod(LARGE_SHAPE)
    numbers = np.arange(count, dtype=np.int32)
    return _case(numbers, numbers[::-1], numbers)


OPERATORS = {"BasicClassifier": basic_classifier()}

LARGE = {"BasicClassifier": _large}
