"""UNIDIRECTIONAL_SEQUENCE_LSTM: a long short-term memory run over all steps of its input.

    forget, input, output = sigmoid(W x + b + R h), cell = tanh(W x + b + R h), each gate with weights of its own
    c = clip(forget * c + input * cell)
    h = output * tanh(c)

With another activation than tanh in its options, the cell gate has no function. The input x is (batches, steps,
size), or (steps, batches, size) if time is major; the hidden state h and the cell state c are variables of (batches,
units). Types are float32; int8 or int16 with weights of int8 and a cell state of int16, where gates are Q3.12 before
their function, and Q0.15 after it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
from tflm.kernels.arithmetic.numpy_calls import clip, scalar
from tflm.kernels.arithmetic.requantization import OutputStage
from tflm.kernels.host_memory import kept
from tflm.kernels.layers.float_product import BiasAndActivation, FloatWeights
from tflm.kernels.layers.integer_product import IntegerWeights, SumRequantizer
from tflm.kernels.layers.product import bind_product
from tflm.kernels.reference.arithmetic import ARITHMETIC_PARAMS
from tflm.kernels.reference.sigmoid import checked_log2, logistic_int16, tanh_int16
from tflm.kernels.registration import KernelContext, Node, Registration, Run, Shape
from tflm.kernels.requests import (
    NodeView,
    PersistentBuffer,
    Refusal,
    Request,
    ScratchBuffer,
    TempInput,
    TempIntermediate,
    TempOutput,
)
from tflm.kernels.support.activation import TFLITE_FUSED_ACTIVATION
from tflm.kernels.support.checks import element_count, require_same_type, require_scale, require_type
from tflm.memory.tensor import TfLiteEvalTensor, TfLiteTensor
from tflm.schema.enums import ActivationFunctionType, BuiltinOperator, TensorType
from tflm.schema.options import UnidirectionalSequenceLSTMOptions
from tflm.targets import BOOL, FLOAT, INT, INT8, INT16, INT32, POINTER, UINT8, Array, Since, Struct, Until

INPUT = 0
INPUT_WEIGHTS = (1, 2, 4, 3)
RECURRENT_WEIGHTS = (5, 6, 8, 7)
BIASES = (12, 13, 15, 14)
"""Of the input, forget, output and cell gates: in this order three sigmoids stand side by side, then a tanh."""
HIDDEN_STATE, CELL_STATE = 18, 19
INPUTS = 24
UNSUPPORTED = {
    **dict.fromkeys((9, 10, 11), "weights from the cell to a gate"),
    **dict.fromkeys((16, 17), "a projection"),
    **dict.fromkeys((20, 21, 22, 23), "layer normalization"),
}

ONE = scalar(1, np.float32)
LEAST, MOST = -(1 << 15), (1 << 15) - 1
"""Of 16 bits."""

GATE_SCALE = 2.0**-12
"""Of a gate before its function, Q3.12."""

RESULT_SCALE = 2.0**-15
"""Of a gate after its function, Q0.15."""

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
"""From here on the kernel is another one, with four scratch buffers for every type; before, it was that of TFLite."""

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
"""The intermediate tensor whose quantization an LSTM of int8 read."""

ALL_WEIGHTS = range(1, 9)
"""Of the input for four gates, then of the hidden state."""

NO_ZEROS = [0] * 4, [0] * 4
"""Zero points of weights that are floats."""

Multipliers = list[tuple[int, int]]
"""Significand (Q0.31) and shift for each of the four gates."""


@dataclass
class OpData:
    """Constants of a quantized LSTM.

    Attributes:
        input_multipliers, recurrent_multipliers: from the products of each gate to Q3.12.
        forget, update, output: from the products of Q0.15 to the cell's scale, twice, and to the hidden state's.
        cell_power: the cell state's scale as a power of two.
        input_zero_point, hidden_zero_point: of the input and of the hidden state.
        weights_zero_points: of the weights of each gate for the input, and for the hidden state.
        cell_clip: the largest magnitude of the cell state, None for any.
    """

    input_multipliers: Multipliers
    recurrent_multipliers: Multipliers
    forget: QuantizedMultiplier
    update: QuantizedMultiplier
    output: QuantizedMultiplier
    cell_power: int
    input_zero_point: int
    hidden_zero_point: int
    weights_zero_points: tuple[list[int], list[int]]
    cell_clip: int | None


def _prepare(context: KernelContext, node: Node) -> None:
    node.expect(inputs=INPUTS, outputs=1)
    for i, what in UNSUPPORTED.items():
        if node.has_input(i):
            raise OperatorError(f"has {what}, which is not supported (input {i})")
    tensors = {i: context.input_tensor(node, i) for i in range(INPUTS) if i not in UNSUPPORTED}
    output = context.output_tensor(node, 0)
    options = node.options(UnidirectionalSequenceLSTMOptions) or UnidirectionalSequenceLSTMOptions()
    _check_types(tensors, output)
    _check_shapes(tensors, output, options.time_major)
    cell = tensors[CELL_STATE]
    if cell.type != TensorType.FLOAT32:
        node.op_data = _quantization(tensors, options.cell_clip)


def _requests(node: NodeView) -> Iterator[Request]:
    if not node.release.holds(REWRITTEN):
        yield from _requests_before(node)
        return
    yield from tensor_requests()
    cell = node.input(CELL_STATE)
    for i in range(4):
        yield ScratchBuffer(f"gate {i}", cell.bytes)


def tensor_requests() -> Iterator[Request]:
    """The tensors that TFLM takes."""
    for i in range(INPUTS):
        if i not in UNSUPPORTED:
            yield TempInput(i)
    yield TempOutput(0)


def _requests_before(node: NodeView) -> Iterator[Request]:
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


def _is_int16(node: NodeView) -> bool:
    return node.input(INPUT).type == TensorType.INT16


def lacks_intermediates(node: NodeView) -> bool:
    """Whether it is of int8, without the tensors that TFLite's quantizer leaves: the kernel read one of them."""
    return node.input(INPUT).type == TensorType.INT8 and not node.has_intermediate(HIDDEN_INTERMEDIATE)


