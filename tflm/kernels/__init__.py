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
    "add_n": ("ADD_N",),
    "arg_min_max": ("ARG_MAX", "ARG_MIN"),
    "arithmetic": ("ADD", "DIV", "MUL", "SUB"),
    "basic_classifier": ("BasicClassifier",),
    "batch_matmul": ("BATCH_MATMUL",),
    "broadcast_to": ("BROADCAST_ARGS", "BROADCAST_TO"),
    "cast": ("CAST",),
    "circular_buffer": ("CIRCULAR_BUFFER",),
    "comparisons": ("EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "NOT_EQUAL"),
    "concatenation": ("CONCATENATION", "PACK", "SPLIT", "SPLIT_V", "UNPACK"),
    "control_flow": ("CALL_ONCE", "IF", "WHILE"),
    "conv_2d": ("CONV_2D",),
    "cumsum": ("CUMSUM",),
    "decode": ("TFLM_DECODE",),
    "depthwise_conv_2d": ("DEPTHWISE_CONV_2D",),
    "detection_postprocess": ("TFLite_Detection_PostProcess",),
    "dynamic_update_slice": ("DYNAMIC_UPDATE_SLICE",),
    "ethos_u": ("ethos-u",),
    "fill": ("FILL", "SHAPE"),
    "floor_division": ("FLOOR_DIV", "FLOOR_MOD"),
    "fully_connected": ("FULLY_CONNECTED",),
    "gather": ("EMBEDDING_LOOKUP", "GATHER", "GATHER_ND"),
    "hard_swish": ("ELU", "HARD_SWISH"),
    "l2_normalization": ("L2_NORMALIZATION",),
    "logical": ("LOGICAL_AND", "LOGICAL_NOT", "LOGICAL_OR"),
    "maximum_minimum": ("MAXIMUM", "MINIMUM"),
    "mirror_pad": ("MIRROR_PAD",),
    "pad": ("PAD", "PADV2"),
    "pooling": ("AVERAGE_POOL_2D", "L2_POOL_2D", "MAX_POOL_2D"),
    "prelu": ("PRELU",),
    "quantize": ("DEQUANTIZE", "QUANTIZE"),
    "reduce": ("MEAN", "REDUCE_ALL", "REDUCE_MAX", "REDUCE_MIN", "SUM"),
    "relu": ("LEAKY_RELU", "RELU", "RELU6"),
    "reshape": ("EXPAND_DIMS", "RESHAPE", "SQUEEZE"),
    "resize": ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"),
    "resource_variable": ("ASSIGN_VARIABLE", "READ_VARIABLE", "VAR_HANDLE"),
    "reverse": ("REVERSE_V2",),
    "select": ("SELECT_V2",),
    "sigmoid": ("LOGISTIC", "TANH"),
    "softmax": ("LOG_SOFTMAX", "SOFTMAX"),
    "space_to_depth": ("BATCH_TO_SPACE_ND", "DEPTH_TO_SPACE", "SPACE_TO_BATCH_ND", "SPACE_TO_DEPTH"),
    "squared_difference": ("SQUARED_DIFFERENCE",),
    "strided_slice": ("SLICE", "STRIDED_SLICE"),
    "svdf": ("SVDF",),
    "transpose": ("TRANSPOSE",),
    "transpose_conv": ("TRANSPOSE_CONV",),
    "unary": ("ABS", "CEIL", "COS", "EXP", "FLOOR", "LOG", "NEG", "ROUND", "RSQRT", "SIN", "SQRT", "SQUARE"),
    "unidirectional_sequence_lstm": ("UNIDIRECTIONAL_SEQUENCE_LSTM",),
    "zeros_like": ("ZEROS_LIKE",),
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
