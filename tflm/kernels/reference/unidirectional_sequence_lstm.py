"""UNIDIRECTIONAL_SEQUENCE_LSTM: a long short-term memory run over all steps of its input.

    forget, input, output = sigmoid(W x + b + R h), cell = tanh(W x + b + R h), each gate with weights of its own
    c = clip(forget * c + input * cell)
    h = output * tanh(c)

The cell gate applies tanh only if the options say so. The input x is (batches, steps, size), or (steps, batches, size)
if time is major; the hidden state h and the cell state c are variables of (batches, units). Types are float32; int8 or
int16 with weights of int8 and a cell state of int16, where gates are Q3.12 before their activation, and Q0.15 after it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.fixed_point import (
    QuantizedMultiplier,
    Raw,
    WideQuantizedMultiplier,
    quantize_multiplier,
    wrap_int32,
)
from tflm.kernels.arithmetic.requantization import AccumulatorRequantization, OutputStage, clip, scalar, table_of_int16
from tflm.kernels.host_memory import track_host_array
from tflm.kernels.layers.product import IntegerLayer, float_product, ordered_product
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.activations import checked_log2, logistic_int16, tanh_int16
from tflm.kernels.reference.arithmetic import ARITHMETIC_PARAMS
from tflm.kernels.registration import Refusal, Registration, Run, Shape
from tflm.kernels.requests import PersistentBuffer, Request, ScratchBuffer, TempInput, TempIntermediate, TempOutput
from tflm.kernels.support.activation import TFLITE_FUSED_ACTIVATION
from tflm.kernels.support.checks import element_count, require_one_type, require_scale, require_type, shape_error
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.enums import ActivationFunctionType, BuiltinOperator, TensorType
from tflm.schema.options import UnidirectionalSequenceLSTMOptions
from tflm.schema.version_rules import Feature, asymmetric_hybrid, hybrid, option, signed
from tflm.targets import BOOL, FLOAT, INT, INT8, INT16, INT32, POINTER, UINT8, Array, Since, Struct, Until

Elements = npt.NDArray[Any]

INPUT = 0
INPUT_WEIGHTS = (1, 2, 4, 3)
RECURRENT_WEIGHTS = (5, 6, 8, 7)
BIASES = (12, 13, 15, 14)
"""Indices of the input, forget, output and cell gates, in the order in which they are stored."""
HIDDEN_STATE, CELL_STATE = 18, 19
INPUTS = 24
UNSUPPORTED = {
    **dict.fromkeys((9, 10, 11), "weights from the cell to a gate"),
    **dict.fromkeys((16, 17), "a projection"),
    **dict.fromkeys((20, 21, 22, 23), "layer normalization"),
}

INT16_MIN, INT16_MAX = -(1 << 15), (1 << 15) - 1

LARGEST_PRODUCT = INT16_MAX * -INT16_MIN
"""Product of a sigmoid in Q0.15 and an int16."""

GATE_SCALE = 2.0**-12
"""Scale of a gate before its activation, Q3.12."""

RESULT_SCALE = 2.0**-15
"""Scale of a gate after its activation, Q0.15."""

WEIGHT_TYPES = {
    TensorType.FLOAT32: TensorType.FLOAT32,
    TensorType.INT8: TensorType.INT8,
    TensorType.INT16: TensorType.INT8,
}
BIAS_TYPES = {
    TensorType.FLOAT32: TensorType.FLOAT32,
    TensorType.INT8: TensorType.INT32,
    TensorType.INT16: TensorType.INT64,
}

REWRITTEN = "d404f3eb7"
"""The commit of TFLM's own kernel, with four scratch buffers for every type; before, it was TFLite's."""

TFLITE_UNIDIRECTIONAL_SEQUENCE_LSTM_PARAMS = Struct(
    "TfLiteUnidirectionalSequenceLSTMParams",
    activation=TFLITE_FUSED_ACTIVATION,
    cell_clip=FLOAT,
    proj_clip=FLOAT,
    time_major=BOOL,
    asymmetric_quantize_inputs=BOOL,
    diagonal_recurrent_tensors=BOOL,
)
FULLY_CONNECTED_PARAMS = Struct(
    "FullyConnectedParams",
    input_offset=INT32,
    weights_offset=INT32,
    output_offset=INT32,
    output_multiplier=INT32,
    output_shift=INT,
    quantized_activation_min=INT32,
    quantized_activation_max=INT32,
    float_activation_min=FLOAT,
    float_activation_max=FLOAT,
    lhs_cacheable=BOOL,
    rhs_cacheable=BOOL,
    weights_format=UINT8,
)
LSTM_SIZE_INFO = Struct(
    "LstmSizeInfo", time_major=BOOL, batch_size=INT, time_steps=INT, input_dimension=INT, state_dimension=INT
)
CELL_STATE_INFO = Struct("CellStateInfo", cell_clip=FLOAT, quantized_cell_clip=INT16, cell_state_scale_power=INT32)
GATE_PARAMETERS = Struct(
    "GateParameters", input_fc_params=FULLY_CONNECTED_PARAMS, recurrent_fc_params=FULLY_CONNECTED_PARAMS
)
INTER_GATE_PARAMETERS = Struct(
    "InterGateParameters",
    forget_cell_mul_params=ARITHMETIC_PARAMS,
    input_mul_params=ARITHMETIC_PARAMS,
    output_mul_params=ARITHMETIC_PARAMS,
)
OP_DATA_LSTM = Struct(
    "OpDataLSTM",
    size_info=LSTM_SIZE_INFO,
    cell_state_info=CELL_STATE_INFO,
    cell_gate_nonlinear_type=TFLITE_FUSED_ACTIVATION,
    gate_parameters=Array(GATE_PARAMETERS, 4),
    inter_gate_parameters=INTER_GATE_PARAMETERS,
    buffer_indices=Array(INT, 4),
)

INTEGER_LSTM_PARAMETER = Struct(
    "IntegerLstmParameter",
    effective_scales=Array(INT32, 26),
    layer_norm_scales=Array(INT32, 8),
    quantized_cell_clip=INT16,
    quantized_proj_clip=INT8,
    hidden_zp=INT32,
    cell_scale=INT32,
    variance_guards=Array(INT32, 4),
    effective_biases=Array(POINTER, 9),
    intermediate_scale_a=Array(INT32, 8),
    intermediate_scale_b=Array(INT32, 8),
    intermediate_zp=Array(INT32, 12),
)
OP_DATA_LSTM_OF_FULL_KERNEL = Struct(
    "UnidirectionalSequenceLstmOpData",
    use_layer_norm=BOOL,
    scratch_index=Array(INT, 12),
    row_sums_size=INT32,
    row_sums=POINTER,
    compute_row_sums=BOOL,
    hybrid_lstm_scales=Until("58b44f4fa", Array(FLOAT, 16)),
    input_zero_point=INT32,
    output_state_zero_point=INT32,
    integer_lstm_param=INTEGER_LSTM_PARAMETER,
)
OP_DATA = Struct(
    "op data of an LSTM",
    full=Until(REWRITTEN, OP_DATA_LSTM_OF_FULL_KERNEL),
    rewritten=Since(REWRITTEN, OP_DATA_LSTM),
)

HIDDEN_INTERMEDIATE = 4
"""The intermediate tensor whose quantization the old int8 LSTM reads."""

ALL_WEIGHTS = range(1, 9)
"""Weights of the input for four gates, then of the hidden state."""


@dataclass(frozen=True)
class OpDataLSTM:
    """Constants of an LSTM of integers.

    Attributes:
        input_multiplier, recurrent_multiplier: from sums of products to Q3.12, for all units of each gate.
        weights_zero_points: of the weights of each gate, for the input and for the hidden state.
        input_zero_point, hidden_zero_point: of the input and of the hidden state.
        forget_cell, input_cell, output_hidden: from products of gates and states to the cell's scale, and from those of
            the output gate to the hidden state's.
        cell_power: the cell state's scale as a power of two.
        cell_clip: the largest magnitude of the cell state; 32768 for none.
        is_tanh: whether the cell gate has tanh as its function, or none.
    """

    input_multiplier: QuantizedMultiplier
    recurrent_multiplier: QuantizedMultiplier
    weights_zero_points: tuple[list[int], list[int]]
    input_zero_point: int
    hidden_zero_point: int
    forget_cell: QuantizedMultiplier
    input_cell: QuantizedMultiplier
    output_hidden: QuantizedMultiplier
    cell_power: int
    cell_clip: int
    is_tanh: bool


@dataclass(frozen=True)
class OpDataFloatLSTM:
    """Constants of an LSTM of floats.

    Attributes:
        cell_clip: the largest magnitude of the cell state; infinity for none.
        is_tanh: whether the cell gate has tanh as its function, or none.
    """

    cell_clip: np.float32
    is_tanh: bool


def _prepare(context: KernelContext, node: Node) -> None:
    node.expect(inputs=INPUTS, outputs=1)
    for i, what in UNSUPPORTED.items():
        if node.has_input(i):
            raise OperatorError(f"has {what}, which is not supported (input {i})")
    tensors = {i: node.input(i) for i in range(INPUTS) if i not in UNSUPPORTED}
    output = node.output(0)
    options = node.options(UnidirectionalSequenceLSTMOptions)
    _check_types(tensors, output)
    _check_shapes(tensors, output, options.time_major)
    is_tanh = options.fused_activation_function == ActivationFunctionType.TANH
    if tensors[INPUT].type == TensorType.FLOAT32:
        node.op_data = OpDataFloatLSTM(np.float32(options.cell_clip if options.cell_clip > 0 else np.inf), is_tanh)
    else:
        node.op_data = _quantization(tensors, options.cell_clip, is_tanh)


def _requests(node: Node) -> Iterator[Request]:
    if not node.release.holds(REWRITTEN):
        yield from _requests_before(node)
        return
    yield from tensor_requests()
    cell = node.input(CELL_STATE)
    for i in range(4):
        yield ScratchBuffer(f"gate {i}", cell.bytes)


def tensor_requests() -> Iterator[Request]:
    """The tensors that TFLM allocates."""
    for i in range(INPUTS):
        if i not in UNSUPPORTED:
            yield TempInput(i)
    yield TempOutput(0)


def _requests_before(node: Node) -> Iterator[Request]:
    yield from map(TempInput, (INPUT, 4, 8, 1, 2, 3, 5, 6, 7, *sorted(BIASES)))
    yield TempOutput(0)
    yield from map(TempInput, (HIDDEN_STATE, CELL_STATE, 1))
    input, cell = node.input(INPUT), node.input(CELL_STATE)
    count = element_count(cell)
    if input.type != TensorType.INT8:
        yield ScratchBuffer("gates", 4 * input.bytes // element_count(input) * count)
        return
    yield TempInput(CELL_STATE)
    yield TempOutput(0)
    yield from map(TempInput, (INPUT, *ALL_WEIGHTS, HIDDEN_STATE))
    yield TempIntermediate(HIDDEN_INTERMEDIATE)
    for i in range(4):
        yield ScratchBuffer(f"gate {i}", 2 * count)
    yield ScratchBuffer("results", count)
    if not node.release.holds("0a38c8965"):
        yield ScratchBuffer("sums", 4 * count)
    yield from map(TempInput, (INPUT, HIDDEN_STATE, *ALL_WEIGHTS))
    yield TempIntermediate(HIDDEN_INTERMEDIATE)
    rows = node.input(ALL_WEIGHTS[0]).dims[0]
    for gate, bias in (("forget", 13), ("cell", 14), ("output", 15), ("input", 12)):
        yield TempInput(bias)
        for side in ("input", "recurrent"):
            yield PersistentBuffer(f"effective bias of the {gate} gate, {side} side", 4 * rows)


def _is_int16(node: Node) -> bool:
    return node.input(INPUT).type == TensorType.INT16


def lacks_intermediates(node: Node) -> bool:
    """Whether it is of int8, without the tensors that TFLite's quantizer leaves: the kernel read one of them."""
    return node.input(INPUT).type == TensorType.INT8 and not node.has_intermediate(HIDDEN_INTERMEDIATE)


