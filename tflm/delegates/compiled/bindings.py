"""The operators with compiled kernels: a table from operator to binding function."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence

from tflm.compiler.language import Step
from tflm.kernels import REGISTRATIONS
from tflm.kernels.host_memory import track_host_array
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import Registration

Bind = Callable[[KernelContext, Node], Sequence[Step] | None]
"""Returns the steps that run a prepared node; None to use numpy for cases that are not covered or not provably
exact.
"""

FAMILIES: dict[str, tuple[str, ...]] = {
    "batch_matmul": ("BATCH_MATMUL",),
    "cast": ("CAST",),
    "depthwise": ("DEPTHWISE_CONV_2D",),
    "elementwise": (
        *(
            "ADD",
            "ADD_N",
            "DIV",
            "EQUAL",
            "GREATER",
            "GREATER_EQUAL",
            "LESS",
            "LESS_EQUAL",
            "LOGICAL_AND",
            "LOGICAL_OR",
        ),
        *("MAXIMUM", "MINIMUM", "MUL", "NOT_EQUAL", "PRELU", "SELECT_V2", "SQUARED_DIFFERENCE", "SUB"),
    ),
    "fourier": ("SignalIrfft", "SignalRfft"),
    "gathering": ("GATHER", "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"),
    "movement": (
        *("BATCH_TO_SPACE_ND", "BROADCAST_TO", "CONCATENATION", "DEPTH_TO_SPACE", "DYNAMIC_UPDATE_SLICE"),
        *("EXPAND_DIMS", "FILL", "MIRROR_PAD", "PACK", "PAD", "PADV2", "RESHAPE", "REVERSE_V2", "SHAPE", "SLICE"),
        *("SPACE_TO_BATCH_ND", "SPACE_TO_DEPTH", "SPLIT", "SPLIT_V", "SQUEEZE", "STRIDED_SLICE", "TRANSPOSE", "UNPACK"),
    ),
    "pooling": ("AVERAGE_POOL_2D", "MAX_POOL_2D"),
    "products": ("CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"),
    "recurrent": ("SVDF", "UNIDIRECTIONAL_SEQUENCE_LSTM"),
    "reduction": ("ARG_MAX", "ARG_MIN", "MEAN", "REDUCE_MAX", "REDUCE_MIN", "SUM"),
    "signal": (
        *("SignalDelay", "SignalEnergy", "SignalFftAutoScale", "SignalFilterBank", "SignalFilterBankLog"),
        *("SignalFilterBankSpectralSubtraction", "SignalFilterBankSquareRoot", "SignalFramer", "SignalOverlapAdd"),
        *("SignalPCAN", "SignalStacker", "SignalWindow"),
    ),
    "softmax": ("SOFTMAX",),
    "state": ("ASSIGN_VARIABLE", "CALL_ONCE", "CIRCULAR_BUFFER", "READ_VARIABLE", "VAR_HANDLE"),
    "unary": (
        *("ABS", "CEIL", "COS", "DEQUANTIZE", "ELU", "EXP", "FLOOR", "HARD_SWISH", "LEAKY_RELU"),
        *("LOG", "LOGICAL_NOT", "LOGISTIC", "NEG", "QUANTIZE", "RELU", "RELU6", "ROUND", "RSQRT", "SIN", "SQRT"),
        *("SQUARE", "TANH"),
    ),
}
"""The modules with compiled kernels, and the operators of each; `BINDINGS` in a module has a `Bind` for each."""

_FAMILY_OF = {operator: family for family, operators in FAMILIES.items() for operator in operators}


def has_kernels(registration: Registration) -> bool:
    """Whether an operator of this package, not a custom one, may have compiled kernels."""
    name = registration.name
    return name in _FAMILY_OF and registration.bind is REGISTRATIONS[name].bind


def bind_steps(context: KernelContext, node: Node, registration: Registration) -> Sequence[Step] | None:
    """The steps that run a node; empty if there is nothing to do, None if numpy must run it."""
    if not has_kernels(registration):
        return None
    steps = _bindings_of(_FAMILY_OF[registration.name])[registration.name](context, node)
    for step in steps or ():
        for array in step.owners:
            track_host_array(array)
    return steps


@functools.cache
def _bindings_of(family: str) -> Mapping[str, Bind]:
    bindings: Mapping[str, Bind] = importlib.import_module(f"{__package__}.{family}").BINDINGS
    return bindings
