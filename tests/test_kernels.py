"""Every kernel against TFLM itself, over types, shapes and quantization."""

from __future__ import annotations

from collections.abc import Iterator

import models
import pytest
from differential import assert_same_as_tflm
from hypothesis import given
from hypothesis import strategies as st
from oracle import INSTALLED, Oracle

from tflm.schema import BuiltinOperator

pytestmark = pytest.mark.skipif(not INSTALLED, reason="tflite-micro is not installed (pip install 'pytflm[oracle]')")


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    oracle = Oracle()
    yield oracle
    oracle.close()


OPERATORS: dict[str, st.SearchStrategy[models.Case]] = {
    "ADD": models.arithmetic(BuiltinOperator.ADD),
    "MUL": models.arithmetic(BuiltinOperator.MUL),
    "FULLY_CONNECTED": models.fully_connected(),
    "RELU": models.relu(BuiltinOperator.RELU),
    "RELU6": models.relu(BuiltinOperator.RELU6),
    "LOGISTIC": models.sigmoid(BuiltinOperator.LOGISTIC),
    "TANH": models.sigmoid(BuiltinOperator.TANH),
    "SOFTMAX": models.softmax(),
    "QUANTIZE": models.quantize(),
    "DEQUANTIZE": models.dequantize(),
    "RESHAPE": models.reshape(),
}


@pytest.mark.parametrize("operator", OPERATORS)
@given(data=st.data())
def test_kernel_gives_what_tflm_gives(oracle: Oracle, operator: str, data: st.DataObject) -> None:
    assert_same_as_tflm(oracle, *data.draw(OPERATORS[operator]))