def _check_types(tensors: dict[int, TfLiteTensor], output: TfLiteTensor) -> None:
    input, hidden, cell = (tensors[i] for i in (INPUT, HIDDEN_STATE, CELL_STATE))
    require_one_type(WEIGHT_TYPES, input, hidden, output)
    require_type(cell, TensorType.FLOAT32 if input.type == TensorType.FLOAT32 else TensorType.INT16)
    for i in (*INPUT_WEIGHTS, *RECURRENT_WEIGHTS):
        require_type(tensors[i], WEIGHT_TYPES[input.type])
    for i in BIASES:
        require_type(tensors[i], BIAS_TYPES[input.type])
    for state in (hidden, cell):
        if not state.is_variable:
            raise OperatorError("is a state, and must be a variable", tensor=state.name)


def _check_shapes(tensors: dict[int, TfLiteTensor], output: TfLiteTensor, time_major: bool) -> None:
    input, hidden, cell = (tensors[i] for i in (INPUT, HIDDEN_STATE, CELL_STATE))
    if len(input.dims) < 3 or 0 in input.dims:
        raise shape_error(input, ", must have three dimensions")
    if len(hidden.dims) < 2:
        raise shape_error(hidden, ", must be (batches, units)")
    size, batches, units = input.dims[2], input.dims[1 if time_major else 0], hidden.dims[1]
    wanted = {
        **{tensors[i]: (units, size) for i in INPUT_WEIGHTS},
        **{tensors[i]: (units, units) for i in RECURRENT_WEIGHTS},
        **{tensors[i]: (units,) for i in BIASES},
        output: (*input.dims[:2], units),
    }
    for tensor, shape in wanted.items():
        if tensor.dims != shape:
            raise shape_error(tensor, f", must be {list(shape)}")
    for state in (hidden, cell):
        if element_count(state) != batches * units:
            raise shape_error(state, f", must be {batches} batches of {units} units")