def _check_types(tensors: dict[int, TfLiteTensor], output: TfLiteTensor) -> None:
    input, hidden, cell = (tensors[i] for i in (INPUT, HIDDEN_STATE, CELL_STATE))
    require_type(input, *WEIGHT_TYPES)
    require_same_type(hidden, input)
    require_same_type(output, input)
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
        raise OperatorError(f"has shape {list(input.dims)}, must have three dimensions", tensor=input.name)
    if len(hidden.dims) < 2:
        raise OperatorError(f"has shape {list(hidden.dims)}, must be (batches, units)", tensor=hidden.name)
    size, batches, units = input.dims[2], input.dims[1 if time_major else 0], hidden.dims[1]
    wanted = {
        **{tensors[i]: (units, size) for i in INPUT_WEIGHTS},
        **{tensors[i]: (units, units) for i in RECURRENT_WEIGHTS},
        **{tensors[i]: (units,) for i in BIASES},
        output: (*input.dims[:2], units),
    }
    for tensor, shape in wanted.items():
        if tensor.dims != shape:
            raise OperatorError(f"has shape {list(tensor.dims)}, must be {list(shape)}", tensor=tensor.name)
    for state in (hidden, cell):
        if element_count(state) != batches * units:
            reason = f"has shape {list(state.dims)}, must be {batches} batches of {units} units"
            raise OperatorError(reason, tensor=state.name)


def _quantization(tensors: dict[int, TfLiteTensor], cell_clip: float) -> OpData:
    input, hidden, cell = (tensors[i] for i in (INPUT, HIDDEN_STATE, CELL_STATE))
    cell_scale, hidden_scale = require_scale(cell), require_scale(hidden)
    return OpData(
        [_gate_multiplier(input, tensors[i]) for i in INPUT_WEIGHTS],
        [_gate_multiplier(hidden, tensors[i]) for i in RECURRENT_WEIGHTS],
        forget=QuantizedMultiplier.of(RESULT_SCALE * cell_scale / cell_scale),
        update=QuantizedMultiplier.of(RESULT_SCALE * RESULT_SCALE / cell_scale),
        output=QuantizedMultiplier.of(RESULT_SCALE * RESULT_SCALE / hidden_scale),
        cell_power=checked_log2(cell_scale)[0],
        input_zero_point=input.zero_point,
        hidden_zero_point=hidden.zero_point,
        weights_zero_points=(
            [tensors[i].zero_point for i in INPUT_WEIGHTS],
            [tensors[i].zero_point for i in RECURRENT_WEIGHTS],
        ),
        cell_clip=int(min(max(cell_clip / cell_scale, -32768.0), 32767.0)) if cell_clip > 0 else None,
    )


