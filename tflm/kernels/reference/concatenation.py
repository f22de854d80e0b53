"""CONCATENATION, SPLIT and SPLIT_V: parts of a tensor along an axis; PACK and UNPACK: its slices along an axis.

All of them copy between a part and its columns of the whole, seen as a matrix whose rows are indexed by the dimensions
before the axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

import numpy as np

from tflm.errors import OperatorError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.overlap import Move, Moves, OperatorFacts, TensorFacts
from tflm.kernels.registration import Refusal, Registration
from tflm.kernels.requests import PersistentBuffer, Request, TempInput, TempOutput, always
from tflm.kernels.shapes import Shapes, StaticNode, Values, require_axis
from tflm.kernels.support.activation import TFLITE_FUSED_ACTIVATION
from tflm.kernels.support.checks import (
    AnyTensor,
    constant_integers,
    element_count,
    require_alike,
    require_one_type,
    require_rank,
    require_same_type,
    require_type,
    require_zero_point,
    shape_error,
)
from tflm.kernels.support.elementwise import Copy, Copying
from tflm.memory.tensor import TfLiteEvalTensor, TfLiteTensor
from tflm.schema.enums import ActivationFunctionType, BuiltinOperator, TensorType
from tflm.schema.options import ConcatenationOptions, PackOptions, UnpackOptions
from tflm.schema.version_rules import INT16_ACTIVATIONS, by_input, input_is
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
    """The op data is the axis, as for every operator of this module."""
    options = node.options(ConcatenationOptions)
    first = node.input(0)
    output = node.output(0)
    if options.fused_activation_function != ActivationFunctionType.NONE:
        raise OperatorError(f"cannot be fused with {options.fused_activation_function.name}")
    require_one_type(CONCATENATION_TYPES, first, output)
    if len(node.inputs) > MAXIMUM_INPUTS:
        raise OperatorError(f"has {len(node.inputs)} inputs, at most {MAXIMUM_INPUTS} are supported")
    inputs = [node.input(i) for i in range(len(node.inputs))]
    for input in inputs:
        require_same_type(input, first)
        _check_quantization(input, output)
    if output.type == TensorType.INT16:
        require_zero_point(output, 0)
    require_rank(output, MAXIMUM_RANK)
    node.op_data = require_axis(options.axis, len(output.dims), output.name)
    _check_parts(inputs, output, node.op_data)


def _requests_of_concatenation(node: Node) -> Iterator[Request]:
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


def _is_int16(node: Node) -> bool:
    return node.input(0).type == TensorType.INT16


def _is_bool(node: Node) -> bool:
    return node.input(0).type == TensorType.BOOL


def _has_five_dimensions(node: Node) -> bool:
    return any(len(node.input(i).dims) > 4 for i in range(node.input_count))


def _check_quantization(input: TfLiteTensor, output: TfLiteTensor) -> None:
    if input.type == TensorType.INT8 and (input.scale, input.zero_point) != (output.scale, output.zero_point):
        reason = f"has scale {input.scale:g} and zero point {input.zero_point}, the output has {output.scale:g}"
        raise OperatorError(f"{reason} and {output.zero_point}; they must be equal", tensor=input.name)
    if input.type == TensorType.INT16:
        require_zero_point(input, 0)


def _prepare_split(context: KernelContext, node: Node) -> None:
    """TFLM assumes that all outputs have the shape of the first."""
    outputs = _outputs(node)
    for output in outputs:
        require_alike(output, outputs[0])
    _prepare_outputs(node, outputs[:1] * len(outputs), input_index=1, axis_index=0)


def _prepare_split_v(context: KernelContext, node: Node) -> None:
    """TFLM takes the sizes of the parts from the outputs, not from the input with these sizes."""
    node.expect(inputs=3)
    _prepare_outputs(node, _outputs(node), input_index=0, axis_index=2)


def _prepare_outputs(node: Node, parts: Sequence[TfLiteEvalTensor], input_index: int, axis_index: int) -> None:
    """Reject outputs that are not parts of the input. TFLM itself checks only their sizes along the axis."""
    (number,) = constant_integers(node.input(axis_index), 1)
    whole = node.eval_input(input_index)
    require_type(whole, *SPLIT_TYPES)
    axis = node.op_data = require_axis(number, len(whole.dims), whole.name)
    others = math.prod((*whole.dims[:axis], *whole.dims[axis + 1 :]))
    for part in parts:
        require_same_type(part, whole)
        if len(part.dims) <= axis or element_count(part) != part.dims[axis] * others:
            raise _not_a_part(part, whole, axis)
    _check_sizes(parts, whole, axis)


def _check_parts(parts: Sequence[AnyTensor], whole: AnyTensor, axis: int) -> None:
    """Reject parts that do not make up the whole along the axis."""
    for part in parts:
        dims = list(part.dims)
        if len(dims) != len(whole.dims) or [*dims[:axis], whole.dims[axis], *dims[axis + 1 :]] != list(whole.dims):
            raise _not_a_part(part, whole, axis)
    _check_sizes(parts, whole, axis)


def _not_a_part(part: AnyTensor, whole: AnyTensor, axis: int) -> OperatorError:
    reason = f"has shape {list(part.dims)}, which is not a part of {list(whole.dims)} along dimension {axis}"
    return OperatorError(reason, tensor=part.name)


def _check_sizes(parts: Sequence[AnyTensor], whole: AnyTensor, axis: int) -> None:
    together = sum(part.dims[axis] for part in parts)
    if together != whole.dims[axis] or not parts:
        reason = f"has {whole.dims[axis]} elements along dimension {axis}, its parts have {together} in total"
        raise OperatorError(reason, tensor=whole.name)


def _prepare_pack(context: KernelContext, node: Node) -> None:
    options = node.options(PackOptions)
    output = node.eval_output(0)
    require_type(output, *PACK_TYPES)
    node.op_data = require_axis(options.axis, len(output.dims), output.name)
    _check_slices([node.eval_input(i) for i in range(options.values_count)], output, node.op_data)


def _prepare_unpack(context: KernelContext, node: Node) -> None:
    options = node.options(UnpackOptions)
    node.expect(outputs=options.num)
    input = node.eval_input(0)
    require_type(input, *SPLIT_TYPES)
    node.op_data = require_axis(options.axis, len(input.dims), input.name)
    _check_slices(_outputs(node), input, node.op_data)


def _check_slices(slices: Sequence[TfLiteEvalTensor], whole: TfLiteEvalTensor, axis: int) -> None:
    """Reject slices that, stacked along the axis, do not make up the whole."""
    if whole.dims[axis] != len(slices) or not slices:
        reason = f"has {whole.dims[axis]} elements along dimension {axis}, there are {len(slices)} slices"
        raise OperatorError(reason, tensor=whole.name)
    size = element_count(whole) // len(slices)
    for slice in slices:
        require_same_type(slice, whole)
        if element_count(slice) != size:
            raise shape_error(slice, f"; a slice of {list(whole.dims)} has {size} elements")


def _outputs(node: Node) -> list[TfLiteEvalTensor]:
    return [node.eval_output(i) for i in range(len(node.outputs))]


def _columns(whole: TfLiteEvalTensor, parts: Sequence[TfLiteEvalTensor], axis: int) -> list[Copy]:
    """For each part, its columns of the whole and the part itself: matrices of one shape."""
    rows = math.prod(whole.dims[:axis])
    widths = [element_count(part) // max(rows, 1) for part in parts]
    matrix, ends = whole.elements.reshape(rows, sum(widths)), accumulate(widths)
    return [
        (matrix[:, end - width : end], part.elements.reshape(rows, width))
        for part, width, end in zip(parts, widths, ends)
    ]


def _copies_to_whole(node: Node) -> list[Copy]:
    options = node.builtin_options
    count = options.values_count if isinstance(options, PackOptions) else node.input_count
    return _columns(node.eval_output(0), [node.eval_input(i) for i in range(count)], node.op_data)


def _copies_to_parts(input_index: int) -> Callable[[Node], list[Copy]]:
    def copies(node: Node) -> list[Copy]:
        columns = _columns(node.eval_input(input_index), _outputs(node), node.op_data)
        return [(target, source) for source, target in columns]

    return copies


def _moves_to_whole(operator: OperatorFacts) -> list[Move] | None:
    """The inputs' bytes follow each other in the output."""
    options = operator.options
    axis = options.axis if isinstance(options, (ConcatenationOptions, PackOptions)) else 0
    parts = [part for part in operator.inputs if part is not None]
    if (
        not (parts and operator.outputs)
        or len(parts) < len(operator.inputs)
        or not _are_consecutive(parts, operator.outputs[0], axis)
    ):
        return None
    ends = accumulate(part.bytes for part in parts)
    ascending = isinstance(options, PackOptions)  # CONCATENATION copies with memcpy
    return [Move(i, 0, 0, end - part.bytes, part.bytes, ascending) for i, (part, end) in enumerate(zip(parts, ends))]