def _quantization(tensors: dict[int, TfLiteTensor], cell_clip: float, is_tanh: bool) -> OpDataLSTM:
    input, hidden, cell = (tensors[i] for i in (INPUT, HIDDEN_STATE, CELL_STATE))
    cell_scale, hidden_scale = require_scale(cell), require_scale(hidden)
    return OpDataLSTM(
        input_multiplier=_gate_multiplier(input, [tensors[i] for i in INPUT_WEIGHTS]),
        recurrent_multiplier=_gate_multiplier(hidden, [tensors[i] for i in RECURRENT_WEIGHTS]),
        weights_zero_points=(
            [tensors[i].zero_point for i in INPUT_WEIGHTS],
            [tensors[i].zero_point for i in RECURRENT_WEIGHTS],
        ),
        input_zero_point=input.zero_point,
        hidden_zero_point=hidden.zero_point,
        forget_cell=QuantizedMultiplier.of(RESULT_SCALE * cell_scale / cell_scale),
        input_cell=QuantizedMultiplier.of(RESULT_SCALE * RESULT_SCALE / cell_scale),
        output_hidden=QuantizedMultiplier.of(RESULT_SCALE * RESULT_SCALE / hidden_scale),
        cell_power=checked_log2(cell_scale)[0],
        cell_clip=int(min(max(cell_clip / cell_scale, -32768.0), 32767.0)) if cell_clip > 0 else -INT16_MIN,
        is_tanh=is_tanh,
    )


