"""SOFTMAX and LOG_SOFTMAX along the last dimension: float32, int8, and for SOFTMAX int8 to int16 and int16.

An element's share of its row is exp(beta * (x - maximum)), over the sum of those. For floats that is what `_bind_float`
says. For integers `_bind_rows` goes the same way by tables: the distance from the maximum, its exponent, the sum of
these, and its reciprocal, which exponents are multiplied by. LOG_SOFTMAX takes the log of the sum off instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.fixed_point import (
    INT32_MAX,
    LUT_INT16_SIZE,
    Raw,
    count_leading_zeros_32,
    exp_on_negative_values,
    input_radius,
    log_from_one,
    lookup_int16,
    multiply_by_quantized_multiplier,
    populate_lut_int16,
    quantize_multiplier,
    reciprocal,
    rounding_divide_by_pot,
)
from tflm.kernels.arithmetic.lookup import bind_lookup
from tflm.kernels.host_memory import kept
from tflm.kernels.overlap import row_wise
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.kernels.requests import NodeView, PersistentBuffer, Request, tensors
from tflm.kernels.support.checks import (
    require_same_size,
    require_same_type,
    require_scale,
    require_type,
    require_zero_point,
)
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.options import SoftmaxOptions
from tflm.targets import DOUBLE, FLOAT, INT, INT32, POINTER, SIZE_T, Struct

BLOCK = 8192
"""Elements that are worked on at once, if a row has no more."""

LOG_TYPES = (TensorType.FLOAT32, TensorType.INT8)
OUTPUT_TYPES = {
    TensorType.FLOAT32: (TensorType.FLOAT32,),
    TensorType.INT8: (TensorType.INT8, TensorType.INT16),
    TensorType.INT16: (TensorType.INT16,),
}
SCALED_DIFF_INTEGER_BITS = 5
ACCUMULATION_INTEGER_BITS = 12
LOG_OUTPUT_INTEGER_BITS = 4
LOG_OUTPUT_SCALE = 1 / 16

TFLITE_SOFTMAX_PARAMS = Struct("TfLiteSoftmaxParams", beta=FLOAT)
SOFTMAX_PARAMS = Struct(
    "SoftmaxParams",
    beta=DOUBLE,
    input_multiplier=INT32,
    input_left_shift=INT32,
    reverse_scaling_divisor=INT32,
    reverse_scaling_right_shift=INT32,
    diff_min=INT,
    zero_point=INT32,
    scale=FLOAT,
    table=POINTER,
    exp_lut=POINTER,
    one_over_one_plus_x_lut=POINTER,
    uint8_table1=POINTER,
    uint8_table2=POINTER,
)
LOG_SOFTMAX_OP_DATA = Struct(
    "LogSoftmaxOpData",
    input_multiplier=INT32,
    input_left_shift=INT32,
    reverse_scaling_divisor=INT32,
    reverse_scaling_right_shift=INT32,
    diff_min=INT,
    outer_size=SIZE_T,
    depth=SIZE_T,
)

SUM_MASK = (1 << 32) - 1
"""Sums are taken as unsigned numbers of 32 bits: 8192 equal elements wrap."""

LARGEST_SUMS = {8: (1 << 29) - 1, 16: SUM_MASK}
"""Where sums that did not wrap may end, by bits of the output: from 1024 on shares of int8 are 0."""

OverSum = Callable[[Any], tuple[Any, Any, Any]]
"""From the sum over a row, a number or an array of them, to what divides by it: what an exponent is multiplied by, what
is added, and by how many bits that is shifted right."""


@dataclass
class Int16OpData:
    """The multiplier of the differences, and two tables in the arena: exp over [-10, 0], 1 / (1 + x) over [0, 1]."""

    significand: int
    shift: int
    exp_lut: npt.NDArray[np.int16]
    one_over_one_plus_x_lut: npt.NDArray[np.int16]

    def exps(self) -> Raw:
        """exp in Q0.15 of each distance below the largest element."""
        distances = np.arange(1 << 16, dtype=np.int64)
        scaled = multiply_by_quantized_multiplier(-distances, self.significand, self.shift)
        return lookup_int16(np.clip(scaled + 32767, -32768, 32767), self.exp_lut)

    def inverses(self) -> Raw:
        """1 / (1 + x) in Q0.15 for x from 0 to 1 in steps of 2^-16."""
        centered = np.minimum(np.arange((1 << 16) + 1, dtype=np.int64) - 32768, 32767)
        return lookup_int16(centered, self.one_over_one_plus_x_lut)


def _prepare(context: KernelContext, node: Node) -> None:
    input, output = _tensors(context, node)
    require_type(input, *OUTPUT_TYPES)
    require_type(output, *OUTPUT_TYPES[input.type])
    options = node.options(SoftmaxOptions)
    beta = 0.0 if options is None else options.beta
    if input.type == TensorType.FLOAT32:
        node.op_data = np.float32(beta)
    elif input.type == TensorType.INT16:
        node.op_data = _prepare_int16(context, node, input, output, beta)
    else:
        _check_int8_output(output)
        node.op_data = _scaled_distances(input, beta)


def _prepare_log(context: KernelContext, node: Node) -> None:
    input, output = _tensors(context, node, lowest_rank=0)
    require_type(input, *LOG_TYPES)
    require_same_type(output, input)
    if input.type == TensorType.INT8:
        require_zero_point(output, 127)
        if output.scale != LOG_OUTPUT_SCALE:
            raise OperatorError(f"has scale {output.scale:g}, must have 1/16", tensor=output.name)
        node.op_data = _scaled_distances(input, beta=1.0)


def _requests(node: NodeView) -> Iterator[Request]:
    yield from tensors()(node)
    yield from table_requests(node)


def table_requests(node: NodeView) -> Iterator[Request]:
    """The tables for int16."""
    if node.input(0).type == TensorType.INT16:
        yield PersistentBuffer("exp_lut", 2 * LUT_INT16_SIZE)
        yield PersistentBuffer("one_over_one_plus_x_lut", 2 * LUT_INT16_SIZE)


def _requests_of_log(node: NodeView) -> Iterator[Request]:
    yield from tensors()(node)
    if node.input(0).type == TensorType.INT8:
        yield PersistentBuffer(LOG_SOFTMAX_OP_DATA.name, LOG_SOFTMAX_OP_DATA.size(node.target))


def _tensors(context: KernelContext, node: Node, lowest_rank: int = 1) -> tuple[TfLiteTensor, TfLiteTensor]:
    node.expect(inputs=1, outputs=1)
    input = context.input_tensor(node, 0)
    if len(input.dims) < lowest_rank or 0 in input.dims[-1:]:
        raise OperatorError(f"has shape {list(input.dims)}; softmax goes along its last dimension", tensor=input.name)
    output = context.output_tensor(node, 0)
    require_same_size(output, input)
    if output.dims[-1:] != input.dims[-1:]:
        reason = f"has shape {list(output.dims)}, its last dimension must be {input.dims[-1]} like the input's"
        raise OperatorError(reason, tensor=output.name)
    return input, output


def _check_int8_output(output: TfLiteTensor) -> None:
    if output.type == TensorType.INT16:
        require_zero_point(output, -32768)
        _require_scale_near(output, 1 / 65536)
    else:
        require_zero_point(output, -128)
        if output.scale != 1 / 256:
            raise OperatorError(f"has scale {output.scale:g}, must have 1/256", tensor=output.name)


def _require_scale_near(output: TfLiteTensor, scale: float) -> None:
    if not abs(output.scale - scale) <= 0.001 * scale:
        raise OperatorError(f"has scale {output.scale:g}, must have {scale:g}", tensor=output.name)


@dataclass
class ScaledDistances:
    """Of each distance below the largest element, 0 to 255: beta * scale * -distance, Q5.26, and whether it fits."""

    diffs: Raw
    near: npt.NDArray[np.bool_]

    def exps(self) -> Raw:
        """exp of each in Q0.31; 0 for what is too far."""
        return np.where(self.near, exp_on_negative_values(self.diffs, SCALED_DIFF_INTEGER_BITS), 0)

    def addends(self) -> Raw:
        """The same in Q12.19, so that 4096 of them can be added."""
        return rounding_divide_by_pot(self.exps(), ACCUMULATION_INTEGER_BITS)


def _scaled_distances(input: TfLiteTensor, beta: float) -> ScaledDistances:
    real = min(beta * require_scale(input) * 2.0 ** (31 - SCALED_DIFF_INTEGER_BITS), INT32_MAX)
    if not real > 1:
        raise OperatorError(f"beta {beta:g} times scale {input.scale:g} is too small", tensor=input.name)
    significand, shift = quantize_multiplier(real)
    distances = np.arange(256, dtype=np.int64)
    near = distances <= input_radius(SCALED_DIFF_INTEGER_BITS, shift)
    return ScaledDistances(multiply_by_quantized_multiplier(np.where(near, -distances, 0), significand, shift), near)


def _prepare_int16(
    context: KernelContext, node: Node, input: TfLiteTensor, output: TfLiteTensor, beta: float
) -> Int16OpData:
    require_zero_point(input, 0)
    require_zero_point(output, 0)
    _require_scale_near(output, 1 / 32768)
    context.allocate_requested(node)
    exp_lut, one_over_one_plus_x_lut = (
        node.array(name, LUT_INT16_SIZE, np.int16) for name in ("exp_lut", "one_over_one_plus_x_lut")
    )
    # The reference works these scales out in float32.
    f32, steps = np.float32, 65535
    ten, two, one = (float(f32(length) / f32(steps)) for length in (10, 2, 1))
    exp_lut[:] = populate_lut_int16(ten, 32767, two, 0, _exp)
    one_over_one_plus_x_lut[:] = populate_lut_int16(one, -32768, two, 0, lambda x: f32(1) / (f32(1) + x))
    multiplier = quantize_multiplier(input.scale * beta / (10.0 / steps))
    return Int16OpData(*multiplier, exp_lut, one_over_one_plus_x_lut)


def _exp(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return np.exp(x.astype(np.float64)).astype(np.float32)  # by way of float64, to be rounded right


def _bind(context: KernelContext, node: Node) -> Run:
    x, y = rows_of(context, node)
    if x.dtype == np.float32:
        return _bind_float(x, y, node.op_data)
    if x.dtype == np.int16:
        return _bind_int16(x, y, node.op_data)
    return _bind_int8_pairs(x, y, node.op_data) if x.shape[1] == 2 else _bind_int8(x, y, node.op_data)


def _bind_log(context: KernelContext, node: Node) -> Run:
    if not context.get_eval_input(node, 0).dims:
        return _write_nothing
    x, y = rows_of(context, node)
    return _bind_log_float(x, y) if x.dtype == np.float32 else _bind_log_int8(x, y, node.op_data)


def _write_nothing() -> None:
    """TFLM finds no elements along the last dimension of a scalar, and leaves the output as it is."""


def rows_of(context: KernelContext, node: Node) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Input and output as matrices of (rows, elements of a row)."""
    input, output = context.get_eval_input(node, 0), context.get_eval_output(node, 0)
    x = input.elements.reshape(-1, input.dims[-1])
    return x, output.elements.reshape(x.shape)


