"""Large models of single operators: an array that an invoke allocates for them shows.

Types, options and the shapes of outputs follow from what registrations and options declare, as in
`tflm.testing.operators`.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.kernels import REGISTRATIONS
from tflm.kernels.shapes import Shapes
from tflm.schema import (
    ELEMENT_TYPES,
    TENSOR_TYPES,
    ActivationFunctionType,
    BuiltinOperator,
    IfOptions,
    TensorType,
    WhileOptions,
    quantized,
)
from tflm.testing.drawing import (
    FLOAT32,
    INT8,
    INT16,
    INT32,
    INT64,
    OperatorCase,
    Quantization,
    SingleOperator,
    custom_options,
)
from tflm.testing.operators import custom
from tflm.testing.operators.control_flow import COUNTER, Flow
from tflm.testing.operators.declared import QUANTIZED_TYPES, Kind, options_of
from tflm.testing.operators.elementwise import (
    BINARY,
    BOOL,
    CASTS,
    COMPARISONS,
    DEQUANTIZATIONS,
    FUNCTIONS,
    OUTPUTS,
    QUANTIZATIONS,
    REDUCTIONS,
    SHORT,
    SOFTMAX_TYPES,
    TO_BOOL,
)
from tflm.testing.operators.movement import POOLS, TYPES
from tflm.testing.operators.products import LSTM_TYPES, SVDF_TYPES
from tflm.testing.operators.signal import UINT32, UINT64
from tflm.testing.operators.slicing import COPIED, LOOKUPS

LARGE_SHAPE = (1, 64, 64, 32)

LARGE: dict[str, Callable[[], OperatorCase]] = {}
"""Models whose tensors are so large that an array allocated in each invoke shows, by names that begin with the
operator's."""


@functools.cache
def large_arena() -> bytearray:
    """An arena for each of them, one after the other: to make one takes longer than most invokes."""
    return bytearray(1 << 24)


@dataclass(frozen=True)
class Weights:
    """A constant of a type, or of floats with float activations; a scale for each slice along a dimension, or one."""

    shape: tuple[int, ...]
    by: int | None = None
    type: TensorType = INT8
    scale: float = 0.01

    def add(self, model: SingleOperator, activations: TensorType) -> None:
        """Add it to a model."""
        elements = np.random.default_rng(0).integers(-9, 9, self.shape)
        if activations == FLOAT32:
            return model.constant(elements.astype(np.float32))
        slices = 1 if self.by is None else self.shape[self.by]
        scales = quantized([self.scale * (1 + 0.1 * i) for i in range(slices)], 0, self.by or 0)
        return model.constant(elements.astype(ELEMENT_TYPES[self.type].dtype), scales)


class State(Weights):
    """A variable tensor."""

    def add(self, model: SingleOperator, activations: TensorType) -> None:
        """Add it to a model."""
        is_float = activations == FLOAT32
        model.variable(FLOAT32 if is_float else self.type, self.shape, None if is_float else quantized(self.scale))


def large(
    name: str,
    *operands: tuple[int, ...] | npt.NDArray[Any] | list[Any] | int | Weights | None,
    kinds: Sequence[Kind] = (),
    scales: Sequence[float | Quantization] = (0.5,),
    type: TensorType | None = None,
    shapes: Shapes = (),
    **given: Any,
) -> None:
    """Add a large model of an operator for each of its types.

    Args:
        name: the operator.
        operands: shapes of inputs of the main tensor's type; arrays that are fed; numbers for constants of int32;
            weights; None for an operand that is left out.
        kinds: types in place of those that the registration declares. Of several, the last is the output's.
        scales: scales of the tensors of quantized types, or quantization of those that are not floats; the outputs'
            after those of the shapes among the operands. The last is repeated.
        type: the type of the outputs, by default the main tensor's.
        shapes: shapes of the outputs; by default, they follow from the operands.
        given: fields of the options.
    """
    for kind in kinds or REGISTRATIONS[name].types:
        types = kind if isinstance(kind, tuple) else (kind,)
        output = types[-1] if type is None else type
        case = partial(_model_of, name, operands, types, scales, output, shapes, given)
        LARGE["-".join([name, *(type.name for type in types)])] = case


