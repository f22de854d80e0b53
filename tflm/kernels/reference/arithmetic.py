"""ADD, SUB, MUL and DIV with a fused activation; ADD_N, SQUARED_DIFFERENCE, FLOOR_DIV and FLOOR_MOD.

Inputs broadcast, except those of ADD_N, which may be any number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.fixed_point import (
    QuantizedMultiplier,
    Raw,
    count_leading_zeros_32,
    quantize_multiplier,
    reciprocal,
    rounding_divide_by_any_pot,
    saturating_rounding_doubling_high_mul,
    wrap_int32,
)
from tflm.kernels.arithmetic.requantization import OutputStage, Requantization, lookup_table
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.overlap import element_wise
from tflm.kernels.registration import Registration, Run
from tflm.kernels.requests import PersistentBuffer, Released, Request, ScratchBuffer, TempInput, TempOutput, tensors
from tflm.kernels.support.activation import (
    SCALES,
    TFLITE_FUSED_ACTIVATION,
    activation_range,
    fused_activation,
    quantized_activation_range,
)
from tflm.kernels.support.checks import (
    require_one_type,
    require_same_shape,
    require_same_type,
    require_scale,
    require_symmetric_int16,
)
from tflm.kernels.support.elementwise import MAXIMUM_RANK, RANK_4D, BinaryFunction, bind_binary, require_broadcast
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.enums import ELEMENT_TYPES, ActivationFunctionType, BuiltinOperator, TensorType
from tflm.schema.options import AddOptions, DivOptions, MulOptions, SubOptions
from tflm.schema.version_rules import (
    BEYOND_FOUR_DIMENSIONS,
    INT16_ACTIVATIONS,
    Feature,
    Signature,
    by_input,
    either,
    every,
    input_is,
    no,
    option,
    quantized,
    scales_of,
)
from tflm.targets import BOOL, FLOAT, INT, INT16, INT32, INT64, UINT8, Array, Struct

TYPES = (TensorType.FLOAT32, TensorType.INT32, TensorType.INT8, TensorType.INT16)
DIV_TYPES = (TensorType.FLOAT32, TensorType.INT32, TensorType.INT8)
PLAIN_TYPES = (TensorType.FLOAT32, TensorType.INT32)

TFLITE_ADD_PARAMS = Struct("TfLiteAddParams", activation=TFLITE_FUSED_ACTIVATION, pot_scale_int16=BOOL)
TFLITE_SUB_PARAMS = Struct("TfLiteSubParams", activation=TFLITE_FUSED_ACTIVATION, pot_scale_int16=BOOL)
TFLITE_MUL_PARAMS = Struct("TfLiteMulParams", activation=TFLITE_FUSED_ACTIVATION)
TFLITE_DIV_PARAMS = Struct("TfLiteDivParams", activation=TFLITE_FUSED_ACTIVATION)

_FIELDS_OF_A_SUM = {
    "requires_broadcast": BOOL,
    "input1_shift": INT,
    "input2_shift": INT,
    "output_activation_min": INT32,
    "output_activation_max": INT32,
    "input1_multiplier": INT32,
    "input2_multiplier": INT32,
    "output_multiplier": INT32,
    "output_shift": INT,
    "left_shift": INT,
    "input1_offset": INT32,
    "input2_offset": INT32,
    "output_offset": INT32,
}
_FIELDS_OF_A_PRODUCT = {
    "input1_zero_point": INT32,
    "input2_zero_point": INT32,
    "output_activation_min": INT32,
    "output_activation_max": INT32,
    "output_zero_point": INT32,
    "output_multiplier": INT32,
    "output_shift": INT,
}
_FLOAT_RANGE = {"output_activation_min_f32": FLOAT, "output_activation_max_f32": FLOAT}

ARITHMETIC_PARAMS = Struct(
    "ArithmeticParams",
    broadcast_category=UINT8,
    input1_offset=INT32,
    input2_offset=INT32,
    output_offset=INT32,
    output_multiplier=INT32,
    output_shift=INT,
    left_shift=INT,
    input1_multiplier=INT32,
    input1_shift=INT,
    input2_multiplier=INT32,
    input2_shift=INT,
    quantized_activation_min=INT32,
    quantized_activation_max=INT32,
    float_activation_min=FLOAT,
    float_activation_max=FLOAT,
    int64_activation_min=INT64,
    int64_activation_max=INT64,
    int16_activation_min=INT16,
    int16_activation_max=INT16,
    broadcast_shape=Array(INT, 5),
)
OP_DATA_ADD = Struct("OpDataAdd", **_FIELDS_OF_A_SUM, **_FLOAT_RANGE)
OP_DATA_SUB = Struct("OpDataSub", **_FIELDS_OF_A_SUM)
OP_DATA_MUL = Struct("OpDataMul", **_FIELDS_OF_A_PRODUCT, **_FLOAT_RANGE)
OP_DATA_DIV = Struct("OpDataDiv", **_FIELDS_OF_A_PRODUCT)


@dataclass(frozen=True)
class Clamped:
    """A function of plain numbers with a fused activation; integers wrap before they are clamped."""

    function: BinaryFunction
    minimum: Any
    maximum: Any

    def __call__(self, x1: npt.NDArray[Any], x2: npt.NDArray[Any]) -> npt.NDArray[Any]:
        result: npt.NDArray[Any] = np.minimum(np.maximum(self.function(x1, x2), self.minimum), self.maximum)
        return result


def _truncated_quotient(x1: npt.NDArray[np.int32], x2: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
    """C's division of int32, computed in float64: a fractional quotient never rounds to a whole number."""
    if not x2.all():
        raise OperatorError("divides by zero")
    return np.trunc(x1 / x2)