def _moves_to_parts(input: int, axis_input: int | None = None) -> Moves:
    """The outputs' bytes follow each other in the input."""

    def moves(operator: OperatorFacts) -> list[Move] | None:
        whole = operator.inputs[input] if input < len(operator.inputs) else None
        axis = _axis_of_parts(operator, axis_input)
        if whole is None or axis is None or not _are_consecutive(operator.outputs, whole, axis):
            return None
        ends = accumulate(part.bytes for part in operator.outputs)
        return [
            Move(input, end - part.bytes, i, 0, part.bytes, ascending=True)
            for i, (part, end) in enumerate(zip(operator.outputs, ends))
        ]

    return moves


def _axis_of_parts(operator: OperatorFacts, axis_input: int | None) -> int | None:
    """The axis: an option of UNPACK, otherwise an input. None if it is unknown."""
    if axis_input is None:
        return operator.options.axis if isinstance(operator.options, UnpackOptions) else 0
    axis = operator.inputs[axis_input] if axis_input < len(operator.inputs) else None
    elements = axis.integers() if axis is not None and axis.type == TensorType.INT32 else None
    return None if elements is None or elements.size == 0 else int(elements[0])


def _are_consecutive(parts: Sequence[TensorFacts], whole: TensorFacts, axis: int) -> bool:
    """Whether the parts along the axis are consecutive in memory and make up the whole."""
    rank = len(whole.dims)
    is_outermost = -rank <= axis < rank and math.prod(whole.dims[: axis % rank]) == 1
    return is_outermost and sum(part.bytes for part in parts) == whole.bytes


