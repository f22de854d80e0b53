"""Runs any Flex operator with TensorFlow, where it is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np

from tflm.delegates.flex.node_def import FlexNode
from tflm.delegates.flex.registry import Array
from tflm.errors import OperatorError


def is_installed() -> bool:
    """Whether TensorFlow can be imported. Does not import it."""
    return importlib.util.find_spec("tensorflow") is not None


def bound(node: FlexNode, inputs: list[Array], output_count: int) -> Callable[..., tuple[Array, ...]]:
    """A function of arrays that runs a node, made from a graph of the node and a placeholder for each input.

    Raises:
        OperatorError: TensorFlow rejects the node.
    """
    import tensorflow as tf

    graph = tf.compat.v1.GraphDef()
    made = graph.node.add()
    made.MergeFromString(node.serialized)
    made.name, made.device = "node", ""
    del made.input[:]
    for i, value in enumerate(inputs):
        placeholder = graph.node.add(name=f"input{i}", op="Placeholder")
        placeholder.attr["dtype"].type = tf.as_dtype(value.dtype).as_datatype_enum
        placeholder.attr["shape"].shape.CopyFrom(tf.TensorShape(value.shape).as_proto())
        made.input.append(placeholder.name)
    try:
        wrapped = tf.compat.v1.wrap_function(lambda: tf.graph_util.import_graph_def(graph, name=""), [])
        feeds = [wrapped.graph.get_tensor_by_name(f"input{i}:0") for i in range(len(inputs))]
        fetches = wrapped.graph.get_operation_by_name("node").outputs[:output_count]
        function = wrapped.prune(feeds, fetches)
    except Exception as error:  # TensorFlow has many
        raise OperatorError(f"is rejected by TensorFlow: {error}") from None

    def call(*values: Array) -> tuple[Array, ...]:
        try:
            results: Any = function(*map(tf.constant, values))
        except tf.errors.OpError as error:
            raise OperatorError(f"fails in TensorFlow: {error.message}") from None
        return tuple(np.asarray(result, None) for result in results)

    return call