@dataclass(frozen=True)
class Addend:
    """An input of a quantized sum, rescaled to the sum's scale: twice the larger scale of the inputs."""

    zero_point: int
    left_shift: int
    multiplier: QuantizedMultiplier

    @classmethod
    def of(cls, input: TfLiteTensor, left_shift: int, ratio: float) -> Addend:
        """An input whose scale is that of the sum times a ratio."""
        return cls(input.zero_point, left_shift, QuantizedMultiplier.of(ratio))

    def __call__(self, x: npt.NDArray[Any]) -> Raw:
        """MultiplyByQuantizedMultiplier((x - zero_point) << left_shift)."""
        return self.multiplier((x.astype(np.int64) - self.zero_point) << self.left_shift)


@dataclass(frozen=True)
class Sum:
    """A quantized sum or difference."""

    addend1: Addend
    addend2: Addend
    combine: np.ufunc
    output: Requantization

    def __call__(self, x1: npt.NDArray[Any], x2: npt.NDArray[Any]) -> Raw:
        return self.output(self.combine(self.addend1(x1), self.addend2(x2)))


@dataclass(frozen=True)
class Product:
    """A quantized product."""

    zero_point1: int
    zero_point2: int
    output: Requantization

    def __call__(self, x1: npt.NDArray[Any], x2: npt.NDArray[Any]) -> Raw:
        return self.output((x1.astype(np.int64) - self.zero_point1) * (x2.astype(np.int64) - self.zero_point2))


@dataclass(frozen=True)
class Quotient:
    """A quantized quotient: the dividend, shifted left as far as possible, times the reciprocal of the divisor.

    The output's multiplier is significand * 2^shift.
    """

    zero_point1: int
    zero_point2: int
    significand: int
    shift: int
    output: OutputStage

    def __call__(self, x1: npt.NDArray[Any], x2: npt.NDArray[Any]) -> Raw:
        quotient, bits = self._quotient(x1, x2)
        scaled = saturating_rounding_doubling_high_mul(quotient, self.significand)
        return self.output.clamp(rounding_divide_by_any_pot(scaled, bits - self.shift))

    def _quotient(self, x1: npt.NDArray[Any], x2: npt.NDArray[Any]) -> tuple[Raw, Raw]:
        """Mantissa and number of bits below its point."""
        inverse, inverse_bits = reciprocal(abs(x2.astype(np.int64) - self.zero_point2), 31)  # GetReciprocal
        dividend = x1.astype(np.int64) - self.zero_point1
        dividend = np.where(x2 < self.zero_point2, -dividend, dividend)
        headroom = count_leading_zeros_32(np.where(dividend < 0, ~dividend, dividend)) - 1
        return saturating_rounding_doubling_high_mul(dividend << headroom, inverse), inverse_bits + headroom


