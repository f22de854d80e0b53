"""CONCATENATION, SPLIT and SPLIT_V: parts of a tensor that lie side by side along a dimension; PACK and UNPACK: slices.

All of them copy between each part and its columns in the whole, where a tensor is taken as a matrix whose rows count
what comes before the dimension.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tflm.errors import OperatorError
from tflm.kernels.overlap import Move, Moves, OperatorFacts, TensorFacts
from tflm.kernels.registration import Bind, KernelContext, Node, Registration, Run
from tflm.kernels.requests import NodeView, PersistentBuffer, Refusal, Request, TempInput, TempOutput, always
from tflm.kernels.support.activation import TFLITE_FUSED_ACTIVATION
from tflm.kernels.support.checks import (
    AnyTensor,
    constant_integers,
    element_count,
    require_alike,
    require_axis,
    require_same_type,
    require_type,
    require_zero_point,
)
from tflm.kernels.support.views import Copy, bind_copies
from tflm.memory.tensor import TfLiteEvalTensor, TfLiteTensor
from tflm.schema.enums import ActivationFunctionType, BuiltinOperator, TensorType
from tflm.schema.options import ConcatenationOptions, PackOptions, UnpackOptions
from tflm.targets import FLOAT, INT, INT8, INT32, POINTER, UINT16, Array, Struct, When

MAXIMUM_INPUTS = 10
MAXIMUM_RANK = 6
SPLIT_TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT16, TensorType.INT32)
PACK_TYPES = (*SPLIT_TYPES, TensorType.INT64)
CONCATENATION_TYPES = (*PACK_TYPES, TensorType.BOOL)

TFLITE_CONCATENATION_PARAMS = Struct("TfLiteConcatenationParams", axis=INT, activation=TFLITE_FUSED_ACTIVATION)
TFLITE_SPLIT_PARAMS = Struct("TfLiteSplitParams", num_splits=INT)
TFLITE_SPLIT_V_PARAMS = Struct("TfLiteSplitVParams", num_splits=INT)
TFLITE_PACK_PARAMS = Struct("TfLitePackParams", values_count=INT, axis=INT)
TFLITE_UNPACK_PARAMS = Struct("TfLiteUnpackParams", num=INT, axis=INT)
CONCATENATION_PARAMS = Struct(
    "ConcatenationParams",
    axis=INT8,
    input_zeropoint=POINTER,
    input_scale=POINTER,
    inputs_count=UINT16,
    output_zeropoint=INT32,
    output_scale=FLOAT,
)
OP_DATA_CONCATENATION = Struct(
    "concatenation.cc:OpData",
    params=CONCATENATION_PARAMS,
    scratch_indices=When("compression", Array(INT, MAXIMUM_INPUTS)),
)


def _prepare_concatenation(context: KernelContext, node: Node) -> None:
    """The op data is the dimension, as with every operator here."""
    options = node.options(ConcatenationOptions) or ConcatenationOptions()
    first = context.input_tensor(node, 0)
    output = context.output_tensor(node, 0)
    if options.fused_activation_function != ActivationFunctionType.NONE:
        raise OperatorError(f"can't be fused with {options.fused_activation_function.name}")
    require_type(first, *CONCATENATION_TYPES)
    require_same_type(output, first)
    if len(node.inputs) > MAXIMUM_INPUTS:
        raise OperatorError(f"takes {MAXIMUM_INPUTS} inputs at the most, not {len(node.inputs)}")
    inputs = [context.input_tensor(node, i) for i in range(len(node.inputs))]
    for input in inputs:
        require_same_type(input, first)
        _check_quantization(input, output)
    if output.type == TensorType.INT16:
        require_zero_point(output, 0)
    if len(output.dims) > MAXIMUM_RANK:
        raise OperatorError(f"has {len(output.dims)} dimensions, {MAXIMUM_RANK} is the most", tensor=output.name)
    node.op_data = require_axis(options.axis, len(output.dims), output.name)
    _check_parts(inputs, output, node.op_data)


def _requests_of_concatenation(node: NodeView) -> Iterator[Request]:
    yield TempInput(0)
    yield TempOutput(0)
    yield from map(TempInput, range(node.input_count))
    if node.release.holds("50e7e5dbd"):
        return
    yield TempOutput(0)
    if node.output(0).type == TensorType.INT8:
        yield PersistentBuffer("input scales", 4 * node.input_count)
        yield PersistentBuffer("input zero points", 4 * node.input_count)
        yield from map(TempInput, range(node.input_count))


def _is_int16(node: NodeView) -> bool:
    return node.input(0).type == TensorType.INT16


def _is_bool(node: NodeView) -> bool:
    return node.input(0).type == TensorType.BOOL


def _has_five_dimensions(node: NodeView) -> bool:
    return any(len(node.input(i).dims) > 4 for i in range(node.input_count))


def _check_quantization(input: TfLiteTensor, output: TfLiteTensor) -> None:
    if input.type == TensorType.INT8 and (input.scale, input.zero_point) != (output.scale, output.zero_point):
        reason = f"has scale {input.scale:g} and zero point {input.zero_point}, the output has {output.scale:g}"
        raise OperatorError(f"{reason} and {output.zero_point}; they must be equal", tensor=input.name)
    if input.type == TensorType.INT16:
        require_zero_point(input, 0)


def _prepare_split(context: KernelContext, node: Node) -> None:
    """TFLM takes the shape of every output to be that of the first."""
    outputs, input, axis = _prepared_split(context, node, input_index=1, axis_index=0)
    for output in outputs:
        require_alike(output, outputs[0])
    _check_outputs(outputs[:1] * len(outputs), input, axis)


def _prepare_split_v(context: KernelContext, node: Node) -> None:
    """The sizes of the parts are those of the outputs; TFLM does not read the input that gives them."""
    node.expect(inputs=3)
    outputs, input, axis = _prepared_split(context, node, input_index=0, axis_index=2)
    _check_outputs(outputs, input, axis)


def _prepared_split(
    context: KernelContext, node: Node, input_index: int, axis_index: int
) -> tuple[list[TfLiteEvalTensor], TfLiteEvalTensor, int]:
    (axis,) = constant_integers(context.input_tensor(node, axis_index), 1)
    input = context.get_eval_input(node, input_index)
    outputs = [context.get_eval_output(node, i) for i in range(len(node.outputs))]
    require_type(input, *SPLIT_TYPES)
    for output in outputs:
        require_same_type(output, input)
    node.op_data = require_axis(axis, len(input.dims), input.name)
    return outputs, input, node.op_data


def _check_outputs(parts: Sequence[AnyTensor], whole: AnyTensor, axis: int) -> None:
    """Refuse outputs that are no parts of the whole. TFLM looks at their size along `axis` alone."""
    others = math.prod((*whole.dims[:axis], *whole.dims[axis + 1 :]))
    for part in parts:
        if len(part.dims) <= axis or element_count(part) != part.dims[axis] * others:
            raise _no_part(part, whole, axis)
    _check_sizes(parts, whole, axis)


def _check_parts(parts: Sequence[AnyTensor], whole: AnyTensor, axis: int) -> None:
    """Refuse parts that are not, side by side along `axis`, as large as the whole."""
    for part in parts:
        alike = [a == b for i, (a, b) in enumerate(zip(part.dims, whole.dims)) if i != axis]
        if len(part.dims) != len(whole.dims) or not all(alike):
            raise _no_part(part, whole, axis)
    _check_sizes(parts, whole, axis)


def _no_part(part: AnyTensor, whole: AnyTensor, axis: int) -> OperatorError:
    reason = f"has shape {list(part.dims)}, which is no part of {list(whole.dims)} along dimension {axis}"
    return OperatorError(reason, tensor=part.name)


def _check_sizes(parts: Sequence[AnyTensor], whole: AnyTensor, axis: int) -> None:
    together = sum(part.dims[axis] for part in parts)
    if together != whole.dims[axis] or not parts:
        reason = f"has {whole.dims[axis]} elements along dimension {axis}, its parts have {together} together"
        raise OperatorError(reason, tensor=whole.name)


def _prepare_pack(context: KernelContext, node: Node) -> None:
    options = node.options(PackOptions) or PackOptions()
    output = context.get_eval_output(node, 0)
    require_type(output, *PACK_TYPES)
    node.op_data = require_axis(options.axis, len(output.dims), output.name)
    _check_slices(_inputs(context, node, options.values_count), output, node.op_data)


def _prepare_unpack(context: KernelContext, node: Node) -> None:
    options = node.options(UnpackOptions) or UnpackOptions()
    node.expect(outputs=options.num)
    input = context.get_eval_input(node, 0)
    require_type(input, *SPLIT_TYPES)
    node.op_data = require_axis(options.axis, len(input.dims), input.name)
    _check_slices(_outputs(context, node), input, node.op_data)


def _check_slices(slices: Sequence[TfLiteEvalTensor], whole: TfLiteEvalTensor, axis: int) -> None:
    """Refuse slices that are not, stacked along `axis`, as many and as large as the whole."""
    if whole.dims[axis] != len(slices) or not slices:
        reason = f"has {whole.dims[axis]} elements along dimension {axis}, there are {len(slices)} slices"
        raise OperatorError(reason, tensor=whole.name)
    size = element_count(whole) // len(slices)
    for slice in slices:
        require_same_type(slice, whole)
        if element_count(slice) != size:
            reason = f"has shape {list(slice.dims)}; a slice of {list(whole.dims)} has {size} elements"
            raise OperatorError(reason, tensor=slice.name)


def _inputs(context: KernelContext, node: Node, count: int) -> list[TfLiteEvalTensor]:
    return [context.get_eval_input(node, i) for i in range(count)]


def _outputs(context: KernelContext, node: Node) -> list[TfLiteEvalTensor]:
    return [context.get_eval_output(node, i) for i in range(len(node.outputs))]


def _columns(whole: TfLiteEvalTensor, parts: Sequence[TfLiteEvalTensor], axis: int) -> list[Copy]:
    """The columns of the whole that each part lies in, with the part: matrices of one shape."""
    rows = math.prod(whole.dims[:axis])
    widths = [element_count(part) // max(rows, 1) for part in parts]
    matrix = whole.elements.reshape(rows, sum(widths))
    copies: list[Copy] = []
    start = 0
    for part, width in zip(parts, widths):
        copies.append((matrix[:, start : start + width], part.elements.reshape(rows, width)))
        start += width
    return copies


def _bind_concatenation(context: KernelContext, node: Node) -> Run:
    return _bind_joined(context, node, len(node.inputs))


def _bind_pack(context: KernelContext, node: Node) -> Run:
    options = node.options(PackOptions)
    assert options is not None
    return _bind_joined(context, node, options.values_count)


def _bind_joined(context: KernelContext, node: Node, count: int) -> Run:
    return bind_copies(_columns(context.get_eval_output(node, 0), _inputs(context, node, count), node.op_data))


def _bind_parted(input_index: int) -> Bind:
    def bind(context: KernelContext, node: Node) -> Run:
        input = context.get_eval_input(node, input_index)
        return bind_copies(
            [(part, columns) for columns, part in _columns(input, _outputs(context, node), node.op_data)]
        )

    return bind


def _joined_moves(operator: OperatorFacts) -> list[Move] | None:
    """Each input becomes the bytes of the output behind those of the input before it."""
    options = operator.options
    axis = options.axis if isinstance(options, (ConcatenationOptions, PackOptions)) else 0
    if not _is_outermost(operator.outputs[0], axis) or not operator.inputs:
        return None
    moves, start = [], 0
    is_in_order = isinstance(options, PackOptions)  # the other copies with memcpy
    for i, part in enumerate(operator.inputs):
        if part is None:
            return None
        moves.append(Move(i, 0, 0, start, part.bytes, is_in_order))
        start += part.bytes
    return moves if start == operator.outputs[0].bytes else None


def _parted_moves(input: int, axis_input: int | None = None) -> Moves:
    """Each output is the bytes of the input behind those of the output before it."""

    def moves(operator: OperatorFacts) -> list[Move] | None:
        whole = operator.inputs[input] if input < len(operator.inputs) else None
        axis = _axis_of_parts(operator, axis_input)
        if whole is None or axis is None or not _is_outermost(whole, axis):
            return None
        found, start = [], 0
        for i, part in enumerate(operator.outputs):
            found.append(Move(input, start, i, 0, part.bytes, ascending=True))
            start += part.bytes
        return found if start == whole.bytes else None

    return moves


def _axis_of_parts(operator: OperatorFacts, axis_input: int | None) -> int | None:
    """The dimension that is parted: an option of UNPACK, or an input; None where it is not known."""
    if axis_input is None:
        return operator.options.axis if isinstance(operator.options, UnpackOptions) else 0
    axis = operator.inputs[axis_input] if axis_input < len(operator.inputs) else None
    elements = axis.integers() if axis is not None and axis.type == TensorType.INT32 else None
    return None if elements is None or elements.size == 0 else int(elements[0])


def _is_outermost(whole: TensorFacts, axis: int) -> bool:
    """Whether parts along a dimension lie one behind the other in memory."""
    return -len(whole.dims) <= axis < len(whole.dims) and math.prod(whole.dims[: axis % len(whole.dims)]) == 1


CONCATENATION = Registration(
    BuiltinOperator.CONCATENATION,
    _bind_concatenation,
    _prepare_concatenation,
    op_data=OP_DATA_CONCATENATION,
    requests=_requests_of_concatenation,
    refusals=(
        Refusal(_is_int16, "inputs of int16 are not supported", until="c062c1b27"),
        Refusal(_is_bool, "inputs of bool are not supported", until="399b83cbf"),
        Refusal(_has_five_dimensions, "more than 4 dimensions are not supported", until="a2e4fe943"),
    ),
    builtin_data=TFLITE_CONCATENATION_PARAMS,
    max_version=4,
    types=CONCATENATION_TYPES,
    moves=_joined_moves,
)
SPLIT = Registration(
    BuiltinOperator.SPLIT,
    _bind_parted(1),
    _prepare_split,
    requests=always(TempInput(0)),
    builtin_data=TFLITE_SPLIT_PARAMS,
    max_version=4,
    types=SPLIT_TYPES,
    moves=_parted_moves(1, axis_input=0),
)
SPLIT_V = Registration(
    BuiltinOperator.SPLIT_V,
    _bind_parted(0),
    _prepare_split_v,
    requests=always(TempInput(2)),
    builtin_data=TFLITE_SPLIT_V_PARAMS,
    max_version=2,
    types=SPLIT_TYPES,
    moves=_parted_moves(0, axis_input=2),
)
PACK = Registration(
    BuiltinOperator.PACK,
    _bind_pack,
    _prepare_pack,
    builtin_data=TFLITE_PACK_PARAMS,
    max_version=4,
    moves=_joined_moves,
    types=PACK_TYPES,
)
UNPACK = Registration(
    BuiltinOperator.UNPACK,
    _bind_parted(0),
    _prepare_unpack,
    builtin_data=TFLITE_UNPACK_PARAMS,
    max_version=4,
    types=SPLIT_TYPES,
    moves=_parted_moves(0),
)
