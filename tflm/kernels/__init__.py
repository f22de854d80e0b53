"""The operators: one module a family, each of them a registration; and the arithmetic that they share."""

from __future__ import annotations

from tflm.kernels import (
    arithmetic,
    control_flow,
    fully_connected,
    quantize,
    relu,
    reshape,
    resource_variable,
    sigmoid,
    softmax,
)
from tflm.kernels.registration import KernelContext, Node, Registration
from tflm.kernels.signal import (
    energy,
    fft,
    filter_bank,
    filter_bank_log,
    filter_bank_spectral_subtraction,
    filter_bank_square_root,
    pcan,
    window,
)

REGISTRATIONS: dict[str, Registration] = {
    registration.name: registration
    for registration in (
        arithmetic.ADD,
        arithmetic.MUL,
        control_flow.CALL_ONCE,
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
        energy.ENERGY,
        fft.FFT_AUTO_SCALE,
        fft.RFFT,
        filter_bank.FILTER_BANK,
        filter_bank_log.FILTER_BANK_LOG,
        filter_bank_spectral_subtraction.FILTER_BANK_SPECTRAL_SUBTRACTION,
        filter_bank_square_root.FILTER_BANK_SQUARE_ROOT,
        pcan.PCAN,
        window.WINDOW,
        softmax.SOFTMAX,
    )
}
"""Every operator of this package, by name."""

__all__ = ["REGISTRATIONS", "KernelContext", "Node", "Registration"]