def prepared_tensors(
    node: Node, types: tuple[TensorType, ...] = TYPES, maximum_rank: int = MAXIMUM_RANK
) -> tuple[TfLiteTensor, TfLiteTensor, TfLiteTensor]:
    """The inputs and output, checked to have one of these types and to broadcast."""
    node.expect(outputs=1)  # TFLM ignores further inputs, except for operators that count them
    input1 = node.input(0)
    input2 = node.input(1)
    output = node.output(0)
    require_one_type(types, input1, input2, output)
    require_broadcast(input1, input2, output, maximum_rank)
    return input1, input2, output


def _require_plain_numbers(*tensors: TfLiteTensor) -> None:
    for tensor in tensors:
        if tensor.quantization is not None:
            raise OperatorError("is quantized INT32; only plain numbers are supported", tensor=tensor.name)


def _clamped(function: BinaryFunction, activation: ActivationFunctionType, output: TfLiteTensor) -> Clamped:
    return Clamped(function, *activation_range(activation, ELEMENT_TYPES[output.type].dtype))


def _prepare_add(context: KernelContext, node: Node) -> None:
    input1, input2, output = prepared_tensors(node)
    activation = fused_activation(node, AddOptions)
    if output.type == TensorType.INT32:
        _require_plain_numbers(input1, input2)
        node.op_data = _clamped(np.add, ActivationFunctionType.NONE, output)  # TFLM ignores the activation
    elif output.type == TensorType.FLOAT32:
        node.op_data = _clamped(np.add, activation, output)
    else:
        node.op_data = _quantized_sum(input1, input2, output, activation, np.add, np.float64)


def _prepare_sub(context: KernelContext, node: Node) -> None:
    input1, input2, output = prepared_tensors(node)
    activation = fused_activation(node, SubOptions)
    if output.type in PLAIN_TYPES:
        if output.type == TensorType.INT32:
            _require_plain_numbers(input1, input2, output)
        node.op_data = _clamped(np.subtract, activation, output)
    else:
        number = SCALES.number(node.release)
        node.op_data = _quantized_sum(input1, input2, output, activation, np.subtract, number)


def _quantized_sum(
    input1: TfLiteTensor,
    input2: TfLiteTensor,
    output: TfLiteTensor,
    activation: ActivationFunctionType,
    combine: np.ufunc,
    number: type[np.float32] | type[np.float64],
) -> Sum:
    left_shift = 15 if output.type == TensorType.INT16 else 20
    scale1, scale2, output_scale = (number(require_scale(tensor)) for tensor in (input1, input2, output))
    twice_largest = 2 * max(scale1, scale2)
    real = float(twice_largest / (2**left_shift * output_scale))
    significand, shift = quantize_multiplier(real)
    if not real < 1 or shift > 0:
        reason = f"has scale {output.scale:g}, too small for scales {input1.scale:g} and {input2.scale:g} of the inputs"
        raise OperatorError(reason, tensor=output.name)
    stage = OutputStage(output.zero_point, *quantized_activation_range(activation, output))
    return Sum(
        Addend.of(input1, left_shift, float(scale1 / twice_largest)),
        Addend.of(input2, left_shift, float(scale2 / twice_largest)),
        combine,
        Requantization(QuantizedMultiplier(significand, shift), stage),
    )