def _gate_multiplier(activations: TfLiteTensor, weights_of_gates: list[TfLiteTensor]) -> QuantizedMultiplier:
    """One element for each row of the weights. Accumulators have 64 bits for activations of int16, else 32."""
    for weights in weights_of_gates:
        if weights.quantization is not None and len(weights.quantization.scale) > 1:
            raise OperatorError("has a scale for each row; only one for all is supported", tensor=weights.name)
        if not -128 <= weights.zero_point <= 127:
            raise OperatorError(f"has zero point {weights.zero_point}, must be an int8", tensor=weights.name)
    parts = [quantize_multiplier(activations.scale * weights.scale / GATE_SCALE) for weights in weights_of_gates]
    significands, shifts = np.repeat(parts, weights_of_gates[0].dims[0], axis=0).T
    return (WideQuantizedMultiplier if activations.type == TensorType.INT16 else QuantizedMultiplier)(
        significands, shifts
    )


@dataclass(frozen=True)
class LstmTensors:
    """The tensors of an LSTM as arrays.

    Attributes:
        x, y: (steps, batches, size) and (steps, batches, units).
        hidden, cell: the states, (batches, units).
        input_weights, recurrent_weights, biases: one of each for the input, forget, output and cell gates.
        constant: whether weights and biases never change.
    """

    x: npt.NDArray[Any]
    y: npt.NDArray[Any]
    hidden: npt.NDArray[Any]
    cell: npt.NDArray[Any]
    input_weights: list[npt.NDArray[Any]]
    recurrent_weights: list[npt.NDArray[Any]]
    biases: list[npt.NDArray[Any]]
    constant: bool

    @classmethod
    def of(cls, node: Node) -> LstmTensors:
        """Those of a node."""
        input, y = node.eval_input(INPUT), node.eval_output(0).elements
        # For an input with more than three dimensions, TFLM uses the number of elements in the first three.
        dims = input.dims[:3]
        x = input.elements.reshape(-1)[: math.prod(dims)].reshape(dims)
        if not node.options(UnidirectionalSequenceLSTMOptions).time_major:
            x, y = x.swapaxes(0, 1), y.swapaxes(0, 1)
        hidden, cell = (node.eval_input(i).elements.reshape(y.shape[1:]) for i in (HIDDEN_STATE, CELL_STATE))
        of_gates = [[node.eval_input(i) for i in places] for places in (INPUT_WEIGHTS, RECURRENT_WEIGHTS, BIASES)]
        constant = all(tensor.is_constant for tensors in of_gates for tensor in tensors)
        input_weights, recurrent_weights, biases = ([tensor.elements for tensor in tensors] for tensors in of_gates)
        return cls(x, y, hidden, cell, input_weights, recurrent_weights, biases, constant)