def _model_of(
    name: str,
    operands: Sequence[Any],
    types: Sequence[TensorType],
    scales: Sequence[float | Quantization],
    output: TensorType,
    shapes: Shapes,
    given: Mapping[str, Any],
) -> OperatorCase:
    model, rng = SingleOperator(), np.random.default_rng(0)
    remaining = list(scales)

    def parameters_of(type: TensorType) -> Quantization:
        parameters = remaining.pop(0) if len(remaining) > 1 else remaining[0]
        if isinstance(parameters, float):
            return quantized(parameters) if type in QUANTIZED_TYPES else None
        if type == FLOAT32:
            return None
        return parameters

    of_operands = itertools.chain(types, itertools.repeat(types[-1]))
    for operand in operands:
        if isinstance(operand, (int, list)):
            model.constant(np.array(operand, np.int32))
        elif isinstance(operand, np.ndarray):
            model.input(TENSOR_TYPES[operand.dtype], [operand])
        elif isinstance(operand, Weights):
            operand.add(model, types[0])
        elif operand is None:
            model.omitted()
        else:
            type = next(of_operands)
            elements = rng.integers(1, 100, operand).astype(ELEMENT_TYPES[type].dtype)
            model.input(type, [elements], parameters_of(type))
    options, parameters = options_of(name, **given), parameters_of(output)
    outputs = [(shape, output, parameters) for shape in shapes or model.inferred(name, options)]
    return model.case(BuiltinOperator[name], outputs, options)


# --- Control flow -----------------------------------------------------------------------------------------------------


def large_flow(operator: BuiltinOperator, type: TensorType) -> OperatorCase:
    """An IF or a WHILE over a tensor of 256 KiB or more, whose body runs three times."""
    shape = (1, 64, 64, 64)
    flow = Flow(lambda _: 0, [COUNTER, (shape, type)])
    main, _ = flow.added()
    inputs, outputs = flow.inputs(main), flow.tensors(main, "y")
    if operator == BuiltinOperator.IF:
        condition = main.constant("condition", np.array([True], np.bool_))
        main.operator(operator, [condition, *inputs], outputs, IfOptions(then_subgraph_index=1, else_subgraph_index=1))
    else:
        main.operator(operator, inputs, outputs, WhileOptions(cond_subgraph_index=2, body_subgraph_index=1))
    main.output(*outputs)
    flow.subgraph(0, counts=True)
    until, _ = flow.added()
    until.output(flow.less(until, flow.inputs(until)[0], 3))
    return flow.builder.build(), [[np.array([0], np.int32), np.ones(shape, ELEMENT_TYPES[type].dtype)]]


for flow in (BuiltinOperator.IF, BuiltinOperator.WHILE):
    LARGE |= {f"{flow.name}-{type.name}": partial(large_flow, flow, type) for type in (FLOAT32, INT8)}


# --- Custom operators -------------------------------------------------------------------------------------------------


def large_circular_buffer() -> OperatorCase:
    """512 KiB of slots."""
    model = SingleOperator()
    model.input(INT8, [np.ones((1, 1, 1, 1024), np.int8)], quantized(0.5))
    y = model.main.tensor("y", (1, 512, 1, 1024), INT8, quantized(0.5), is_variable=True)
    model.main.operator("CIRCULAR_BUFFER", model.operands, [y], custom_options=custom_options({"cycles_max": 2}))
    model.main.output(y)
    return model.builder.build(), model.invocations


def large_detection(is_regular: bool) -> OperatorCase:
    """The boxes and classes of a large detector."""
    rng = np.random.default_rng(0)
    anchors = rng.uniform(0.2, 1, (4000, 4)).astype(np.float32)
    options = custom.detection_options(num_classes=30, use_regular_nms=is_regular, max_detections=10)
    boxes = rng.uniform(-2, 2, (1, 4000, 4)).astype(np.float32)
    scores = rng.uniform(0, 1, (1, 4000, 31)).astype(np.float32)
    return custom.detection_model(4000, 31, 4, anchors, options), [[boxes, scores]]


def large_decode() -> OperatorCase:
    """A look-up table for 256 KiB."""
    head = custom.with_table(custom.metadata(custom.LOOK_UP, 4, 16), np.arange(16, dtype=np.int8))
    codes = np.arange(2**17, dtype=np.int64).astype(np.uint8)
    return custom.decode_model([(codes, head, INT8, (2**18,), quantized(0.5))]), [[]]


LARGE |= {
    "CIRCULAR_BUFFER": large_circular_buffer,
    f"{custom.DETECTION}-regular": partial(large_detection, True),
    f"{custom.DETECTION}-fast": partial(large_detection, False),
    "TFLM_DECODE": large_decode,
}