def _prepare_mul(context: KernelContext, node: Node) -> None:
    node.expect(inputs=2)
    input1, input2, output = prepared_tensors(node)
    activation = fused_activation(node, MulOptions)
    if output.type in PLAIN_TYPES:
        node.op_data = _clamped(np.multiply, activation, output)
        return
    stage = OutputStage(output.zero_point, *quantized_activation_range(activation, output))
    require_symmetric_int16(input1, input2, output)
    real = input1.scale * input2.scale / require_scale(output)
    result = Requantization(QuantizedMultiplier.of(real), stage)
    node.op_data = Product(input1.zero_point, input2.zero_point, result)


def _prepare_div(context: KernelContext, node: Node) -> None:
    input1, input2, output = prepared_tensors(node, DIV_TYPES)
    activation = fused_activation(node, DivOptions)
    if output.type == TensorType.FLOAT32:
        node.op_data = _clamped(np.divide, activation, output)
    elif output.type == TensorType.INT32:
        _require_plain_numbers(input1, input2)
        node.op_data = _clamped(_truncated_quotient, activation, output)
    else:
        significand, shift = quantize_multiplier(input1.scale / (require_scale(input2) * require_scale(output)))
        stage = OutputStage(output.zero_point, *quantized_activation_range(activation, output))
        node.op_data = Quotient(input1.zero_point, input2.zero_point, significand, shift, stage)


def _rescales_by_one_or_more(signature: Signature) -> bool:
    tensors = (signature.input(0), signature.input(1), *signature.outputs[:1])
    scales = [np.float32(scales_of(tensor)[0]) for tensor in tensors if scales_of(tensor)]
    if len(scales) < 3 or 0 in scales:
        return False
    with np.errstate(all="ignore"):
        return bool(scales[0] * scales[1] / scales[2] >= 1)


INT16_WITH_ANY_SCALE = Feature("INT16 with any scale", every(INT16_ACTIVATIONS, no(option("pot_scale_int16"))))


ADD = Registration(
    BuiltinOperator.ADD,
    bind_binary,
    _prepare_add,
    op_data=OP_DATA_ADD,
    requests=tensors(2),
    builtin_data=TFLITE_ADD_PARAMS,
    max_version=5,
    types=TYPES,
    overlap=element_wise,
    int8_registration=True,
    output_values=lambda node: node.values(0) + node.values(1),
    versions={
        6: input_is("FLOAT16"),
        5: Feature("INT16 without a scale", every(input_is("INT16"), no(quantized(0)))),
        4: input_is("INT64"),
        3: INT16_WITH_ANY_SCALE,
        2: input_is("INT8"),
    },
)
SUB = Registration(
    BuiltinOperator.SUB,
    bind_binary,
    _prepare_sub,
    op_data=OP_DATA_SUB,
    requests=tensors(2),
    builtin_data=TFLITE_SUB_PARAMS,
    max_version=5,
    types=TYPES,
    overlap=element_wise,
    output_values=lambda node: node.values(0) - node.values(1),
    versions={5: INT16_WITH_ANY_SCALE, 4: input_is("INT64"), 3: BEYOND_FOUR_DIMENSIONS, 2: input_is("INT8")},
)
MUL = Registration(
    BuiltinOperator.MUL,
    bind_binary,
    _prepare_mul,
    op_data=OP_DATA_MUL,
    requests=tensors(2),
    builtin_data=TFLITE_MUL_PARAMS,
    max_version=7,
    types=TYPES,
    overlap=element_wise,
    int8_registration=True,
    output_values=lambda node: node.values(0) * node.values(1),
    versions={
        8: input_is("FLOAT16"),
        7: Feature(
            "INT16 without a scale, and UINT32",
            either(every(input_is("INT16"), no(quantized(0, 1))), input_is("UINT32")),
        ),
        **by_input(COMPLEX64=6, INT64=5, INT16=4),
        3: Feature("scales whose product is the output's or more", _rescales_by_one_or_more),
        2: input_is("INT8"),
    },
)
DIV = Registration(
    BuiltinOperator.DIV,
    bind_binary,
    _prepare_div,
    op_data=OP_DATA_DIV,
    requests=tensors(2),
    builtin_data=TFLITE_DIV_PARAMS,
    max_version=2,
    types=DIV_TYPES,
    overlap=element_wise,
    since="32b0fe993",
    versions={2: BEYOND_FOUR_DIMENSIONS},
)