def _bind(context: KernelContext, node: Node) -> Run:
    t, op = LstmTensors.of(node), node.op_data
    layers = FloatLstm if isinstance(op, OpDataFloatLSTM) else IntegerLstm
    constant = layers(t, op) if t.constant else None

    def run() -> None:
        lstm = layers(t, op) if constant is None else constant
        hidden, cell, outputs = t.hidden, t.cell, []
        for from_input in lstm.input_gates(t.x):
            hidden, cell = lstm.step(from_input, hidden, cell)
            outputs.append(hidden)
        t.hidden[...], t.cell[...], t.y[...] = hidden, cell, outputs

    return run


def stacked(weights: list[npt.NDArray[Any]], zero_points: list[int]) -> npt.NDArray[Any]:
    """Weights of all gates, one below the other, less their zero points; of int8, or int16 if there are any."""
    if not any(zero_points):
        return np.concatenate(weights)
    return np.concatenate([part.astype(np.int16) - zero_point for part, zero_point in zip(weights, zero_points)])


# --- Floats ------------------------------------------------------------------------------------------------------


ONE = scalar(1, np.float32)


class FloatLstm:
    """Weights and biases of all gates, side by side; those of sigmoids are negated, for 1 / (1 + exp(-x))."""

    def __init__(self, t: LstmTensors, op: OpDataFloatLSTM):
        self._clip, self._is_tanh, self._units = op.cell_clip, op.is_tanh, t.y.shape[2]
        self._input, self._recurrent, self._bias = (
            track_host_array(np.ascontiguousarray(np.concatenate([*map(np.negative, sigmoids), cell_gate]).T, None))
            for *sigmoids, cell_gate in (t.input_weights, t.recurrent_weights, t.biases)
        )

    def input_gates(self, x: Elements) -> Elements:
        """FullyConnected: x (steps, batches, size) times the input weights, (steps, batches, 4 * units)."""
        return split_rows(float_product(merge_rows(x), self._input) + self._bias, x)

    def step(self, from_input: Elements, hidden: Elements, cell: Elements) -> tuple[Elements, Elements]:
        """LstmStep: the next hidden state and cell state."""
        gates = from_input + ordered_product(hidden, self._recurrent)
        input, forget, output = by_gate(ONE / (ONE + np.exp(gates[:, : -self._units])), self._units)
        change = gates[:, -self._units :]
        if self._is_tanh:
            change = np.tanh(change)
        cell = clip(forget * cell + input * change, -self._clip, self._clip)
        return np.tanh(cell) * output, cell