def _gate_multiplier(activations: TfLiteTensor, weights: TfLiteTensor) -> tuple[int, int]:
    if weights.quantization is not None and len(weights.quantization.scale) > 1:
        raise OperatorError("has a scale for each row; only one for all is supported", tensor=weights.name)
    if not -128 <= weights.zero_point <= 127:
        raise OperatorError(f"has zero point {weights.zero_point}, must be an int8", tensor=weights.name)
    return quantize_multiplier(activations.scale * weights.scale / GATE_SCALE)


class Stack:
    """Tensors of the four gates one above the other, less the zero point of each."""

    def __init__(self, tensors: list[TfLiteEvalTensor], zero_points: list[int]):
        parts = [tensor.elements for tensor in tensors]
        dtype = np.int16 if any(zero_points) else parts[0].dtype  # a difference of two int8 takes 9 bits
        self.array = kept(np.empty((len(parts) * len(parts[0]), *parts[0].shape[1:]), dtype))
        self._parts = list(zip(np.split(self.array, len(parts)), parts, zero_points))
        self.read()

    def read(self) -> None:
        """Read the tensors anew."""
        for target, part, zero_point in self._parts:
            np.copyto(target, part)
            if zero_point:
                np.subtract(target, zero_point, out=target)


class Tensors:
    """The tensors of a node as arrays: x and y with the time first, states of (batches, units), gates stacked.

    Of an input with more than three dimensions, TFLM takes as many elements as the first three have.
    """

    def __init__(self, context: KernelContext, node: Node):
        options = node.options(UnidirectionalSequenceLSTMOptions) or UnidirectionalSequenceLSTMOptions()
        eval_tensors = {i: context.get_eval_input(node, i) for i in range(INPUTS) if i not in UNSUPPORTED}
        y = context.get_eval_output(node, 0).elements
        dims = eval_tensors[INPUT].dims[:3]
        x = eval_tensors[INPUT].elements.reshape(-1)[: math.prod(dims)].reshape(dims)
        self.x, self.y = (x, y) if options.time_major else (x.swapaxes(0, 1), y.swapaxes(0, 1))
        self.steps, self.batches, self.size = self.x.shape
        self.units = y.shape[2]
        self.hidden, self.cell = (
            eval_tensors[i].elements.reshape(self.batches, self.units) for i in (HIDDEN_STATE, CELL_STATE)
        )
        self.cell_clip = options.cell_clip
        self.is_tanh = options.fused_activation_function == ActivationFunctionType.TANH
        stacks = [[eval_tensors[i] for i in indices] for indices in (INPUT_WEIGHTS, RECURRENT_WEIGHTS, BIASES)]
        self.constant = all(tensor.is_constant for stack in stacks for tensor in stack)
        input_zeros, recurrent_zeros = (
            node.op_data.weights_zero_points if isinstance(node.op_data, OpData) else NO_ZEROS
        )
        self._stacks = [Stack(*of) for of in zip(stacks, (input_zeros, recurrent_zeros, [0] * 4))]
        self.input_weights, self.recurrent_weights, self.biases = (stack.array for stack in self._stacks)
        # A row for each step and batch, whichever of the two comes first in the tensor.
        self._rows = kept(np.empty(self.x.shape, x.dtype))
        self.rows = self._rows.reshape(-1, self.size)

    def refresh(self) -> None:
        """Read x anew, and weights and biases if they may change."""
        np.copyto(self._rows, self.x)
        if not self.constant:
            for stack in self._stacks:
                stack.read()


def _bind(context: KernelContext, node: Node) -> Run:
    tensors = Tensors(context, node)
    if tensors.x.dtype == np.float32:
        return _bind_float(tensors)
    return _bind_quantized(tensors, node.op_data)


def _bind_float(t: Tensors) -> Run:
    gates = kept(np.empty((t.steps, t.batches, 4 * t.units), np.float32))
    recurrent = kept(np.empty((t.batches, 4 * t.units), np.float32))
    from_input = _bind_float_product(t.rows, t.input_weights, t.biases, gates, t.constant)
    from_hidden = _bind_float_product(t.hidden, t.recurrent_weights, None, recurrent, t.constant)
    work, scratch = (kept(np.empty((t.batches, t.units), np.float32)) for _ in range(2))
    cell_clip = np.float32(t.cell_clip)
    by_step = [(gate, *_gates(gate, t.units), y) for gate, y in zip(gates, t.y)]
    hidden, state, is_tanh = t.hidden, t.cell, t.is_tanh
    add, multiply, tanh = np.add, np.multiply, np.tanh

    def run() -> None:
        t.refresh()
        from_input()
        for gate, sigmoids, update, forget, output, cell, y in by_step:
            from_hidden()
            add(gate, recurrent, gate)
            _sigmoid(sigmoids)
            if is_tanh:
                tanh(cell, cell)
            multiply(forget, state, state)
            multiply(update, cell, work)
            add(state, work, state)
            if cell_clip > 0:
                np.minimum(state, cell_clip, out=state)
                np.maximum(state, -cell_clip, out=state)
            tanh(state, scratch)
            multiply(scratch, output, hidden)
            y[...] = hidden

    return run