def _joined_shapes(node: StaticNode) -> Shapes:
    shapes = node.shapes
    axis = require_axis(node.option("axis"), len(shapes[0]))
    others = {(len(shape), *shape[:axis], *shape[axis + 1 :]) for shape in shapes}
    if len(others) > 1:
        raise OperatorError(f"shapes {' and '.join(map(str, map(list, shapes)))} cannot be joined along axis {axis}")
    return [(*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :])]


def _packed_shapes(node: StaticNode) -> Shapes:
    shapes = set(node.shapes)
    if len(shapes) > 1:
        raise OperatorError(f"inputs must have one shape, they have {' and '.join(map(str, map(list, shapes)))}")
    (shape,) = shapes
    axis = require_axis(node.option("axis"), len(shape) + 1)
    return [(*shape[:axis], node.input_count, *shape[axis:])]


def _unpacked_shapes(node: StaticNode) -> Shapes:
    shape = node.shape(0)
    axis = require_axis(node.option("axis"), len(shape))
    if shape[axis] != node.output_count:
        raise OperatorError(f"has {node.output_count} outputs, {list(shape)} would need {shape[axis]}")
    return [(*shape[:axis], *shape[axis + 1 :])] * node.output_count


def _split_shapes(node: StaticNode) -> Shapes:
    shape = node.shape(1)
    axis = require_axis(node.numbers(0)[0], len(shape))
    if shape[axis] % node.output_count:
        raise OperatorError(f"{shape[axis]} can't be split into {node.output_count}")
    return [(*shape[:axis], shape[axis] // node.output_count, *shape[axis + 1 :])] * node.output_count


def _split_v_shapes(node: StaticNode) -> Shapes:
    shape, sizes = node.shape(0), node.numbers(1)
    axis = require_axis(node.numbers(2)[0], len(shape))
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = shape[axis] - sum(size for size in sizes if size != -1)
    if min(sizes) < 0 or sum(sizes) != shape[axis]:
        raise OperatorError(f"{shape[axis]} can't be split into {sizes}")
    return [(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes]


def _all_values(node: StaticNode) -> list[Values]:
    return [node.values(index) for index in range(node.input_count)]


CONCATENATION = Registration(
    BuiltinOperator.CONCATENATION,
    Copying(_copies_to_whole),
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
    moves=_moves_to_whole,
    output_shapes=_joined_shapes,
    output_values=lambda node: np.concatenate(_all_values(node), node.option("axis")),
    versions=by_input(FLOAT8=7, FLOAT16=6, INT4=5, UINT32=4, INT16=3, INT8=2),
)
SPLIT = Registration(
    BuiltinOperator.SPLIT,
    Copying(_copies_to_parts(1)),
    _prepare_split,
    requests=always(TempInput(0)),
    builtin_data=TFLITE_SPLIT_PARAMS,
    max_version=4,
    types=SPLIT_TYPES,
    moves=_moves_to_parts(1, axis_input=0),
    output_shapes=_split_shapes,
    versions=by_input(index=1, FLOAT8=5, INT16=4, INT32=3, INT8=2),
)
SPLIT_V = Registration(
    BuiltinOperator.SPLIT_V,
    Copying(_copies_to_parts(0)),
    _prepare_split_v,
    requests=always(TempInput(2)),
    builtin_data=TFLITE_SPLIT_V_PARAMS,
    max_version=2,
    types=SPLIT_TYPES,
    moves=_moves_to_parts(0, axis_input=2),
    output_shapes=_split_v_shapes,
    versions=by_input(FLOAT8=3, INT8=2),
)
PACK = Registration(
    BuiltinOperator.PACK,
    Copying(_copies_to_whole),
    _prepare_pack,
    builtin_data=TFLITE_PACK_PARAMS,
    max_version=4,
    moves=_moves_to_whole,
    types=PACK_TYPES,
    output_shapes=_packed_shapes,
    output_values=lambda node: np.stack(_all_values(node), node.option("axis")),
    versions={5: input_is("FLOAT8"), 2: input_is("INT8"), 3: INT16_ACTIVATIONS, 4: input_is("UINT32")},
)
UNPACK = Registration(
    BuiltinOperator.UNPACK,
    Copying(_copies_to_parts(0)),
    _prepare_unpack,
    builtin_data=TFLITE_UNPACK_PARAMS,
    max_version=4,
    types=SPLIT_TYPES,
    moves=_moves_to_parts(0),
    output_shapes=_unpacked_shapes,
    versions={
        6: input_is("FLOAT8"),
        2: input_is("INT8", "UINT8"),
        3: input_is("BOOL"),
        4: INT16_ACTIVATIONS,
        5: input_is("FLOAT16", "BFLOAT16"),
    },
)