def by_gate(values: Elements, units: int) -> Elements:
    """Values (batches, gates * units) as (gates, batches, units)."""
    return values.reshape(len(values), -1, units).swapaxes(0, 1)


def merge_rows(x: Elements) -> Elements:
    """(steps, batches, size) as (steps * batches, size)."""
    return x.reshape(-1, x.shape[2])


def split_rows(rows: Elements, x: Elements) -> Elements:
    """The reverse of `merge_rows`, with the steps and batches of x."""
    return rows.reshape(*x.shape[:2], -1)


# --- Integers ----------------------------------------------------------------------------------------------------


class IntegerLstm:
    """Two layers with the gates side by side, tables of activations, and requantizations of their products."""

    def __init__(self, t: LstmTensors, op: OpDataLSTM):
        of_input, of_hidden = map(stacked, (t.input_weights, t.recurrent_weights), op.weights_zero_points)
        int16, hidden = OutputStage.whole(0, np.int16), OutputStage.whole(op.hidden_zero_point, t.hidden.dtype)
        layer = partial(IntegerLayer, output=int16, x_dtype=t.x.dtype, constant=True)
        self._input = layer(
            of_input, track_host_array(np.concatenate(t.biases)), op.input_multiplier, x_zero_point=op.input_zero_point
        )
        self._recurrent = layer(of_hidden, None, op.recurrent_multiplier, x_zero_point=op.hidden_zero_point)
        self._sigmoid, self._cell_gate = sigmoid_table(), cell_gate_table(op.is_tanh)
        self._tanh = tanh_table(op.cell_power)
        self._forget_cell, self._input_cell, self._output_hidden = (
            AccumulatorRequantization(multiplier, stage, LARGEST_PRODUCT)
            for multiplier, stage in ((op.forget_cell, int16), (op.input_cell, int16), (op.output_hidden, hidden))
        )
        self._int16_limits = scalar(INT16_MIN, np.float64), scalar(INT16_MAX, np.float64)
        self._cell_limits = scalar(max(INT16_MIN, -op.cell_clip)), scalar(min(INT16_MAX, op.cell_clip))

    def input_gates(self, x: Elements) -> Elements:
        """FullyConnected: x (steps, batches, size) times the input weights, (steps, batches, 4 * units)."""
        return split_rows(self._input(merge_rows(x)), x)

    def step(self, from_input: Elements, hidden: Elements, cell: Elements) -> tuple[Elements, Elements]:
        """LstmStep: the next hidden state and cell state."""
        gates = clip(from_input + self._recurrent(hidden), *self._int16_limits).astype(np.int64)
        input, forget, output, change = by_gate(gates, cell.shape[1])
        # UpdateLstmCell: forget gate times cell state plus input gate times cell gate.
        kept = _rescaled(self._forget_cell, self._sigmoid[forget] * cell)
        new = _rescaled(self._input_cell, self._sigmoid[input] * self._cell_gate[change])
        cell = clip(kept + new, *self._cell_limits)
        # UpdateLstmHidden: output gate times tanh of the cell state.
        return _rescaled(self._output_hidden, self._sigmoid[output] * self._tanh[cell]), cell


