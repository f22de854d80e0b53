"""Resource variables that hold rows from one invoke to the next, and what sets them at the first invoke.

A CALL_ONCE alone would not do: after `Reset()`, TFLM fills variables with their zero points and does not run it again.
So a flag, which is false in a new interpreter and after a reset, decides whether the first values are assigned.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.graph import Graph
from tflm.schema.element_types import TENSOR_TYPES
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.options import AssignVariableOptions, IfOptions, ReadVariableOptions, VarHandleOptions
from tflm.schema.tables import Operator, SubGraph, Tensor

FLAG = np.array([True], np.bool_)


class StreamVariables:
    """The variables of a graph.

    Args:
        graph: the graph that operators are made for.
    """

    def __init__(self, graph: Graph):
        self._graph = graph
        taken = {getattr(op.builtin_options, "shared_name", None) for op in graph.operators}
        self._prefix = next(name for name in ("stream", "stream_rows", *map(str, range(1000))) if name not in taken)
        self._values: list[npt.NDArray[Any]] = []
        self._handles: list[int] = []

    @property
    def bytes(self) -> int:
        """Size of all variables."""
        return sum(values.nbytes for values in self._values)

    def add(self, values: npt.NDArray[Any]) -> int:
        """Add a variable with its first values; returns its number."""
        self._values.append(values)
        self._handles.append(self._graph.add_resource())
        return len(self._values) - 1

    def read(self, variable: int, target: int) -> Operator:
        """An operator that copies a variable to a tensor."""
        handle = self._handles[variable]
        return self._graph.new_operator(BuiltinOperator.READ_VARIABLE, [handle], [target], ReadVariableOptions())

    def assign(self, variable: int, source: int) -> Operator:
        """An operator that copies a tensor to a variable."""
        handle = self._handles[variable]
        return self._graph.new_operator(BuiltinOperator.ASSIGN_VARIABLE, [handle, source], [], AssignVariableOptions())

    def begin(self) -> list[Operator]:
        """The operators before all others: handles, and the first values if the flag is not set."""
        flag = self.add(FLAG)
        graph = self._graph
        handles = [
            graph.new_operator(BuiltinOperator.VAR_HANDLE, [], [handle], self._name(number))
            for number, handle in enumerate(self._handles)
        ]
        is_set = graph.add_constant("", FLAG)
        started = graph.add_tensor(is_set, "started", FLAG.shape)
        nothing = graph.add_subgraph(SubGraph(name="go_on", tensors=[], inputs=(), outputs=(), operators=[]))
        first = graph.add_subgraph(self._first_values())
        options = IfOptions(then_subgraph_index=nothing, else_subgraph_index=first)
        return [*handles, self.read(flag, started), graph.new_operator(BuiltinOperator.IF, [started], [], options)]

    def _name(self, number: int) -> VarHandleOptions:
        return VarHandleOptions(container="", shared_name=f"{self._prefix}/{number}")

    def _first_values(self) -> SubGraph:
        graph = self._graph
        subgraph = SubGraph(name="begin", tensors=[], inputs=(), outputs=(), operators=[])
        assert subgraph.tensors is not None
        assert subgraph.operators is not None
        for number, values in enumerate(self._values):
            subgraph.tensors += [
                Tensor(shape=(), type=TensorType.RESOURCE, name=f"handle_{number}"),
                Tensor(
                    shape=values.shape,
                    type=TENSOR_TYPES[values.dtype],
                    buffer=graph.add_buffer(values.tobytes()),
                    name=f"value_{number}",
                ),
            ]
            handle, value = len(subgraph.tensors) - 2, len(subgraph.tensors) - 1
            subgraph.operators += [
                graph.new_operator(BuiltinOperator.VAR_HANDLE, [], [handle], self._name(number), subgraph),
                graph.new_operator(
                    BuiltinOperator.ASSIGN_VARIABLE, [handle, value], [], AssignVariableOptions(), subgraph
                ),
            ]
        return subgraph
