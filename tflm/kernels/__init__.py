"""The operators, and how the runtime finds them.

`registration` declares what the runtime needs to know about an operator. `arithmetic` has fixed point and tables,
`support` the code that all kinds of operators share, `layers` products and convolutions, `reference` the operators
themselves. Each package imports only those named before it.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator, Mapping

from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import OPAQUE, Registration

FAMILIES: dict[str, tuple[str, ...]] = {
    "activations": ("ELU", "HARD_SWISH", "LEAKY_RELU", "LOGISTIC", "PRELU", "RELU", "RELU6", "TANH"),
    "arithmetic": ("ADD", "ADD_N", "DIV", "FLOOR_DIV", "FLOOR_MOD", "MUL", "SQUARED_DIFFERENCE", "SUB"),
    "comparisons": (
        "EQUAL",
        "GREATER",
        "GREATER_EQUAL",
        "LESS",
        "LESS_EQUAL",
        "LOGICAL_AND",
        "LOGICAL_NOT",
        "LOGICAL_OR",
        "MAXIMUM",
        "MINIMUM",
        "NOT_EQUAL",
        "SELECT_V2",
    ),
    "concatenation": ("CONCATENATION", "PACK", "SPLIT", "SPLIT_V", "UNPACK"),
    "control_flow": ("ASSIGN_VARIABLE", "CALL_ONCE", "IF", "READ_VARIABLE", "VAR_HANDLE", "WHILE"),
    "convolution": ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"),
    "custom": ("BasicClassifier", "CIRCULAR_BUFFER", "TFLite_Detection_PostProcess", "ethos-u"),
    "decode": ("TFLM_DECODE",),
    "fully_connected": ("BATCH_MATMUL", "FULLY_CONNECTED"),
    "gather": ("EMBEDDING_LOOKUP", "GATHER", "GATHER_ND"),
    "normalization": ("L2_NORMALIZATION", "LOG_SOFTMAX", "SOFTMAX"),
    "pad": ("MIRROR_PAD", "PAD", "PADV2"),
    "pooling": ("AVERAGE_POOL_2D", "L2_POOL_2D", "MAX_POOL_2D"),
    "quantize": ("CAST", "DEQUANTIZE", "QUANTIZE"),
    "reduce": ("ARG_MAX", "ARG_MIN", "CUMSUM", "MEAN", "REDUCE_ALL", "REDUCE_MAX", "REDUCE_MIN", "SUM"),
    "resize": ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"),
    "shapes": ("BROADCAST_ARGS", "BROADCAST_TO", "EXPAND_DIMS", "FILL", "RESHAPE", "SHAPE", "SQUEEZE", "ZEROS_LIKE"),
    "strided_slice": ("DYNAMIC_UPDATE_SLICE", "SLICE", "STRIDED_SLICE"),
    "svdf": ("SVDF",),
    "transpose": (
        "BATCH_TO_SPACE_ND",
        "DEPTH_TO_SPACE",
        "REVERSE_V2",
        "SPACE_TO_BATCH_ND",
        "SPACE_TO_DEPTH",
        "TRANSPOSE",
    ),
    "unary": ("ABS", "CEIL", "COS", "EXP", "FLOOR", "LOG", "NEG", "ROUND", "RSQRT", "SIN", "SQRT", "SQUARE"),
    "unidirectional_sequence_lstm": ("UNIDIRECTIONAL_SEQUENCE_LSTM",),
    "signal.fft": ("SignalFftAutoScale", "SignalIrfft", "SignalRfft"),
    "signal.filter_bank": (
        "SignalEnergy",
        "SignalFilterBank",
        "SignalFilterBankLog",
        "SignalFilterBankSpectralSubtraction",
        "SignalFilterBankSquareRoot",
        "SignalPCAN",
    ),
    "signal.frames": ("SignalDelay", "SignalFramer", "SignalOverlapAdd", "SignalStacker", "SignalWindow"),
}
"""The modules of `reference` that define operators, with the names of those operators."""


class Registrations(Mapping[str, Registration]):
    """The registration of each operator, by name. Imports its module on first access."""

    def __init__(self) -> None:
        self._modules = {operator: module for module, operators in FAMILIES.items() for operator in operators}

    def __getitem__(self, name: str) -> Registration:
        return _registrations_of(self._modules[name])[name]

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


@functools.cache
def _registrations_of(module: str) -> dict[str, Registration]:
    values = vars(importlib.import_module(f"{__name__}.reference.{module}")).values()
    return {value.name: value for value in values if isinstance(value, Registration)}


REGISTRATIONS = Registrations()
"""Every operator of this package, by name."""

__all__ = ["OPAQUE", "REGISTRATIONS", "KernelContext", "Node", "Registration"]
