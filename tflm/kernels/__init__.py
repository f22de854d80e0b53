"""The operators: one module a family, each of them a registration; and the arithmetic that they share."""

from __future__ import annotations

from tflm.kernels import (
    arithmetic,
    basic_classifier,
    cast,
    control_flow,
    fully_connected,
    maximum_minimum,
    quantize,
    relu,
    reshape,
    resource_variable,
    sigmoid,
    softmax,
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
        control_flow.CALL_ONCE,
        fully_connected.FULLY_CONNECTED,
        maximum_minimum.MAXIMUM,
        maximum_minimum.MINIMUM,
        quantize.DEQUANTIZE,
        quantize.QUANTIZE,
        relu.LEAKY_RELU,
        relu.RELU,
        relu.RELU6,
        reshape.RESHAPE,
        resource_variable.ASSIGN_VARIABLE,
        resource_variable.READ_VARIABLE,
        resource_variable.VAR_HANDLE,
        sigmoid.LOGISTIC,
        sigmoid.TANH,
        softmax.SOFTMAX,
    )
}
"""Every operator of this package, by name."""

__all__ = ["REGISTRATIONS", "KernelContext", "Node", "Registration"]