def large_classifier() -> OperatorCase:
    """As many classes as a large tensor has elements."""
    count = math.prod(LARGE_SHAPE)
    numbers = np.arange(count, dtype=np.int32)
    return custom.classifier_case(SingleOperator(), numbers, numbers[::-1], numbers)


LARGE["BasicClassifier"] = large_classifier


# --- Element by element, and along axes -------------------------------------------------------------------------------


for operator in BINARY:
    by_type = (0.5, 0.25) if operator in COMPARISONS else (0.01, 0.02, 0.03)
    large(operator, LARGE_SHAPE, LARGE_SHAPE, scales=by_type, type=BOOL if operator in TO_BOOL else None)
large("PRELU", LARGE_SHAPE, LARGE_SHAPE, kinds=[FLOAT32, INT8, (INT16, INT8, INT16)], scales=(0.01, 0.02, 0.03))
large("ADD_N", LARGE_SHAPE, LARGE_SHAPE, LARGE_SHAPE)
large("SELECT_V2", np.ones(LARGE_SHAPE, np.bool_), LARGE_SHAPE, LARGE_SHAPE, scales=(None,))
for operator in FUNCTIONS:
    large(operator, LARGE_SHAPE, scales=(0.01, 0.02))
for operator in ("RELU", "RELU6", "LEAKY_RELU"):
    large(operator, LARGE_SHAPE, scales=(0.01, 0.02))
for operator in ("LOGISTIC", "TANH", "LOG_SOFTMAX"):
    for type in REGISTRATIONS[operator].types:
        large(operator, LARGE_SHAPE, kinds=[type], scales=(0.01, OUTPUTS.get((operator, type), SHORT)))
for types in SOFTMAX_TYPES:
    large("SOFTMAX", LARGE_SHAPE, kinds=[types], scales=(0.01, OUTPUTS.get(("SOFTMAX", *types), SHORT)), beta=1.0)
large("CAST", LARGE_SHAPE, kinds=CASTS, scales=(None,))
large("QUANTIZE", LARGE_SHAPE, kinds=QUANTIZATIONS, scales=(quantized(0.01), quantized(0.02)))
large("DEQUANTIZE", LARGE_SHAPE, kinds=DEQUANTIZATIONS, scales=(0.01,))
for operator in REDUCTIONS:
    large(operator, LARGE_SHAPE, [1, 2], keep_dims=True)
for operator in ("ARG_MAX", "ARG_MIN"):
    large(operator, LARGE_SHAPE, 2, type=INT32, output_type=INT32)
large("CUMSUM", LARGE_SHAPE, 2, exclusive=True, reverse=True)


# --- Elements moved, and windows --------------------------------------------------------------------------------------


large("RESHAPE", LARGE_SHAPE, kinds=TYPES, new_shape=(64 * 64 * 32,))
large("EXPAND_DIMS", LARGE_SHAPE, [0], kinds=TYPES)
large("SQUEEZE", LARGE_SHAPE, kinds=TYPES)
large("PAD", LARGE_SHAPE, [0, 0, 1, 1, 2, 2, 3, 3], kinds=TYPES)
large("MIRROR_PAD", LARGE_SHAPE, [(0, 0), (1, 1), (2, 2), (3, 3)])
large("TRANSPOSE", LARGE_SHAPE, [0, 3, 2, 1], kinds=TYPES)
large("REVERSE_V2", LARGE_SHAPE, [1, 2], kinds=TYPES)
large("BROADCAST_TO", LARGE_SHAPE, [2, 64, 64, 32], kinds=TYPES)
large("SPACE_TO_DEPTH", LARGE_SHAPE, block_size=2)
large("DEPTH_TO_SPACE", LARGE_SHAPE, block_size=2)
large("SPACE_TO_BATCH_ND", LARGE_SHAPE, [2, 2], [1, 1, 1, 1], shapes=[(4, 33, 33, 32)])
large("BATCH_TO_SPACE_ND", LARGE_SHAPE, [1, 1], [1, 1, 1, 1], shapes=[(1, 62, 62, 32)])
large("FILL", list(LARGE_SHAPE), np.array(2, np.float32), kinds=[FLOAT32])
large("BROADCAST_ARGS", *(np.full(size, 2, np.int64) for size in (100_000, 50_000)), kinds=[INT64], shapes=[(100_000,)])
for operator in POOLS:
    large(operator, LARGE_SHAPE, filter_height=3, filter_width=3, stride_h=1, stride_w=1)
