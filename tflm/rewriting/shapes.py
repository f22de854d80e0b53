"""A model for inputs of other shapes: the shapes of all tensors worked out anew, operator by operator.

A rule says what shapes an operator's outputs have. Some need the elements of an input, which then has to be a constant,
or to follow from shapes, as where a model asks for the SHAPE of a tensor to RESHAPE another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import ArgumentError, OperatorError
from tflm.kernels.layers.geometry import effective_size, output_size
from tflm.schema.element_types import ELEMENT_TYPES
from tflm.schema.enums import BuiltinOperator, Padding
from tflm.schema.model import Model, require_model
from tflm.schema.offline_plan import METADATA_NAME
from tflm.schema.patch import with_data_inside
from tflm.schema.reader import read_model
from tflm.schema.tables import Model as Root
from tflm.schema.tables import Operator, SubGraph
from tflm.schema.verifier import builtin_code
from tflm.schema.writer import write_model

Shape = tuple[int, ...]
Shapes = Sequence[Sequence[int]]
Values = npt.NDArray[Any]

SUBGRAPH_INDICES = (
    "then_subgraph_index",
    "else_subgraph_index",
    "cond_subgraph_index",
    "body_subgraph_index",
    "init_subgraph_index",
    "comparator_subgraph_index",
    "update_computation_subgraph_index",
    "decomposition_subgraph_index",
)
"""Options that name a subgraph."""


def resize(model: Model, shapes: Mapping[str | int, Sequence[int]]) -> bytes:
    """The bytes of a model whose inputs have other shapes, and all else the shapes that follow.

    A memory plan that the model has is left out, for it is a plan of other sizes.

    Args:
        shapes: by the input's name in the signature or as a tensor, or by its position, counted from 0. Inputs that are
            not mentioned keep theirs.

    Raises:
        ArgumentError: there is no such input; or a shape is none.
        OperatorError: an operator does not allow it; the error says which one, and why.
    """
    main = require_model(model).subgraphs[0]
    inputs = main.inputs or ()
    names = {(main.tensors or [])[tensor].name or "": tensor for tensor in inputs}
    for signature in model.root.signature_defs or ():
        if signature.subgraph_index == 0:
            names |= {entry.name or "": entry.tensor_index for entry in signature.inputs or ()}
    found: dict[int, Sequence[int]] = {}
    for key, shape in shapes.items():
        if isinstance(key, str) and key not in names:
            raise ArgumentError(f"there is no input {key!r}; there are {', '.join(map(repr, names))}")
        if isinstance(key, int) and not 0 <= key < len(inputs):
            raise ArgumentError(f"there is no input {key}; there are {len(inputs)}, counted from 0")
        if not all(isinstance(dimension, (int, np.integer)) and dimension >= 0 for dimension in shape):
            raise ArgumentError(f"a shape is made of numbers from 0 on, not of {list(shape)}")
        found[names[key] if isinstance(key, str) else inputs[key]] = shape
    return resized(model, found)


def resized(model: Model, shapes: Mapping[int, Sequence[int]], subgraph_index: int = 0) -> bytes:
    """The bytes of a model in which tensors, inputs of a subgraph by index, have other shapes.

    Raises:
        OperatorError: an operator does not allow it.
    """
    root = read_model(with_data_inside(model).data)
    root.metadata = [entry for entry in root.metadata or () if entry.name != METADATA_NAME] or None
    assert root.subgraphs is not None
    inference = _Inference(root, root.subgraphs[subgraph_index])
    for tensor, shape in shapes.items():
        inference.set_shape(tensor, tuple(int(dimension) for dimension in shape))
    for index, operator in enumerate(root.subgraphs[subgraph_index].operators or ()):
        try:
            inference.run(operator)
        except OperatorError as error:
            error.locate(subgraph_index, index, model.operator_name(operator))
            raise
    return write_model(root)


def with_main_subgraph(model: Model, subgraph_index: int) -> bytes:
    """The bytes of a model in which a subgraph has changed places with the first one, which is the one that runs."""
    root = read_model(with_data_inside(model).data)
    root.metadata = [entry for entry in root.metadata or () if entry.name != METADATA_NAME] or None
    assert root.subgraphs is not None
    moved = {0: subgraph_index, subgraph_index: 0}
    root.subgraphs[0], root.subgraphs[subgraph_index] = root.subgraphs[subgraph_index], root.subgraphs[0]
    for subgraph in root.subgraphs:
        for operator in subgraph.operators or ():
            for options in (operator.builtin_options, operator.builtin_options_2):
                for name in SUBGRAPH_INDICES:
                    if hasattr(options, name):
                        index = getattr(options, name)
                        setattr(options, name, moved.get(index, index))
    for signature in root.signature_defs or ():
        signature.subgraph_index = moved.get(signature.subgraph_index, signature.subgraph_index)
    return write_model(root)


class _Inference:
    """The shapes of a subgraph's tensors, and the elements of those that are known."""

    def __init__(self, root: Root, subgraph: SubGraph):
        self._root, self._tensors = root, subgraph.tensors or []
        self._changed: set[int] = set()
        self._known: dict[int, Values] = {}

    def set_shape(self, tensor: int, shape: Shape) -> None:
        if (self._tensors[tensor].shape or ()) != shape:
            self._tensors[tensor].shape = shape
            self._changed.add(tensor)

    def run(self, operator: Operator) -> None:
        """Work out the outputs of an operator, where anything that goes in has changed."""
        if not self._changed.intersection(operator.inputs or ()):
            return
        code = builtin_code((self._root.operator_codes or [])[operator.opcode_index])
        rule = RULES.get(code.name)
        if rule is None:
            raise OperatorError("does not allow its inputs to be resized: no rule says what shapes it would give")
        step = _Step(self, operator)
        for tensor, shape in zip(operator.outputs or (), rule(step)):
            self.set_shape(tensor, tuple(int(dimension) for dimension in shape))
        values = VALUES.get(code.name)
        is_known = code is BuiltinOperator.SHAPE or all(step.is_known(i) for i in range(step.input_count))
        if values is not None and is_known and operator.outputs:
            self._known[operator.outputs[0]] = np.asarray(values(step), np.int64)
            self._changed.add(operator.outputs[0])

    def shape(self, tensor: int) -> Shape:
        return self._tensors[tensor].shape or ()

    def values(self, tensor: int) -> Values | None:
        """The elements of a constant, or what is known of another."""
        if tensor in self._known:
            return self._known[tensor]
        table = self._tensors[tensor]
        data = (self._root.buffers or [])[table.buffer].data
        if not data:
            return None
        return np.frombuffer(data, ELEMENT_TYPES[table.type].dtype).reshape(table.shape or ())

    def name(self, tensor: int) -> str:
        return self._tensors[tensor].name or ""


