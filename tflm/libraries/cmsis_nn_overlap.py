"""How far outputs may overlap inputs with CMSIS-NN's kernels, by instruction set.

This module declares only where they allow less than TFLM's kernels, so a plan that is safe for them is safe for TFLM's,
too. `tools/prove_overlap.py` runs the kernels at the smallest distance that is declared.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from tflm.kernels.layers.geometry import behind_blocks, windows
from tflm.kernels.overlap import OperatorFacts, Overlap, anywhere, nowhere
from tflm.libraries.cmsis_nn_scratch import CHANNELS_IN_A_BLOCK, has_mve
from tflm.libraries.versions import Version
from tflm.schema.enums import TensorType
from tflm.targets import Target

ROWS_IN_A_BLOCK = 4
"""Rows that the matrix product for Helium processes at once."""

OWN = ("ADD", "AVERAGE_POOL_2D", "CONV_2D", "DEPTHWISE_CONV_2D", "MAXIMUM", "MAX_POOL_2D", "MINIMUM", "MUL", "SOFTMAX")
"""Operators with CMSIS-NN kernels whose outputs may overlap inputs in TFLM's kernels."""

PROVED_SINCE = "2a999a2f"
"""The first version whose kernels return the same results with overlapping outputs."""


def overlaps(target: Target, version: Version) -> Mapping[str, Overlap]:
    """The overlaps that CMSIS-NN's kernels allow, by operator, with a part's instruction set."""
    if version.before(PROVED_SINCE):
        return MappingProxyType(dict.fromkeys(OWN, nowhere))
    mve = has_mve(target)
    of_int8: dict[str, Overlap] = {
        "ADD": anywhere,
        "AVERAGE_POOL_2D": anywhere,
        "CONV_2D": _mve_conv_2d if mve else _conv_2d,
        "DEPTHWISE_CONV_2D": _mve_depthwise_conv_2d if mve else anywhere,
        "MAXIMUM": _of_one_shape,
        "MAX_POOL_2D": anywhere,
        "MINIMUM": _of_one_shape,
        "MUL": anywhere,
        "SOFTMAX": anywhere,
    }
    of_int16: dict[str, Overlap] = {"ADD": anywhere, "MUL": anywhere}
    return MappingProxyType(
        {name: partial(_by_type, int8=of_int8[name], int16=of_int16.get(name, nowhere)) for name in of_int8}
    )


def _by_type(operator: OperatorFacts, input: int, int8: Overlap, int16: Overlap) -> range:
    """Other types use TFLM's kernels, except int4, for which the overlap is unknown."""
    types = {tensor.type for tensor in (*operator.inputs[:2], *operator.outputs) if tensor is not None}
    known = {TensorType.INT8: int8, TensorType.INT16: int16, TensorType.FLOAT32: anywhere, TensorType.INT32: anywhere}
    (type, *others) = types
    return nowhere(operator, input) if others else known.get(type, nowhere)(operator, input)


def _of_one_shape(operator: OperatorFacts, input: int) -> range:
    same = all(tensor is not None and tensor.dims == operator.outputs[0].dims for tensor in operator.inputs)
    return anywhere(operator, input) if same else nowhere(operator, input)


def _conv_2d(operator: OperatorFacts, input: int) -> range:
    """1x1 windows loop over channels first and read the whole input for each; larger windows are copied before use."""
    return nowhere(operator, input) if _is_grouped(operator) or _is_pointwise(operator) else anywhere(operator, input)


def _mve_conv_2d(operator: OperatorFacts, input: int) -> range:
    if _is_grouped(operator):
        return nowhere(operator, input)
    return _mve_convolution(operator, input)


def _mve_convolution(operator: OperatorFacts, input: int) -> range:
    """1x1 windows are processed four at a time for each channel; larger ones are copied; 1xN is unknown."""
    x, y, both = operator.inputs[0], operator.outputs[0], windows(operator)
    if x is None or both is None:
        return nowhere(operator, input)
    if _is_pointwise(operator):
        strides = (both[0].stride, both[1].stride) != (1, 1)
        run = y.dims[2] if strides else y.dims[0] * y.dims[1] * y.dims[2]
        return behind_blocks(operator, input, ROWS_IN_A_BLOCK, run)
    is_one_row = x.dims[1] == both[0].taps == 1
    return nowhere(operator, input) if is_one_row else anywhere(operator, input)


def _mve_depthwise_conv_2d(operator: OperatorFacts, input: int) -> range:
    """A single channel runs as a convolution; otherwise blocks of channels process the whole image one after the
    other.
    """
    x, y, both = operator.inputs[0], operator.outputs[0], windows(operator)
    if x is None or both is None:
        return nowhere(operator, input)
    if x.dims[3] == 1 and y.dims[3] > 1:
        return _mve_convolution(operator, input)
    return nowhere(operator, input) if y.dims[3] > CHANNELS_IN_A_BLOCK else anywhere(operator, input)


def _is_grouped(operator: OperatorFacts) -> bool:
    x, weights = operator.inputs[0], operator.inputs[1]
    return x is None or weights is None or len(weights.dims) != 4 or x.dims[-1] != weights.dims[3]


def _is_pointwise(operator: OperatorFacts) -> bool:
    both = windows(operator)
    return both is None or all((axis.taps, axis.dilation, axis.before) == (1, 1, 0) for axis in both)