def _bind_float_product(
    x: npt.NDArray[Any],
    weights: npt.NDArray[Any],
    bias: npt.NDArray[Any] | None,
    y: npt.NDArray[Any],
    constant: bool,
) -> Run:
    """What sets y, of one row for each of x, to x times the stacked weights plus the bias."""
    limits = np.finfo(np.float32)
    factors = FloatWeights(weights[np.newaxis], positions=len(x), constant=constant)
    finish = BiasAndActivation(bias, limits.min, limits.max)
    return bind_product(x[np.newaxis], y.reshape(1, len(x), -1), factors, finish)


def _gates(gate: npt.NDArray[Any], units: int) -> tuple[npt.NDArray[Any], ...]:
    """Views of (batches, 4 units): the three sigmoids together, then the input, forget, output and cell gates."""
    return gate[:, : 3 * units], *(gate[:, i * units : (i + 1) * units] for i in range(4))


def _sigmoid(x: npt.NDArray[np.float32]) -> None:
    """1 / (1 + exp(-x)), in place; exp of a large number overflows to infinity, which gives 0."""
    np.negative(x, x)
    np.exp(x, x)
    np.add(x, ONE, x)
    np.reciprocal(x, x)


def _bind_gate_product(
    x: npt.NDArray[Any],
    weights: npt.NDArray[Any],
    bias: npt.NDArray[Any] | None,
    zero_point: int,
    multipliers: Multipliers,
    y: npt.NDArray[np.int32],
    constant: bool,
) -> Run:
    """What sets y, of one row for each of x, to x times the stacked weights plus the bias, saturated to Q3.12."""
    wide = x.dtype == np.int16
    factors = IntegerWeights(
        weights[np.newaxis],
        bias,
        x_dtype=x.dtype,
        x_zero_point=zero_point,
        accumulator_bits=64 if wide else 32,
        constant=constant,
    )
    significands, shifts = (np.repeat(column, len(weights) // 4) for column in zip(*multipliers))
    multiplier = (WideQuantizedMultiplier if wide else QuantizedMultiplier)(significands, shifts)
    finish = SumRequantizer(factors, multiplier, OutputStage(0, LEAST, MOST))
    return bind_product(x[np.newaxis], y.reshape(1, len(x), -1), factors, finish)


def gate_table(is_tanh: bool) -> Raw:
    """The sigmoid of every Q3.12 by its bits, then the tanh; both in Q0.15.

    Where the cell gate has another function than tanh, TFLM takes the number as it is.
    """
    steps = _all_int16() * 3
    return np.concatenate([_by_bits(logistic_int16(steps)), _by_bits(tanh_int16(steps) if is_tanh else _all_int16())])


def table_of_tanh(power: int) -> Raw:
    """tanh in Q0.15 of every int16 at scale 2^power, by its bits."""
    shift = power + 12
    if shift >= 0:
        return _by_bits(tanh_int16(wrap_int32(_all_int16() * wrap_int32(np.left_shift(np.int64(3), [shift & 31])))))
    # Undefined in C for shifts of 32 and more: this follows x86, which takes the counts modulo 32.
    half = wrap_int32(np.left_shift(np.int64(1), [(-shift - 1) & 31]))
    return _by_bits(tanh_int16(wrap_int32(_all_int16() * 3 + half) >> (-shift & 31)))


def _all_int16() -> Raw:
    return np.arange(LEAST, MOST + 1, dtype=np.int64)


def _by_bits(values: Raw) -> Raw:
    """A table over all int16, from -32768, with each value where its bits, read as unsigned, point."""
    return np.roll(values, LEAST)


def _bind_quantized(t: Tensors, op: OpData) -> Run:
    columns = 4 * t.units
    gates = kept(np.empty((t.steps, t.batches, columns), np.int32))
    recurrent, sums = (kept(np.empty((t.batches, columns), np.int32)) for _ in range(2))
    from_input = _bind_gate_product(
        t.rows, t.input_weights, t.biases, op.input_zero_point, op.input_multipliers, gates, t.constant
    )
    from_hidden = _bind_gate_product(
        t.hidden, t.recurrent_weights, None, op.hidden_zero_point, op.recurrent_multipliers, recurrent, t.constant
    )
    results = kept(np.empty((t.batches, columns), np.int64))
    _, update, forget, output, cell = _gates(results, t.units)
    apply_gates = _bind_gate_functions(t, sums, results)
    update_cell = _bind_cell(t, op, forget, update, cell)
    update_hidden = _bind_hidden(t, op, output)
    add, lowest_sum, highest_sum = np.add, scalar(LEAST, np.int32), scalar(MOST, np.int32)
    hidden = t.hidden

    def run() -> None:
        t.refresh()
        from_input()
        for step, y in zip(gates, t.y):
            from_hidden()
            add(step, recurrent, sums)
            clip(sums, lowest_sum, highest_sum, sums)
            apply_gates()
            update_cell()
            update_hidden()
            y[...] = hidden

    return run


def _bind_gate_functions(t: Tensors, sums: npt.NDArray[np.int32], results: Raw) -> Run:
    """What sets the results, Q0.15, to the function of each gate of the sums, Q3.12."""
    look_up = kept(gate_table(t.is_tanh)).take
    index = kept(np.empty(sums.shape, np.intp))
    # The function of the cell gate stands in the second half of the table.
    halves = kept(np.zeros(sums.shape, np.intp))
    halves[:, 3 * t.units :] = 1 << 16
    low_bits, add, bitwise_and = scalar(0xFFFF), np.add, np.bitwise_and

    def apply() -> None:
        index[...] = sums
        bitwise_and(index, low_bits, index)
        add(index, halves, index)
        look_up(index, None, results, "clip")

    return apply


def _bind_cell(t: Tensors, op: OpData, forget: Raw, update: Raw, cell: Raw) -> Run:
    """What makes the cell state forget, and adds the cell gate to it as far as the update gate lets it."""
    state, work, scratch = (kept(np.empty((t.batches, t.units), np.int64)) for _ in range(3))
    lowest, highest = scalar(LEAST), scalar(MOST)
    # The state saturates at 16 bits, and then at the clip: together at whichever is nearer.
    cell_clip = -LEAST if op.cell_clip is None else op.cell_clip
    cell_lowest, cell_highest = scalar(max(LEAST, -cell_clip)), scalar(min(MOST, cell_clip))
    scale_forget, scale_update = op.forget.scale, op.update.scale
    add, multiply, cell_state = np.add, np.multiply, t.cell

    def change() -> None:
        state[...] = cell_state
        multiply(state, forget, state)
        clip(scale_forget(state, scratch), lowest, highest, state)
        multiply(update, cell, work)
        clip(scale_update(work, scratch), lowest, highest, work)
        add(state, work, state)
        clip(state, cell_lowest, cell_highest, state)
        cell_state[...] = state

    return change


def _bind_hidden(t: Tensors, op: OpData, output: Raw) -> Run:
    """What sets the hidden state to the tanh of the cell state, as far as the output gate lets it out."""
    look_up_tanh = kept(table_of_tanh(op.cell_power)).take
    work, scratch = (kept(np.empty((t.batches, t.units), np.int64)) for _ in range(2))
    index, narrow = kept(np.empty(work.shape, np.intp)), kept(np.empty(work.shape, np.int32))
    limits = np.iinfo(t.hidden.dtype)
    lowest, highest = scalar(limits.min, np.int32), scalar(limits.max, np.int32)
    zero_point, low_bits, scale_output = scalar(op.hidden_zero_point), scalar(0xFFFF), op.output.scale
    add, multiply, bitwise_and = np.add, np.multiply, np.bitwise_and
    cell_state, hidden = t.cell, t.hidden

    def change() -> None:
        index[...] = cell_state
        bitwise_and(index, low_bits, index)
        look_up_tanh(index, None, work, "clip")
        multiply(work, output, work)
        add(scale_output(work, scratch), zero_point, work)
        narrow[...] = work  # wraps, as in the reference
        clip(narrow, lowest, highest, narrow)
        hidden[...] = narrow

    return change


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
    cpp_method="AddUnidirectionalSequenceLSTM",
    refusals=(
        Refusal(_is_int16, "activations of int16 are not supported", until=REWRITTEN),
        Refusal(lacks_intermediates, "it needs its five intermediate tensors", until=REWRITTEN),
    ),
    since="ceac958de",
)