class _Step:
    """An operator as its rule sees it."""

    def __init__(self, inference: _Inference, operator: Operator):
        self._inference, self._operator = inference, operator
        self._inputs = operator.inputs or ()
        self.input_count = len(self._inputs)
        self.output_count = len(operator.outputs or ())

    def has(self, index: int) -> bool:
        return index < self.input_count and self._inputs[index] >= 0

    def shape(self, index: int) -> Shape:
        return self._inference.shape(self._inputs[index])

    def output_shape(self, index: int) -> Shape:
        return self._inference.shape((self._operator.outputs or ())[index])

    def is_known(self, index: int) -> bool:
        return self.has(index) and self._inference.values(self._inputs[index]) is not None

    def values(self, index: int) -> Values:
        found = self._inference.values(self._inputs[index]) if self.has(index) else None
        if found is None:
            name = self._inference.name(self._inputs[index]) if self.has(index) else ""
            raise OperatorError(f"input {index} is not a constant, so that the shapes are not known", tensor=name)
        return found

    def numbers(self, index: int) -> list[int]:
        return [int(value) for value in self.values(index).reshape(-1)]

    def option(self, name: str) -> Any:
        options = self._operator.builtin_options or self._operator.builtin_options_2
        if not hasattr(options, name):
            raise OperatorError(f"has no option {name}, so that the shapes are not known")
        return getattr(options, name)

    def resize_state(self, index: int, shape: Shape) -> None:
        if self.has(index):
            self._inference.set_shape(self._inputs[index], shape)


