"""Models of BasicClassifier."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from tflm.schema import ModelBuilder, TensorType
from tflm.testing.drawing import INT32, LARGE_SHAPE, Draw, OperatorCase, values


def _model(shape: tuple[int, ...], classes: int) -> bytes:
    builder = ModelBuilder()
    main = builder.subgraph()
    inputs = [
        main.input("posteriors", shape, INT32),
        main.input("classes", (classes,), INT32),
        main.input("thresholds", (classes,), INT32),
    ]
    reached = main.tensor("reached", (classes,), TensorType.BOOL)
    chosen = main.tensor("chosen", (classes,), INT32)
    main.operator("BasicClassifier", inputs, [reached, chosen])
    main.output(reached, chosen)
    return builder.build()


@st.composite
def basic_classifier(draw: Draw) -> OperatorCase:
    """Any classes, now and then one that is not there."""
    shape = draw(st.sampled_from([(1,), (7,), (40,), (1, 5), (1, 9), (2, 3), (3, 8), (1, 1, 3)]))
    count = math.prod(shape)
    lowest, highest = draw(st.sampled_from([(0, count - 1)] * 4 + [(-1, count - 1), (0, count)]))
    classes = np.array(draw(st.lists(st.integers(lowest, highest), min_size=1, max_size=6)), np.int32)
    posteriors, thresholds = values(draw, INT32, shape), values(draw, INT32, classes.shape)
    if draw(st.booleans()):
        thresholds[0] = posteriors.reshape(-1)[classes[0] % count]
    return _model(shape, len(classes)), [[posteriors, classes, thresholds]]


def _large() -> OperatorCase:
    count = math.prod(LARGE_SHAPE)
    numbers = np.arange(count, dtype=np.int32)
    return _model((count,), count), [[numbers, numbers[::-1], numbers]]


OPERATORS = {"BasicClassifier": basic_classifier()}

LARGE = {"BasicClassifier": _large}
