"""Resizes a model's inputs and recomputes the shapes of all tensors, operator by operator.

The registration of an operator has the rule for its output shapes. Some rules need the elements of an input, which must
then be constant or follow from shapes, for example from a SHAPE operator that feeds a RESHAPE.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tflm.errors import ArgumentError, OperatorError
from tflm.kernels import REGISTRATIONS
from tflm.kernels.shapes import (
    OutputShapes,
    OutputValues,
    Shapes,
    StaticNode,
    Values,
    broadcast,
    reduced,
    same_as_input,
)
from tflm.schema.enums import ELEMENT_TYPES
from tflm.schema.model import Model, require_model
from tflm.schema.patch import with_data_inside
from tflm.schema.reader import read_model
from tflm.schema.tables import Model as Root
from tflm.schema.tables import Operator, SubGraph, builtin_code, drop_plan
from tflm.schema.version_rules import signature_of
from tflm.schema.writer import write_model

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
    """The bytes of a model with other input shapes, and the tensor shapes that follow from them.

    Drops the model's memory plan, which would not match the new sizes.

    Args:
        shapes: by the input's name in the signature, its tensor name, or its index from 0. Other inputs keep their
            shapes.

    Raises:
        ArgumentError: unknown input, or invalid shape.
        OperatorError: an operator does not support the new shape; names the operator and the reason.
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
            raise ArgumentError(f"unknown input {key!r} (available: {', '.join(map(repr, names))})")
        if isinstance(key, int) and not 0 <= key < len(inputs):
            raise ArgumentError(f"unknown input {key} (the model has {len(inputs)}, counted from 0)")
        if not all(isinstance(dimension, (int, np.integer)) and dimension >= 0 for dimension in shape):
            raise ArgumentError(f"invalid shape {list(shape)} (expected numbers from 0)")
        found[names[key] if isinstance(key, str) else inputs[key]] = shape
    return resized(model, found)


def resized(model: Model, shapes: Mapping[int, Sequence[int]], subgraph_index: int = 0) -> bytes:
    """The bytes of a model in which tensors, inputs of a subgraph by index, have other shapes.

    Raises:
        OperatorError: an operator does not allow it.
    """
    root = read_model(with_data_inside(model).data)
    drop_plan(root)
    assert root.subgraphs is not None
    inference = _Inference(root, root.subgraphs[subgraph_index])
    for tensor, shape in shapes.items():
        inference.set_shape(tensor, shape)
    for index, operator in enumerate(root.subgraphs[subgraph_index].operators or ()):
        try:
            inference.run(operator)
        except OperatorError as error:
            error.locate(subgraph_index, index, model.operator_name(operator))
            raise
    return write_model(root)


def with_main_subgraph(model: Model, subgraph_index: int) -> bytes:
    """The bytes of a model in which a subgraph is swapped with the first one, which is the one that runs."""
    root = read_model(with_data_inside(model).data)
    drop_plan(root)
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
        self._root, self._subgraph, self._tensors = root, subgraph, subgraph.tensors or []
        self._changed: set[int] = set()
        self._known: dict[int, Values] = {}

    def set_shape(self, tensor: int, shape: Sequence[int]) -> None:
        shape = tuple(int(dimension) for dimension in shape)
        if (self._tensors[tensor].shape or ()) != shape:
            self._tensors[tensor].shape = shape
            self._changed.add(tensor)

    def run(self, operator: Operator) -> None:
        """Infer the outputs of an operator if any of its inputs changed."""
        inputs, outputs = operator.inputs or (), operator.outputs or ()
        if not self._changed.intersection(inputs):
            return
        code = (self._root.operator_codes or [])[operator.opcode_index]
        name = builtin_code(code).name
        registration = REGISTRATIONS.get(name)
        rule = registration.shape_rule if registration else WITHOUT_KERNEL.get(name)
        if rule is None:
            raise OperatorError("does not allow its inputs to be resized: the shapes of its outputs are unknown")
        signature = signature_of(builtin_code(code), operator, self._subgraph)
        node = StaticNode(
            signature.operator,
            signature.inputs,
            signature.outputs,
            signature.options,
            lambda index: self._values(inputs[index]),
        )
        for tensor, shape in zip(outputs, rule(node)):
            self.set_shape(tensor, shape)
        for index, shape in node.state_shapes.items():
            self.set_shape(inputs[index], shape)
        output_values = registration.output_values if registration else VALUES_WITHOUT_KERNEL.get(name)
        if output_values is not None and outputs and (name == "SHAPE" or self._all_known(inputs)):
            self._known[outputs[0]] = np.asarray(output_values(node), np.int64)
            self._changed.add(outputs[0])

    def _all_known(self, tensors: Sequence[int]) -> bool:
        return all(tensor >= 0 and self._values(tensor) is not None for tensor in tensors)

    def _values(self, tensor: int) -> Values | None:
        """The elements of a constant, or the known elements of another tensor."""
        if tensor in self._known:
            return self._known[tensor]
        table = self._tensors[tensor]
        data = (self._root.buffers or [])[table.buffer].data
        if not data:
            return None
        return np.frombuffer(data, ELEMENT_TYPES[table.type].dtype).reshape(table.shape or ())


def _tiled(node: StaticNode) -> Shapes:
    return [[size * times for size, times in zip(node.shape(0), node.numbers(1))]]


def _product(node: StaticNode) -> Values:
    axes = tuple(node.numbers(1))
    return np.asarray(np.prod(node.values(0), axes, keepdims=node.option("keep_dims"), dtype=np.int64), None)


WITHOUT_KERNEL: dict[str, OutputShapes] = {
    "GELU": same_as_input,
    "POW": broadcast,
    "REDUCE_ANY": reduced,
    "REDUCE_PROD": reduced,
    "RELU_N1_TO_1": same_as_input,
    "TILE": _tiled,
}
"""Shape rules of TensorFlow Lite operators that TFLM has no kernel for."""

VALUES_WITHOUT_KERNEL: dict[str, OutputValues] = {"REDUCE_PROD": _product}