Rule = Callable[[_Step], Shapes]


def _same(step: _Step) -> Shapes:
    return [step.shape(0)]


def _broadcast(step: _Step) -> Shapes:
    return [_broadcast_shapes([step.shape(index) for index in range(step.input_count)])]


def _broadcast_shapes(shapes: Sequence[Shape]) -> Shape:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise OperatorError(f"shapes {' and '.join(map(str, map(list, shapes)))} do not go together") from None


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise OperatorError(f"axis {axis} is none of {rank} dimensions")
    return axis % rank


def _require_rank(step: _Step, index: int, rank: int) -> Shape:
    shape = step.shape(index)
    if len(shape) != rank:
        raise OperatorError(f"input {index} needs {rank} dimensions, {list(shape)} has {len(shape)}")
    return shape


def _window(size: int, taps: int, stride: int, dilation: int, padding: Padding) -> int:
    found = output_size(padding, size, taps, stride, dilation)
    if found <= 0:
        raise OperatorError(f"{size} rows or columns are too few for a window of {effective_size(taps, dilation)}")
    return found


def _slide(step: _Step, taps: tuple[int, int], channels: int, dilation: tuple[int, int] = (1, 1)) -> Shapes:
    batch, height, width, _ = _require_rank(step, 0, 4)
    padding = step.option("padding")
    rows = _window(height, taps[0], step.option("stride_h"), dilation[0], padding)
    columns = _window(width, taps[1], step.option("stride_w"), dilation[1], padding)
    return [(batch, rows, columns, channels)]


def _convolution(step: _Step) -> Shapes:
    filters, rows, columns, depth = _require_rank(step, 1, 4)
    channels = _require_rank(step, 0, 4)[3]
    if depth == 0 or channels % depth:
        raise OperatorError(f"weights are for {depth} channels, the input has {channels}")
    return _slide(step, (rows, columns), filters, (step.option("dilation_h_factor"), step.option("dilation_w_factor")))


def _depthwise(step: _Step) -> Shapes:
    _, rows, columns, filters = _require_rank(step, 1, 4)
    channels = _require_rank(step, 0, 4)[3]
    if channels == 0 or filters % channels:
        raise OperatorError(f"weights are for {filters} channels, the input has {channels}")
    return _slide(step, (rows, columns), filters, (step.option("dilation_h_factor"), step.option("dilation_w_factor")))


def _pool(step: _Step) -> Shapes:
    taps = step.option("filter_height"), step.option("filter_width")
    return _slide(step, taps, _require_rank(step, 0, 4)[3])