LEFT_SHIFTS = {TensorType.INT8: 7, TensorType.INT16: 0}

OP_DATA_SQUARED_DIFFERENCE = Struct(
    "squared_difference.cc:OpData", requires_broadcast=BOOL, arithmetic_params=ARITHMETIC_PARAMS
)


@dataclass(frozen=True)
class SquaredDifference:
    """The square of a quantized difference; difference and square wrap to 32 bits."""

    addend1: Addend
    addend2: Addend
    output: Requantization

    def __call__(self, x1: npt.NDArray[Any], x2: npt.NDArray[Any]) -> Raw:
        difference = self.addend1(x1) - self.addend2(x2)
        return self.output(wrap_int32(difference * difference))


def squared_difference(x1: npt.NDArray[Any], x2: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The square of the difference of unquantized numbers; integers wrap."""
    result: npt.NDArray[Any] = np.square(x1 - x2)
    return result


def _prepare_squared_difference(context: KernelContext, node: Node) -> None:
    node.expect(inputs=2)
    input1, input2, output = prepared_tensors(node, TYPES, RANK_4D)
    node.op_data = _squared_difference(input1, input2, output) if output.type in LEFT_SHIFTS else squared_difference


def _squared_difference(input1: TfLiteTensor, input2: TfLiteTensor, output: TfLiteTensor) -> SquaredDifference:
    left_shift = LEFT_SHIFTS[output.type]
    require_symmetric_int16(input1, input2, output)
    twice_largest = 2 * max(require_scale(input1), require_scale(input2))
    # The reference multiplies the output's scale by the power of two in float32.
    divisor = float(np.float32(2 ** (2 * left_shift)) * np.float32(require_scale(output)))
    multiplier = QuantizedMultiplier.of(twice_largest * twice_largest / divisor)
    result = Requantization(multiplier, OutputStage.whole(output.zero_point, ELEMENT_TYPES[output.type].dtype))
    return SquaredDifference(
        Addend.of(input1, left_shift, input1.scale / twice_largest),
        Addend.of(input2, left_shift, input2.scale / twice_largest),
        result,
    )


SQUARED_DIFFERENCE = Registration(
    BuiltinOperator.SQUARED_DIFFERENCE,
    bind_binary,
    _prepare_squared_difference,
    op_data=OP_DATA_SQUARED_DIFFERENCE,
    requests=tensors(2),
    max_version=3,
    types=TYPES,
    overlap=element_wise,
    since="8b9d46929",
    versions=by_input(INT8=2),
)


ADD_N_TYPES = (TensorType.FLOAT32, TensorType.INT8)

ADD_N_LEFT_SHIFT = 20

OP_DATA_ADD_N = Struct(
    "add_n.cc:OpData",
    output_activation_min=INT32,
    output_activation_max=INT32,
    input_offset=INT32,
    output_offset=INT32,
    input_multiplier=INT32,
    output_multiplier=INT32,
    input_shift=INT,
    output_shift=INT,
    left_shift=INT,
    scratch_index=INT,
)


@dataclass
class QuantizedSum:
    """A quantized sum of inputs of one scale and zero point.

    Attributes:
        addends: a table of the addend of each input value, indexed by its bits.
        output: requantizes the sum.
    """

    addends: Raw
    output: Requantization

    def __call__(self, inputs: Sequence[npt.NDArray[np.int8]]) -> Raw:
        total = self.addends[
            np.zeros(inputs[0].shape, np.uint8)
        ]  # as in the reference, the sum starts from a stored zero
        for x in inputs:
            total += self.addends[x.view(np.uint8)]
        return self.output(total)


def float_sum(inputs: Sequence[npt.NDArray[np.float32]]) -> npt.NDArray[np.float32]:
    """The sum, from the first input to the last."""
    total = inputs[0]
    for x in inputs[1:]:
        total = total + x
    return total


def _prepare_add_n(context: KernelContext, node: Node) -> None:
    if len(node.inputs) < 2:
        raise OperatorError(f"has {len(node.inputs)} inputs, must have at least 2")
    node.expect(outputs=1)
    first = node.input(0)
    output = node.output(0)
    require_one_type(ADD_N_TYPES, first, output)
    for i in range(1, len(node.inputs)):
        _check_alike(node.input(i), first)
    require_same_shape(output, first)
    node.op_data = _sum_of_inputs(first, output) if output.type == TensorType.INT8 else float_sum


def _requests_add_n(node: Node) -> Iterator[Request]:
    yield TempInput(0)
    yield TempOutput(0)
    for i in range(1, node.input_count):
        yield TempInput(i)
        yield Released(TempInput(i))
    if node.output(0).type == TensorType.INT8:
        yield PersistentBuffer(OP_DATA_ADD_N.name, OP_DATA_ADD_N.size(node.target))
    yield ScratchBuffer("pointers to inputs", node.target.pointer_size * node.input_count)


def _check_alike(input: TfLiteTensor, first: TfLiteTensor) -> None:
    require_same_type(input, first)
    require_same_shape(input, first)
    if input.type == TensorType.INT8 and (input.scale, input.zero_point) != (first.scale, first.zero_point):
        raise OperatorError("differs from the first input in scale or zero point", tensor=input.name)


def _sum_of_inputs(input: TfLiteTensor, output: TfLiteTensor) -> QuantizedSum:
    require_scale(input)
    real = 2 * input.scale / (2**ADD_N_LEFT_SHIFT * require_scale(output))
    significand, shift = quantize_multiplier(real)
    if not real < 1 or shift > 0:
        reason = f"has scale {output.scale:g}, too small for a scale {input.scale:g} of the inputs"
        raise OperatorError(reason, tensor=output.name)
    result = Requantization(QuantizedMultiplier(significand, shift), OutputStage.whole(output.zero_point, np.int8))
    addend = Addend.of(input, ADD_N_LEFT_SHIFT, 0.5)
    return QuantizedSum(lookup_table(addend, np.dtype(np.int8), np.dtype(np.int64)), result)


def _bind_add_n(context: KernelContext, node: Node) -> Run:
    inputs = [node.eval_input(i).elements for i in range(len(node.inputs))]
    y = node.eval_output(0).elements

    def run() -> None:
        y[...] = node.op_data(inputs)

    return run


ADD_N = Registration(
    BuiltinOperator.ADD_N,
    _bind_add_n,
    _prepare_add_n,
    requests=_requests_add_n,
    max_version=3,
    types=ADD_N_TYPES,
    overlap=element_wise,
)


Floats = npt.NDArray[np.float32]

FLOOR_TYPES = (TensorType.FLOAT32,)


def _prepare_floor_div(context: KernelContext, node: Node) -> None:
    node.expect(inputs=2)
    _, divisor, _ = prepared_tensors(node, FLOOR_TYPES, RANK_4D)

    def floor_div(x1: Floats, x2: Floats) -> npt.NDArray[np.float64]:
        if not x2.all():
            raise OperatorError("has a zero among the divisors", tensor=divisor.name)
        return np.floor(np.divide(x1, x2, dtype=np.float64))

    node.op_data = floor_div


def _prepare_floor_mod(context: KernelContext, node: Node) -> None:
    node.expect(inputs=2)
    prepared_tensors(node, FLOOR_TYPES, RANK_4D)
    node.op_data = np.mod


FLOOR_DIV = Registration(
    BuiltinOperator.FLOOR_DIV,
    bind_binary,
    _prepare_floor_div,
    requests=tensors(2),
    max_version=3,
    types=FLOOR_TYPES,
    overlap=element_wise,
    versions=by_input(INT16=3, INT8=3, FLOAT32=2),
)
FLOOR_MOD = replace(
    FLOOR_DIV,
    operator=BuiltinOperator.FLOOR_MOD,
    prepare=_prepare_floor_mod,
    max_version=2,
    versions=by_input(INT16=2, INT8=2),
)
