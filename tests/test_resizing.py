"""Images of another size, and vectors of length 1, where TFLM can't be asked."""

from __future__ import annotations

import numpy as np
import pytest
from differential import run

import tflm
from tflm.kernels.arithmetic.fixed_point import inverse_square_root
from tflm.schema import BuiltinOperator, L2NormOptions, ResizeBilinearOptions, TensorType, quantized
from tflm.testing.drawing import SingleOperator


def test_integers_that_would_be_taken_from_behind_the_image_are_refused() -> None:
    """With steps of 1/1024, 1500 elements of a single one reach 1499 steps."""
    model = SingleOperator()
    model.input(TensorType.INT8, [np.ones((1, 1, 1, 1), np.int8)], quantized(0.5))
    model.constant(np.array([1, 1500], np.int32))
    output = ((1, 1, 1500, 1), TensorType.INT8, quantized(0.5))
    with pytest.raises(tflm.OperatorError, match="beyond its last"):
        run(*model.case(BuiltinOperator.RESIZE_BILINEAR, [output], ResizeBilinearOptions()))


def test_a_vector_with_an_infinite_element_has_no_direction() -> None:
    model = SingleOperator()
    model.input(TensorType.FLOAT32, [np.array([[np.inf, 1, -1], [3, 0, 4]], np.float32)])
    ((y,),) = run(*model.case(BuiltinOperator.L2_NORMALIZATION, [((2, 3), TensorType.FLOAT32, None)], L2NormOptions()))
    np.testing.assert_allclose(y, [[np.nan, 0, 0], [0.6, 0, 0.8]])


def test_inverse_square_roots_of_many_are_those_of_each() -> None:
    values = np.r_[-(2**31), -1 : 2**12, 2 ** np.arange(31), 2 ** np.arange(1, 31) - 1, 2**31 - 1]
    significands, shifts = inverse_square_root(values)
    assert list(zip(significands.tolist(), shifts.tolist())) == [inverse_square_root(int(value)) for value in values]
    positive = values > 1
    roots = significands[positive] * 2.0 ** (shifts[positive] - 31)
    np.testing.assert_allclose(roots, values[positive] ** -0.5, rtol=1e-5)