def _fully_connected(step: _Step) -> Shapes:
    shape, (units, depth) = step.shape(0), _require_rank(step, 1, 2)
    if step.option("keep_num_dims"):
        if not shape or shape[-1] != depth:
            raise OperatorError(f"weights take {depth} elements, the input has {list(shape)}")
        return [(*shape[:-1], units)]
    if depth == 0 or math.prod(shape) % depth:
        raise OperatorError(f"weights take {depth} elements, {list(shape)} are no multiple of that")
    return [(math.prod(shape) // depth, units)]


def _reshape(step: _Step) -> Shapes:
    wanted = step.numbers(1) if step.has(1) else list(step.option("new_shape") or ())
    count = math.prod(step.shape(0))
    known = math.prod(dimension for dimension in wanted if dimension != -1)
    if wanted.count(-1) == 1 and known and count % known == 0:
        wanted[wanted.index(-1)] = count // known
    if -1 in wanted or math.prod(wanted) != count:
        raise OperatorError(f"reshapes to {wanted}, which does not have the {count} elements of {list(step.shape(0))}")
    return [wanted]


def _concatenation(step: _Step) -> Shapes:
    shapes = [step.shape(index) for index in range(step.input_count)]
    axis = _axis(step.option("axis"), len(shapes[0]))
    others = {(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}
    if len(others) > 1 or len({len(shape) for shape in shapes}) > 1:
        raise OperatorError(f"shapes {' and '.join(map(str, map(list, shapes)))} do not go together along {axis}")
    return [(*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :])]


def _pack(step: _Step) -> Shapes:
    shapes = {step.shape(index) for index in range(step.input_count)}
    if len(shapes) > 1:
        raise OperatorError(f"inputs need one shape, they have {' and '.join(map(str, map(list, shapes)))}")
    (shape,) = shapes
    axis = _axis(step.option("axis"), len(shape) + 1)
    return [(*shape[:axis], step.input_count, *shape[axis:])]


def _unpack(step: _Step) -> Shapes:
    shape = step.shape(0)
    axis = _axis(step.option("axis"), len(shape))
    if shape[axis] != step.output_count:
        raise OperatorError(f"has {step.output_count} outputs, {list(shape)} would need {shape[axis]}")
    return [(*shape[:axis], *shape[axis + 1 :])] * step.output_count


def _split(step: _Step) -> Shapes:
    shape = step.shape(1)
    axis = _axis(step.numbers(0)[0], len(shape))
    if shape[axis] % step.output_count:
        raise OperatorError(f"{shape[axis]} can't be split into {step.output_count}")
    return [(*shape[:axis], shape[axis] // step.output_count, *shape[axis + 1 :])] * step.output_count


def _split_v(step: _Step) -> Shapes:
    shape, sizes = step.shape(0), step.numbers(1)
    axis = _axis(step.numbers(2)[0], len(shape))
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = shape[axis] - sum(size for size in sizes if size != -1)
    if min(sizes) < 0 or sum(sizes) != shape[axis]:
        raise OperatorError(f"{shape[axis]} can't be split into {sizes}")
    return [(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes]


def _slice(step: _Step) -> Shapes:
    shape, begins, sizes = step.shape(0), step.numbers(1), step.numbers(2)
    if not len(shape) == len(begins) == len(sizes):
        raise OperatorError(f"takes {len(sizes)} dimensions, the input has {len(shape)}")
    found = [size if size != -1 else whole - begin for whole, begin, size in zip(shape, begins, sizes)]
    if any(begin + size > whole or size < 0 for whole, begin, size in zip(shape, begins, found)):
        raise OperatorError(f"what it takes, {found} from {begins} on, is not in {list(shape)}")
    return [found]


def _slices(step: _Step) -> list[slice | int]:
    shape, begins, ends, strides = step.shape(0), step.numbers(1), step.numbers(2), step.numbers(3)
    if step.option("ellipsis_mask") or step.option("new_axis_mask") or step.option("offset"):
        raise OperatorError("does not allow its inputs to be resized with an ellipsis, new dimensions or offsets")
    if len(begins) > len(shape):
        raise OperatorError(f"takes {len(begins)} dimensions, the input has {len(shape)}")
    found: list[slice | int] = []
    for i, (begin, end, stride) in enumerate(zip(begins, ends, strides)):
        if step.option("shrink_axis_mask") >> i & 1:
            if not -shape[i] <= begin < shape[i]:
                raise OperatorError(f"element {begin} is none of {shape[i]}")
            found.append(begin)
        else:
            first = None if step.option("begin_mask") >> i & 1 else begin
            found.append(slice(first, None if step.option("end_mask") >> i & 1 else end, stride))
    return found


def _strided_slice(step: _Step) -> Shapes:
    return [np.empty(step.shape(0), np.bool_)[tuple(_slices(step))].shape]


def _pad(step: _Step) -> Shapes:
    paddings = step.values(1).reshape(-1, 2)
    return [[size + int(before) + int(after) for size, (before, after) in zip(step.shape(0), paddings)]]


def _transpose(step: _Step) -> Shapes:
    return [[step.shape(0)[axis] for axis in step.numbers(1)]]


def _reduction(step: _Step) -> Shapes:
    shape = step.shape(0)
    axes = {_axis(axis, len(shape)) for axis in step.numbers(1)}
    if step.option("keep_dims"):
        return [[1 if axis in axes else size for axis, size in enumerate(shape)]]
    return [[size for axis, size in enumerate(shape) if axis not in axes]]


def _arg(step: _Step) -> Shapes:
    shape = step.shape(0)
    axis = _axis(step.numbers(1)[0], len(shape))
    return [(*shape[:axis], *shape[axis + 1 :])]


def _squeeze(step: _Step) -> Shapes:
    shape = step.shape(0)
    axes = {_axis(axis, len(shape)) for axis in step.option("squeeze_dims") or ()}
    axes = axes or {axis for axis, size in enumerate(shape) if size == 1}
    if any(shape[axis] != 1 for axis in axes):
        raise OperatorError(f"can leave out dimensions of 1 only, {list(shape)} has others at {sorted(axes)}")
    return [[size for axis, size in enumerate(shape) if axis not in axes]]


def _expand_dims(step: _Step) -> Shapes:
    shape = step.shape(0)
    axis = _axis(step.numbers(1)[0], len(shape) + 1)
    return [(*shape[:axis], 1, *shape[axis:])]


def _gather(step: _Step) -> Shapes:
    shape, indices = step.shape(0), step.shape(1)
    axis, batches = _axis(step.option("axis"), len(shape)), step.option("batch_dims")
    return [(*shape[:axis], *indices[batches:], *shape[axis + 1 :])]


def _resize_image(step: _Step) -> Shapes:
    batch, _, _, channels = _require_rank(step, 0, 4)
    return [(batch, *step.numbers(1), channels)]


def _space_to_depth(step: _Step) -> Shapes:
    batch, height, width, channels = _require_rank(step, 0, 4)
    block = step.option("block_size")
    if height % block or width % block:
        raise OperatorError(f"{height} x {width} is no multiple of blocks of {block}")
    return [(batch, height // block, width // block, channels * block * block)]


def _depth_to_space(step: _Step) -> Shapes:
    batch, height, width, channels = _require_rank(step, 0, 4)
    block = step.option("block_size")
    return [(batch, height * block, width * block, channels // (block * block))]


def _batch_matmul(step: _Step) -> Shapes:
    first, second = step.shape(0), step.shape(1)
    rows, inner = first[-2:][::-1] if step.option("adj_x") else first[-2:]
    depth, columns = second[-2:][::-1] if step.option("adj_y") else second[-2:]
    if inner != depth:
        raise OperatorError(f"{list(first)} and {list(second)} can't be multiplied")
    return [(*_broadcast_shapes([first[:-2], second[:-2]]), rows, columns)]


def _svdf(step: _Step) -> Shapes:
    batch, _ = _require_rank(step, 0, 2)
    filters, _ = _require_rank(step, 1, 2)
    step.resize_state(4, (batch, *step.shape(4)[1:]))
    return [(batch, filters // step.option("rank"))]


def _by_values(step: _Step) -> Shapes:
    return [step.numbers(1)]


def _tile(step: _Step) -> Shapes:
    return [[size * times for size, times in zip(step.shape(0), step.numbers(1))]]


SAME_SHAPE = (
    *("ABS", "CAST", "CEIL", "COS", "CUMSUM", "DEQUANTIZE", "ELU", "EXP", "FLOOR", "GELU", "HARD_SWISH", "LEAKY_RELU"),
    *("L2_NORMALIZATION", "LOG", "LOGICAL_NOT", "LOGISTIC", "LOG_SOFTMAX", "NEG", "QUANTIZE", "RELU", "RELU6"),
    *("RELU_N1_TO_1", "REVERSE_V2", "ROUND", "RSQRT", "SIN", "SOFTMAX", "SQRT", "SQUARE", "TANH", "ZEROS_LIKE"),
)
BROADCASTING = (
    *("ADD", "ADD_N", "DIV", "EQUAL", "FLOOR_DIV", "FLOOR_MOD", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"),
    *("LOGICAL_AND", "LOGICAL_OR", "MAXIMUM", "MINIMUM", "MUL", "NOT_EQUAL", "POW", "PRELU", "SELECT_V2"),
    *("SQUARED_DIFFERENCE", "SUB"),
)
REDUCTIONS = ("MEAN", "REDUCE_ALL", "REDUCE_ANY", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "SUM")

RULES: dict[str, Rule] = {
    **dict.fromkeys(SAME_SHAPE, _same),
    **dict.fromkeys(BROADCASTING, _broadcast),
    **dict.fromkeys(REDUCTIONS, _reduction),
    **dict.fromkeys(("ARG_MAX", "ARG_MIN"), _arg),
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"), _pool),
    **dict.fromkeys(("PAD", "PADV2"), _pad),
    **dict.fromkeys(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"), _resize_image),
    "BATCH_MATMUL": _batch_matmul,
    "BROADCAST_TO": _by_values,
    "CONCATENATION": _concatenation,
    "CONV_2D": _convolution,
    "DEPTHWISE_CONV_2D": _depthwise,
    "DEPTH_TO_SPACE": _depth_to_space,
    "EXPAND_DIMS": _expand_dims,
    "FILL": lambda step: [step.numbers(0)],
    "FULLY_CONNECTED": _fully_connected,
    "GATHER": _gather,
    "PACK": _pack,
    "RESHAPE": _reshape,
    "SHAPE": lambda step: [(len(step.shape(0)),)],
    "SLICE": _slice,
    "SPACE_TO_DEPTH": _space_to_depth,
    "SPLIT": _split,
    "SPLIT_V": _split_v,
    "SQUEEZE": _squeeze,
    "STRIDED_SLICE": _strided_slice,
    "SVDF": _svdf,
    "TILE": _tile,
    "TRANSPOSE": _transpose,
    "TRANSPOSE_CONV": lambda step: [step.numbers(0)],
    "UNPACK": _unpack,
}
"""What shapes an operator's outputs have. Those that are not here can't be resized."""

VALUES: dict[str, Callable[[_Step], Any]] = {
    "ADD": lambda step: step.values(0) + step.values(1),
    "CAST": lambda step: step.values(0),
    "CONCATENATION": lambda step: np.concatenate(
        [step.values(index) for index in range(step.input_count)], step.option("axis")
    ),
    "GATHER": lambda step: np.take(step.values(0), step.values(1), step.option("axis")),
    "MUL": lambda step: step.values(0) * step.values(1),
    "PACK": lambda step: np.stack([step.values(index) for index in range(step.input_count)], step.option("axis")),
    "REDUCE_PROD": lambda step: np.prod(
        step.values(0), tuple(step.numbers(1)), keepdims=step.option("keep_dims"), dtype=np.int64
    ),
    "RESHAPE": lambda step: step.values(0).reshape(step.output_shape(0)),
    "SHAPE": lambda step: np.array(step.shape(0), np.int64),
    "SQUEEZE": lambda step: step.values(0).reshape(step.output_shape(0)),
    "STRIDED_SLICE": lambda step: step.values(0)[tuple(_slices(step))],
    "SUB": lambda step: step.values(0) - step.values(1),
}
"""What elements an output has where all that goes in is known."""