def _rescaled(by: AccumulatorRequantization, products: Elements) -> Elements:
    """Products of integers, rescaled; they are integers again, even if their scale is computed in float64."""
    return by(products.astype(by.dtype, copy=False)).astype(products.dtype, copy=False)


def sigmoid_int16(gates: Raw) -> Raw:
    """Compute the sigmoid of Q3.12 in Q0.15."""
    return logistic_int16(3 * gates)


def cell_gate_int16(gates: Raw, is_tanh: bool) -> Raw:
    """Compute the cell gate of Q3.12 in Q0.15. Without tanh, TFLM uses the number unchanged."""
    return tanh_int16(3 * gates) if is_tanh else gates


def tanh_of_cell(cell: npt.NDArray[Any], power: int) -> Raw:
    """tanh in Q0.15 of int16 at scale 2^power."""
    shift = power + 12
    if shift >= 0:
        return tanh_int16(wrap_int32(cell * wrap_int32(np.left_shift(np.int64(3), [shift & 31]))))
    # Shifting by 32 or more is undefined in C; like x86, use the count modulo 32.
    half = wrap_int32(np.left_shift(np.int64(1), [(-shift - 1) & 31]))
    return tanh_int16(wrap_int32(cell * 3 + half) >> (-shift & 31))


@functools.cache
def sigmoid_table() -> Raw:
    """`sigmoid_int16` of each int16, at that index."""
    return table_of_int16(sigmoid_int16)


@functools.cache
def cell_gate_table(is_tanh: bool) -> Raw:
    """`cell_gate_int16` of each int16, at that index."""
    return table_of_int16(partial(cell_gate_int16, is_tanh=is_tanh))


@functools.lru_cache(maxsize=16)
def tanh_table(power: int) -> Raw:
    """`tanh_of_cell` of each int16, at that index."""
    return table_of_int16(partial(tanh_of_cell, power=power))


def _multiply_accumulates(inputs: Sequence[Shape], output: Shape) -> int:
    steps = math.prod(inputs[INPUT][:-1])
    return steps * sum(math.prod(inputs[place]) for place in (*INPUT_WEIGHTS, *RECURRENT_WEIGHTS))


UNIDIRECTIONAL_SEQUENCE_LSTM = Registration(
    BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_LSTM,
    _bind,
    _prepare,
    op_data=OP_DATA,
    requests=_requests,
    builtin_data=TFLITE_UNIDIRECTIONAL_SEQUENCE_LSTM_PARAMS,
    max_version=5,
    types=tuple(WEIGHT_TYPES),
    multiply_accumulates=_multiply_accumulates,
    weights=(*INPUT_WEIGHTS, *RECURRENT_WEIGHTS),
    cpp_method="AddUnidirectionalSequenceLSTM",
    refusals=(
        Refusal(_is_int16, "activations of int16 are not supported", until=REWRITTEN),
        Refusal(lacks_intermediates, "it needs its five intermediate tensors", until=REWRITTEN),
    ),
    since="ceac958de",
    versions={
        5: Feature("INT16 activations", signed("INT16", "INT8", 2)),
        4: option("diagonal_recurrent_tensors"),
        3: asymmetric_hybrid(2),
        2: hybrid(2),
    },
)