def _bind_float(x: npt.NDArray[Any], y: npt.NDArray[Any], beta: np.float32) -> Run:
    row = kept(np.empty((x.shape[0], 1), np.float32))

    def run() -> None:
        np.maximum.reduce(x, axis=1, out=row, keepdims=True)
        np.subtract(x, row, out=y)
        np.multiply(y, beta, out=y)
        np.exp(y, out=y)
        np.add.reduce(y, axis=1, out=row, keepdims=True)
        np.divide(y, row, out=y)

    return run


def _bind_log_float(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> Run:
    row = kept(np.empty((x.shape[0], 1), np.float32))
    exps, sums = (kept(np.empty(x.shape, np.float32)) for _ in range(2))
    last = sums[:, -1:]

    def run() -> None:
        np.maximum.reduce(x, axis=1, out=row, keepdims=True)
        np.subtract(x, row, out=y)
        np.exp(y, out=exps)
        # One after the other, as the reference adds them: the log of what is near to one shows the order.
        np.add.accumulate(exps, axis=1, out=sums)
        np.log(last, out=row)
        np.subtract(y, row, out=y)

    return run


def _bind_int8(x: npt.NDArray[Any], y: npt.NDArray[Any], distances: ScaledDistances) -> Run:
    limits, bits = np.iinfo(y.dtype), 8 * y.itemsize
    largest_sum = LARGEST_SUMS[bits]

    def over_sum(total: Any) -> tuple[Any, Any, Any]:
        """Two roundings in one: the product to Q0.31, then to the bits of the output."""
        scale, bits_over_unit = reciprocal(_at_most(total & SUM_MASK, largest_sum), ACCUMULATION_INTEGER_BITS)
        shift = 31 + bits_over_unit + 31 - bits
        return scale, (1 << 30) + (1 << (shift - 1)), shift

    results = np.arange(int(limits.min), int(limits.max) + 1, dtype=y.dtype)
    return _bind_rows(x, y, distances.addends(), distances.exps(), over_sum, results)


def _bind_int8_pairs(x: npt.NDArray[Any], y: npt.NDArray[Any], distances: ScaledDistances) -> Run:
    """Rows of two elements, by a table of all of them; only the difference of the two counts."""
    differences = np.arange(-255, 256, dtype=np.int64)
    rows = np.stack([np.maximum(differences, 0), np.maximum(-differences, 0)], axis=1) - 128
    results = kept(np.empty(rows.shape, y.dtype))
    _bind_int8(rows.astype(np.int8), results, distances)()
    pair_type = f"u{2 * y.itemsize}"
    result_pairs = results.view(pair_type).reshape(-1)

    def function(pairs: Raw) -> npt.NDArray[Any]:
        first, second = pairs.astype(np.uint16).view(np.int8).reshape(-1, 2).T.astype(np.intp)
        results_of_pairs: npt.NDArray[Any] = result_pairs[first - second + 255]
        return results_of_pairs

    return bind_lookup(x.view(np.uint16), y.view(pair_type), function)


def _bind_log_int8(x: npt.NDArray[Any], y: npt.NDArray[Any], distances: ScaledDistances) -> Run:
    shift = 31 - SCALED_DIFF_INTEGER_BITS - LOG_OUTPUT_INTEGER_BITS
    limits = np.iinfo(y.dtype)
    results = np.arange(int(limits.min), int(limits.max) + 1, dtype=y.dtype)
    # What is not positive is rounded; the largest result, for zero, is the last one.
    rounding = (1 << (shift - 1)) - 1 + ((len(results) - 1) << shift)

    def over_sum(total: Any) -> tuple[Any, Any, Any]:
        total = _at_most(total, INT32_MAX)
        return 1, rounding - log_from_one(total, ACCUMULATION_INTEGER_BITS, SCALED_DIFF_INTEGER_BITS), shift

    diffs = np.where(distances.near, distances.diffs, -INT32_MAX - 1)
    return _bind_rows(x, y, distances.addends(), diffs, over_sum, results)


def _bind_int16(x: npt.NDArray[Any], y: npt.NDArray[Any], op: Int16OpData) -> Run:
    exps, inverses = op.exps(), kept(op.inverses())

    def over_sum(total: Any) -> tuple[Any, Any, Any]:
        """The sum as 2^n (1 + x), x in [0, 1] in steps of 2^-16, which a table inverts."""
        total = _at_most(total, INT32_MAX)  # Q16.15
        headroom = count_leading_zeros_32(total) - 1
        scale = inverses[(((total << headroom) + (1 << 13)) >> 14) - (1 << 16)]
        shift = 30 - headroom
        return scale, 1 << (shift - 1), shift

    return _bind_rows(x, y, exps, exps, over_sum, np.arange(1 << 15, dtype=np.int16))


def _at_most(total: Any, largest: int) -> Any:
    return min(total, largest) if isinstance(total, int) else np.minimum(total, largest)


def _bind_rows(
    x: npt.NDArray[Any], y: npt.NDArray[Any], addends: Raw, values: Raw, over_sum: OverSum, results: npt.NDArray[Any]
) -> Run:
    """What sets y to a function of the distance of each element from the largest in its row.

    Args:
        x, y: of shape (rows, depth).
        addends: for each distance, what it adds to the sum of the row.
        values: for each distance, what is scaled as `over_sum` says.
        results: the element of y for each scaled value; beyond its ends, for the nearest.
    """
    rows, depth = x.shape
    addends, values, results = kept(addends), kept(values), kept(results)
    size = max(1, min(rows, BLOCK // depth))
    unsigned = f"u{x.itemsize}"
    largest, distances = kept(np.empty((size, 1), x.dtype)), kept(np.empty((size, depth), unsigned))
    index, terms = kept(np.empty((size, depth), np.intp)), kept(np.empty((size, depth), np.int64))
    sums = kept(np.empty((size, 1), np.int64))
    unsigned_largest = largest.view(unsigned)
    blocks = []
    for start in range(0, rows, size):
        work = (largest, unsigned_largest, distances, index, terms, sums)
        stop = min(start + size, rows)
        block = x[start:stop], x[start:stop].view(unsigned), y[start:stop]
        blocks.append((*block, *(array[: stop - start] for array in work)))

    def run() -> None:
        for x, unsigned_x, y, largest, unsigned_largest, distances, index, terms, sums in blocks:
            np.maximum.reduce(x, axis=1, out=largest, keepdims=True)
            np.subtract(unsigned_largest, unsigned_x, out=distances)  # wraps around to what it is
            np.copyto(index, distances)
            addends.take(index, out=terms, mode="clip")  # exponents, in the format of the sum
            np.add.reduce(terms, axis=1, out=sums, keepdims=True)
            reciprocals, rounding, shift = over_sum(sums.item() if size == 1 else sums)
            values.take(index, out=terms, mode="clip")  # exponents again, in full
            np.multiply(terms, reciprocals, out=terms)
            np.right_shift(np.add(terms, rounding, out=terms), shift, out=index)
            results.take(index, out=y, mode="clip")

    return run


SOFTMAX = Registration(
    BuiltinOperator.SOFTMAX,
    _bind,
    _prepare,
    op_data=SOFTMAX_PARAMS,
    requests=_requests,
    builtin_data=TFLITE_SOFTMAX_PARAMS,
    max_version=3,
    types=tuple(OUTPUT_TYPES),
    overlap=row_wise,
    int8_registration=True,
)
LOG_SOFTMAX = Registration(
    BuiltinOperator.LOG_SOFTMAX,
    _bind_log,
    _prepare_log,
    requests=_requests_of_log,
    max_version=2,
    types=LOG_TYPES,
    overlap=row_wise,
    since="21ea0a6b3",
)
