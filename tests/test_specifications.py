"""Integer kernels against plain specifications of what they compute, on the models that are compared with TFLM."""

from __future__ import annotations

import numpy as np
import pytest
from differential import run
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from sampling import examples
from specifications import SPECIFICATIONS
from specifications.example import Example

import tflm
from tflm.schema import TensorType
from tflm.testing.operators import OPERATORS

MAXIMUM_WORK = 3000
"""Products, at the most, that a specification is asked for: it takes a microsecond or more for each."""


@pytest.mark.parametrize("operator", SPECIFICATIONS)
@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(data=st.data())
def test_kernel_gives_what_is_specified(operator: str, data: st.DataObject) -> None:
    model, invocations = data.draw(OPERATORS[operator])
    example = Example(model, invocations[0])
    assume(example.input(2 if operator == "TRANSPOSE_CONV" else 0).type == TensorType.INT8)
    assume(np.prod(example.output.shape) * (example.input(1).values.size if example.has(1) else 1) < MAXIMUM_WORK)
    # TFLM takes a state of 16 bits as one of 8 where the filters over time have 8.
    assume(operator != "SVDF" or example.input(2).type == example.input(4).type)
    try:
        (result,) = run(model, invocations[:1])[0]
    except tflm.TflmError:
        assume(False)
    assert result.reshape(-1).tolist() == SPECIFICATIONS[operator](example)
