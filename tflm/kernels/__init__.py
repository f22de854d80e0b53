"""The operators: one module a family, each of them a registration; and the arithmetic that they share."""

from __future__ import annotations

from tflm.kernels import (
    arithmetic,
    basic_classifier,
    cast,
    concatenation,
    control_flow,
    fully_connected,
    maximum_minimum,
    pad,
    pooling,
    quantize,
    reduce,
    relu,
    reshape,
    resource_variable,
    sigmoid,
    softmax,
    strided_slice,
    svdf,
    transpose,
)
from tflm.kernels.registration import KernelContext, Node, Registration

REGISTRATIONS: dict[str, Registration] = {
    registration.name: registration
    for registration in (
        arithmetic.ADD,
        arithmetic.DIV,
        arithmetic.MUL,
        arithmetic.SUB,
        basic_classifier.BASIC_CLASSIFIER,
        cast.CAST,
        concatenation.CONCATENATION,
        concatenation.SPLIT,
        concatenation.SPLIT_V,
        control_flow.CALL_ONCE,
        fully_connected.FULLY_CONNECTED,
        maximum_minimum.MAXIMUM,
        maximum_minimum.MINIMUM,
        pad.PAD,
        pad.PADV2,
        pooling.AVERAGE_POOL_2D,
        pooling.MAX_POOL_2D,
        quantize.DEQUANTIZE,
        quantize.QUANTIZE,
        reduce.MEAN,
        reduce.REDUCE_ALL,
        reduce.REDUCE_MAX,
        reduce.REDUCE_MIN,
        reduce.SUM,
        relu.LEAKY_RELU,
        relu.RELU,
        relu.RELU6,
        reshape.RESHAPE,
        resource_variable.ASSIGN_VARIABLE,
        resource_variable.READ_VARIABLE,
        resource_variable.VAR_HANDLE,
        sigmoid.LOGISTIC,
        sigmoid.TANH,
        softmax.LOG_SOFTMAX,
        softmax.SOFTMAX,
        strided_slice.STRIDED_SLICE,
        svdf.SVDF,
        transpose.TRANSPOSE,
    )
}
"""Every operator of this package, by name."""

__all__ = ["REGISTRATIONS", "KernelContext", "Node", "Registration"]
