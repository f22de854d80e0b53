"""The operators: one module a family, each of them a registration; and the arithmetic that they share."""

from __future__ import annotations

from tflm.kernels import (
    arithmetic,
    control_flow,
    conv_2d,
    depthwise_conv_2d,
    fully_connected,
    quantize,
    relu,
    reshape,
    resource_variable,
    sigmoid,
    softmax,
    transpose_conv,
)
from tflm.kernels.registration import KernelContext, Node, Registration

REGISTRATIONS: dict[str, Registration] = {
    registration.name: registration
    for registration in (
        arithmetic.ADD,
        arithmetic.MUL,
        control_flow.CALL_ONCE,
        conv_2d.CONV_2D,
        depthwise_conv_2d.DEPTHWISE_CONV_2D,
        fully_connected.FULLY_CONNECTED,
        quantize.DEQUANTIZE,
        quantize.QUANTIZE,
        relu.RELU,
        relu.RELU6,
        reshape.RESHAPE,
        resource_variable.ASSIGN_VARIABLE,
        resource_variable.READ_VARIABLE,
        resource_variable.VAR_HANDLE,
        sigmoid.LOGISTIC,
        sigmoid.TANH,
        softmax.SOFTMAX,
        transpose_conv.TRANSPOSE_CONV,
    )
}
"""Every operator of this package, by name."""

__all__ = ["REGISTRATIONS", "KernelContext", "Node", "Registration"]