for operator in ("RESIZE_NEAREST_NEIGHBOR", "RESIZE_BILINEAR"):
    large(operator, LARGE_SHAPE, [96, 48], half_pixel_centers=True)
large("L2_NORMALIZATION", LARGE_SHAPE, scales=(0.01, 0.02))


# --- Products and recurrences -----------------------------------------------------------------------------------------


IMAGE = (1, 64, 64, 16)
large("CONV_2D", IMAGE, Weights((32, 3, 3, 16), 0), scales=(0.01,), stride_h=1, stride_w=1)
large("DEPTHWISE_CONV_2D", IMAGE, Weights((1, 3, 3, 16), 3), scales=(0.01,), stride_h=1, stride_w=1, depth_multiplier=1)
twice_as_wide: dict[str, Any] = {"shapes": [(1, 64, 128, 32)], "stride_h": 1, "stride_w": 2}
large("TRANSPOSE_CONV", None, Weights((32, 3, 3, 16), 0), IMAGE, scales=(0.01,), **twice_as_wide)
large("FULLY_CONNECTED", (256, 512), Weights((256, 512)), None, scales=(0.01,))
large("BATCH_MATMUL", (2, 64, 512), (2, 512, 256), scales=(0.01,))
WIDE, SQUARE, BIAS, HIDDEN = (128, 512), (128, 128), (128,), (1, 128)
for type, (_, bias_type, cell_type) in LSTM_TYPES.items():
    weights = [*[Weights(WIDE)] * 4, *[Weights(SQUARE)] * 4]
    biases = [Weights(BIAS, type=bias_type)] * 4
    states = [State(HIDDEN, type=type), State(HIDDEN, type=cell_type, scale=2.0**-11)]
    operands: list[Any] = [(1, 4, 512), *weights, *[None] * 3, *biases, None, None, *states, *[None] * 4]
    shaped: dict[str, Any] = {"shapes": [(1, 4, 128)], "fused_activation_function": ActivationFunctionType.TANH}
    large("UNIDIRECTIONAL_SEQUENCE_LSTM", *operands, kinds=[type], scales=(0.01,), **shaped)
for type, time_type, _ in SVDF_TYPES[:3]:
    weights = [Weights((512, 512)), Weights((512, 16), type=time_type), Weights((256,), type=INT32, scale=0.0001)]
    operands = [(1, 512), *weights, State((1, 512 * 16), type=time_type)]
    large("SVDF", *operands, kinds=[(type, time_type)], type=type, scales=(0.01,), rank=2)


# --- Signals ----------------------------------------------------------------------------------------------------------


COUNT = 1 << 17
"""Elements of a large tensor."""


@dataclass(frozen=True)
class Ramp:
    """An operand of integers from 0 to below `highest`, over and over, times `factor`, plus `offset`."""

    type: TensorType
    shape: tuple[int, ...] = (COUNT,)
    highest: int = 1000
    factor: int = 1
    offset: int = 0
    is_constant: bool = False

    def add(self, model: SingleOperator) -> None:
        """Add it to a model."""
        numbers = np.resize(np.arange(self.highest, dtype=np.int64), self.shape) * np.int64(self.factor) + self.offset
        elements = numbers.astype(ELEMENT_TYPES[self.type].dtype)
        if self.is_constant:
            model.constant(elements)
        else:
            model.input(self.type, [elements])


def large_signal(name: str, operands: list[Ramp], *outputs: tuple[tuple[int, ...], TensorType], **numbers: Any) -> None:
    """Add a large model of an operator: its operands, the shapes and types of its outputs, and its options."""
    operator, _, _ = name.partition("-")

    def case() -> OperatorCase:
        model = SingleOperator()
        for operand in operands:
            operand.add(model)
        return model.case(operator, [(*output, None) for output in outputs], **numbers)

    LARGE[name] = case


