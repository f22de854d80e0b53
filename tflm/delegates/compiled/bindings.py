"""The operators with compiled kernels: a table from operator to binding function."""

from __future__ import annotations

import functools
import importlib
import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tflm.compiler.language import Step
from tflm.compiler.processor import Profile
from tflm.kernels import REGISTRATIONS
from tflm.kernels.host_memory import track_host_array
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.overlap import OperatorFacts, nowhere
from tflm.kernels.registration import Registration
from tflm.kernels.support.elementwise import Copying
from tflm.schema.enums import TensorType

Bind = Callable[[KernelContext, Node, Profile], Sequence[Step] | None]
"""Returns the steps that run a prepared node; None for cases that are not supported or not provably exact, which numpy
then runs.
"""

FAMILIES: dict[str, tuple[str, ...]] = {
    "batch_matmul": ("BATCH_MATMUL",),
    "depthwise": ("DEPTHWISE_CONV_2D",),
    "custom": ("BasicClassifier", "TFLite_Detection_PostProcess"),
    "elementwise": (
        *(
            "ADD",
            "ADD_N",
            "DIV",
            "EQUAL",
            "FLOOR_DIV",
            "FLOOR_MOD",
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
    "gathering": ("EMBEDDING_LOOKUP", "GATHER", "GATHER_ND", "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"),
    "movement": (
        *("BROADCAST_ARGS", "BROADCAST_TO", "CONCATENATION", "DEPTH_TO_SPACE", "EXPAND_DIMS", "FILL", "PACK"),
        *("PAD", "PADV2", "RESHAPE", "SHAPE", "SPACE_TO_DEPTH", "SPLIT", "SPLIT_V", "SQUEEZE"),
        *("STRIDED_SLICE", "TFLM_DECODE", "TRANSPOSE", "UNPACK", "ZEROS_LIKE"),
    ),
    "normalization": ("L2_NORMALIZATION", "LOG_SOFTMAX", "SOFTMAX"),
    "pooling": ("AVERAGE_POOL_2D", "L2_POOL_2D", "MAX_POOL_2D"),
    "products": ("CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"),
    "recurrent": ("SVDF", "UNIDIRECTIONAL_SEQUENCE_LSTM"),
    "reduction": ("ARG_MAX", "ARG_MIN", "CUMSUM", "MEAN", "REDUCE_ALL", "REDUCE_MAX", "REDUCE_MIN", "SUM"),
    "signal": (
        *("SignalDelay", "SignalEnergy", "SignalFftAutoScale", "SignalFilterBank", "SignalFilterBankLog"),
        *("SignalFilterBankSpectralSubtraction", "SignalFilterBankSquareRoot", "SignalFramer", "SignalOverlapAdd"),
        *("SignalPCAN", "SignalStacker", "SignalWindow"),
    ),
    "state": ("ASSIGN_VARIABLE", "CALL_ONCE", "CIRCULAR_BUFFER", "READ_VARIABLE", "VAR_HANDLE"),
    "unary": (
        *("ABS", "CAST", "CEIL", "COS", "DEQUANTIZE", "ELU", "EXP", "FLOOR", "HARD_SWISH", "LEAKY_RELU"),
        *("LOG", "LOGICAL_NOT", "LOGISTIC", "NEG", "QUANTIZE", "RELU", "RELU6", "ROUND", "RSQRT", "SIN", "SQRT"),
        *("SQUARE", "TANH"),
    ),
    "variable_copies": (
        *("BATCH_TO_SPACE_ND", "DYNAMIC_UPDATE_SLICE", "MIRROR_PAD", "REVERSE_V2", "SLICE", "SPACE_TO_BATCH_ND"),
    ),
}
"""The modules with compiled kernels, and the operators of each; `BINDINGS` in a module has a `Bind` for each."""

_FAMILY_OF = {operator: family for family, operators in FAMILIES.items() for operator in operators}


EXACT_TYPES = frozenset(
    {
        *(TensorType.BOOL, TensorType.RESOURCE, TensorType.INT4, TensorType.INT8, TensorType.INT16, TensorType.INT32),
        *(TensorType.INT64, TensorType.UINT8, TensorType.UINT16, TensorType.UINT32, TensorType.UINT64),
    }
)
"""Types whose results do not depend on the order of operations, unlike those of floats."""


def has_kernels(registration: Registration) -> bool:
    """Whether an operator may have compiled kernels: it is an operator of this package, not a custom one."""
    name = registration.name
    return name in _FAMILY_OF and registration.bind is REGISTRATIONS[name].bind


def bind_steps(
    context: KernelContext, node: Node, registration: Registration, profile: Profile
) -> Sequence[Step] | None:
    """Return the steps that run a node: empty if there is nothing to do, None if numpy must run it."""
    if not has_kernels(registration) or not _overlaps_as_declared(context, node, registration):
        return None
    steps = _bindings_of(_FAMILY_OF[registration.name])[registration.name](context, node, profile)
    for step in steps or ():
        for array in step.owners:
            track_host_array(array)
    return steps


def _overlaps_as_declared(context: KernelContext, node: Node, registration: Registration) -> bool:
    """Whether outputs share memory with inputs, and with each other, only as the registration declares.

    Other plans are possible with custom planners and `checks="tflm"`. With them, a kernel could overwrite indices that
    it has checked. The numpy kernels read their inputs first.
    """
    inputs = [(i, node.eval_input(i).elements) for i in range(node.input_count) if node.has_input(i)]
    outputs = [node.eval_output(i).elements for i in range(node.output_count)]
    shared = [(i, x, y) for y in outputs for i, x in inputs if np.may_share_memory(x, y)]
    have_common_bytes = any(itertools.starmap(np.may_share_memory, itertools.combinations(outputs, 2)))
    if not shared and not have_common_bytes:
        return True
    facts = OperatorFacts.of(context.model.root, context.subgraph, (context.subgraph.operators or [])[node.index])
    if registration.moves is not None and registration.moves(facts) is not None:
        return True  # each copy is bound, or left to numpy, separately
    overlap = registration.overlap or nowhere
    return not have_common_bytes and all(x.ctypes.data - y.ctypes.data in overlap(facts, i) for i, x, y in shared)


def is_interchangeable(node: Node, registration: Registration) -> bool:
    """Whether the compiled kernel and the numpy kernel have the same results bit for bit, and so the same state.

    This is true for integers, and for floats that are only moved. Sums of floats may be rounded in another order.
    """
    if isinstance(registration.bind, Copying) or _FAMILY_OF.get(registration.name) == "state":
        return True
    inputs = (node.eval_input(i) for i in range(node.input_count) if node.has_input(i))
    outputs = (node.eval_output(i) for i in range(node.output_count))
    return all(tensor.type in EXACT_TYPES for tensor in (*inputs, *outputs))


@functools.cache
def _bindings_of(family: str) -> Mapping[str, Bind]:
    bindings: Mapping[str, Bind] = importlib.import_module(f"{__package__}.{family}").BINDINGS
    return bindings