FLAG = ((), TensorType.BOOL)
CHANNELS = ((COUNT,), UINT32)
SMOOTHING = dict.fromkeys(("alternate_smoothing", "alternate_one_minus_smoothing", "smoothing"), 800)
SMOOTHING |= {"one_minus_smoothing": 900, "min_signal_remaining": 800, "num_channels": COUNT, "clamping": 1}
SMOOTHING |= {"smoothing_bits": 10, "spectral_subtraction_bits": 14}
CONTEXT = {"stacker_left_context": 1, "stacker_right_context": 0, "stacker_step": 1, "num_channels": COUNT}
WEIGHTS = Ramp(INT16, (30030,), is_constant=True)
STARTS = Ramp(INT16, (1001,), highest=1001, factor=30, is_constant=True)
WIDTHS = Ramp(INT16, (1001,), highest=1, offset=30, is_constant=True)
large_signal("SignalDelay", [Ramp(INT16, (2, COUNT // 2))], ((2, COUNT // 2), INT16), delay_length=COUNT)
large_signal("SignalEnergy", [Ramp(INT16)], ((COUNT // 2,), UINT32), start_index=5, end_index=COUNT // 2)
large_signal("SignalFftAutoScale", [Ramp(INT16, offset=-5)], ((COUNT,), INT16), ((), INT32))
large_signal("SignalFftAutoScale-lowest", [Ramp(INT16, offset=-(2**15))], ((COUNT,), INT16), ((), INT32))
bank = [Ramp(UINT32, (30030,)), WEIGHTS, WEIGHTS, STARTS, STARTS, WIDTHS]
large_signal("SignalFilterBank", bank, ((1000,), UINT64), num_channels=1000)
large_signal("SignalFilterBankLog", [Ramp(UINT32)], ((COUNT,), INT16), input_correction_bits=3, output_scale=64)
large_signal("SignalFilterBankSpectralSubtraction", [Ramp(UINT32)], CHANNELS, CHANNELS, **SMOOTHING)
for name, zeros in (("SignalFilterBankSquareRoot", 10), ("SignalFilterBankSquareRoot-large", 54)):
    large_signal(name, [Ramp(UINT64, factor=1 << zeros), Ramp(INT32, (), highest=1, offset=2)], CHANNELS)
large_signal(
    "SignalFramer", [Ramp(INT16)], ((COUNT // 1024, 2048), INT16), FLAG, frame_size=2048, frame_step=1024, prefill=1
)
large_signal("SignalPCAN", [Ramp(UINT32), Ramp(UINT32), Ramp(INT16, (125,), is_constant=True)], CHANNELS, snr_shift=6)
large_signal("SignalStacker", [Ramp(INT16)], ((2 * COUNT,), INT16), FLAG, **CONTEXT)
frames = [Ramp(INT16, (64, 2000)), Ramp(INT16, (2000,), is_constant=True)]
large_signal("SignalWindow", frames, ((64, 2000), INT16), shift=12)
for type in (FLOAT32, INT16, INT32):
    numbers = {"T": int(type), "fft_length": 4096}
    large_signal(f"SignalRfft-{type.name}", [Ramp(type, (16, 4000))], ((16, 4098), type), **numbers)
    large_signal(f"SignalIrfft-{type.name}", [Ramp(type, (16, 4098))], ((16, 4096), type), **numbers)
for type in (FLOAT32, INT16):
    numbers = {"T": int(type), "frame_step": COUNT // 4}
    large_signal(f"SignalOverlapAdd-{type.name}", [Ramp(type, (2, COUNT // 2))], ((COUNT // 2,), type), **numbers)


# --- Slices and rows --------------------------------------------------------------------------------------------------


def fed(*shape: int) -> np.ndarray:
    """Indices and starts that are inputs."""
    return np.random.default_rng(0).integers(0, 16, shape).astype(np.int32)


large("STRIDED_SLICE", LARGE_SHAPE, [0, 63, 0, 1], [1, -99, 64, 32], [1, -1, 2, 1], kinds=COPIED)
large("SLICE", LARGE_SHAPE, [0, 1, 2, 3], [1, 60, -1, 20], kinds=COPIED)
large("CONCATENATION", LARGE_SHAPE, LARGE_SHAPE, kinds=COPIED, axis=3)
large("SPLIT", [3], LARGE_SHAPE, kinds=COPIED, num_splits=2)
large("SPLIT_V", LARGE_SHAPE, [24, 8], [3], kinds=COPIED, num_splits=2)
large("PACK", LARGE_SHAPE, LARGE_SHAPE, kinds=COPIED, values_count=2, axis=-1)
large("UNPACK", LARGE_SHAPE, kinds=COPIED, num=32, axis=3)
large("GATHER", (1, 8, 64), fed(1, 8192), axis=2, batch_dims=1)
large("GATHER_ND", (64, 64, 32), fed(8192, 2), shapes=[(8192, 32)])
large("EMBEDDING_LOOKUP", fed(8192), (64, 32), kinds=LOOKUPS, shapes=[(8192, 32)])
large("DYNAMIC_UPDATE_SLICE", LARGE_SHAPE, (1, 63, 63, 30), fed(4))
