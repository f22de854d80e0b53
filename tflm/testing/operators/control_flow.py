"""Models whose operators run other subgraphs, sometimes nested, or keep resource variables."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from tflm.schema import (
    AddOptions,
    BuiltinOperator,
    CallOnceOptions,
    IfOptions,
    LessOptions,
    ModelBuilder,
    QuantizationParameters,
    SubgraphBuilder,
    TensorType,
    VarHandleOptions,
    WhileOptions,
    quantized,
)
from tflm.testing.drawing import FLOAT32, INT8, INT32, Draw, OperatorCase, shapes, values
from tflm.testing.operators.declared import OPERATORS

INVOKES = 3
COUNTER = ((1,), INT32)

Kind = tuple[tuple[int, ...], TensorType]
"""Shape and type of a tensor."""


class Flow:
    """A model under construction, and how deep its subgraphs may still go.

    Every subgraph takes and returns tensors of the same kinds, of which the first is a counter.
    """

    def __init__(self, draw: Draw, kinds: list[Kind]):
        self.draw, self.kinds = draw, kinds
        self.builder = ModelBuilder()

    def tensors(self, graph: SubgraphBuilder, name: str) -> list[int]:
        """A tensor of each kind."""
        return [graph.tensor(f"{name}{i}", *kind, scale_of(kind[1])) for i, kind in enumerate(self.kinds)]

    def inputs(self, graph: SubgraphBuilder) -> list[int]:
        """An input of each kind."""
        return [graph.input(f"x{i}", *kind, scale_of(kind[1])) for i, kind in enumerate(self.kinds)]

    def fresh(self, graph: SubgraphBuilder, name: str) -> str:
        """A name that no other tensor of a subgraph has."""
        return f"{name}{len(graph.table.tensors or ())}"

    def sum(self, graph: SubgraphBuilder, kind: Kind, a: int, b: int) -> int:
        """A tensor that an ADD makes."""
        total = graph.tensor(self.fresh(graph, "sum"), *kind, scale_of(kind[1]))
        graph.operator(BuiltinOperator.ADD, [a, b], [total], AddOptions())
        return total

    def less(self, graph: SubgraphBuilder, counter: int, limit: int) -> int:
        """Whether the counter is below a limit."""
        condition = graph.tensor(self.fresh(graph, "less"), (1,), TensorType.BOOL)
        constant = graph.constant(self.fresh(graph, "limit"), np.array([limit], np.int32))
        graph.operator(BuiltinOperator.LESS, [counter, constant], [condition], LessOptions())
        return condition

    def step(self, graph: SubgraphBuilder, tensors: list[int], depth: int) -> list[int]:
        """New tensors from those, by one operator or another."""
        kind = self.draw(st.sampled_from(["pass", "swap", "add", "constant", "if", "while"][: 6 if depth else 4]))
        if kind == "if":
            return self.branch(graph, tensors, self.less(graph, tensors[0], self.draw(st.integers(-1, 4))), depth - 1)
        if kind == "while":
            return self.loop(graph, tensors, depth - 1)
        if kind == "add":
            return [self.sum(graph, *pair) for pair in zip(self.kinds, tensors, tensors)]
        if kind == "swap":
            rest = range(1, len(tensors))  # the counter stays small, because it does not change
            order = sorted(rest, key=lambda i: (self.kinds[i], -i))
            places = sorted(rest, key=lambda i: (self.kinds[i], i))
            return [tensors[0], *(tensors[order[places.index(i)]] for i in rest)]
        if kind == "constant":
            if len(tensors) == 1:
                return tensors
            last = self.kinds[-1]
            constant = values(self.draw, last[1], last[0])
            return [*tensors[:-1], graph.constant(self.fresh(graph, "c"), constant, scale_of(last[1]))]
        return tensors

    def branch(self, graph: SubgraphBuilder, tensors: list[int], condition: int, depth: int) -> list[int]:
        """An IF on the condition."""
        results = self.tensors(graph, self.fresh(graph, "if") + "_")
        branches = [self.subgraph(depth) for _ in range(2)]
        graph.operator(
            BuiltinOperator.IF,
            [condition, *tensors],
            results,
            IfOptions(then_subgraph_index=branches[0], else_subgraph_index=branches[1]),
        )
        return results

    def loop(self, graph: SubgraphBuilder, tensors: list[int], depth: int) -> list[int]:
        """A WHILE whose body counts up, to a limit."""
        condition, index = self.added()
        self.inputs(condition)
        condition.output(self.less(condition, 0, self.draw(st.integers(-1, 4))))
        body = self.subgraph(depth, counts=True)
        results = self.tensors(graph, self.fresh(graph, "while") + "_")
        graph.operator(
            BuiltinOperator.WHILE, tensors, results, WhileOptions(cond_subgraph_index=index, body_subgraph_index=body)
        )
        return results

    def subgraph(self, depth: int, counts: bool = False) -> int:
        """Add a subgraph of a few steps; returns its index."""
        graph, index = self.added()
        tensors = self.inputs(graph)
        counter = tensors[0]
        for _ in range(self.draw(st.integers(0, 2))):
            tensors = self.step(graph, tensors, depth)
        if counts:
            one = graph.constant("one", np.array([1], np.int32))
            tensors = [self.sum(graph, COUNTER, counter, one), *tensors[1:]]
        graph.output(*tensors)
        return index

    def added(self) -> tuple[SubgraphBuilder, int]:
        """A new subgraph and its index."""
        graph = self.builder.subgraph(f"subgraph{len(self.builder.model.subgraphs or ())}")
        return graph, len(self.builder.model.subgraphs or ()) - 1


def scale_of(type: TensorType) -> QuantizationParameters | None:
    """Quantization that an ADD can take."""
    return quantized(0.5, 3) if type == INT8 else None


@st.composite
def flow(draw: Draw, operator: BuiltinOperator) -> OperatorCase:
    """An IF or a WHILE in the first subgraph, between other operators."""
    drawn = draw(st.lists(st.tuples(shapes(1, 3, 4), st.sampled_from([FLOAT32, INT8, INT32])), max_size=3))
    kinds = [COUNTER, *drawn]
    flow = Flow(draw, kinds)
    main, _ = flow.added()
    condition = main.input("condition", draw(st.sampled_from([(1,), (), (1, 1)])), TensorType.BOOL)
    tensors = flow.inputs(main)
    if draw(st.booleans()):
        tensors = flow.step(main, tensors, 0)
    if operator == BuiltinOperator.IF:
        tensors = flow.branch(main, tensors, condition, 1)
    else:
        tensors = flow.loop(main, tensors, 1)
    for _ in range(draw(st.integers(0, 2))):
        tensors = flow.step(main, tensors, 1)
    main.output(*reversed(tensors))
    dims = (main.table.tensors or [])[condition].shape or ()
    invocations = [
        [np.full(dims, draw(st.booleans()), np.bool_), np.array([draw(st.integers(-2, 4))], np.int32)]
        + [values(draw, type, shape) for shape, type in drawn]
        for _ in range(INVOKES)
    ]
    return flow.builder.build(), invocations


for operator in (BuiltinOperator.IF, BuiltinOperator.WHILE):
    OPERATORS[operator.name] = flow(operator)


class Variable(NamedTuple):
    """A variable: its name, and the shape, type and quantization of its values."""

    name: str
    shape: tuple[int, ...]
    type: TensorType
    quantization: QuantizationParameters | None

    def handle(self, graph: SubgraphBuilder) -> int:
        """A handle of the variable, in a subgraph."""
        handle = graph.tensor(f"{self.name} handle", (1,), TensorType.RESOURCE)
        graph.operator(BuiltinOperator.VAR_HANDLE, [], [handle], VarHandleOptions(shared_name=self.name))
        return handle

    def tensor(self, graph: SubgraphBuilder, name: str) -> int:
        """A tensor for a value."""
        return graph.tensor(f"{self.name} {name}", self.shape, self.type, self.quantization)

    def read(self, graph: SubgraphBuilder, handle: int, name: str) -> int:
        """The variable's value."""
        value = self.tensor(graph, name)
        graph.operator(BuiltinOperator.READ_VARIABLE, [handle], [value])
        return value


@st.composite
def variables(draw: Draw, is_initialized: bool = False) -> OperatorCase:
    """One to three variables, each read, assigned its sum with an input or the input, and perhaps read again."""
    builder = ModelBuilder()
    main = builder.subgraph()
    drawn = [_variable(draw, f"v{i}") for i in range(draw(st.integers(1, 3)))]
    if is_initialized or draw(st.booleans()):
        main.operator(BuiltinOperator.CALL_ONCE, [], [], CallOnceOptions(init_subgraph_index=1))
        _assign_first(draw, builder.subgraph("first"), drawn)
    for variable in drawn:
        x = main.input(f"{variable.name} x", *variable[1:])
        handle = variable.handle(main)
        before = variable.read(main, handle, "before")
        assigned = x
        if draw(st.booleans()):
            assigned = variable.tensor(main, "sum")
            main.operator(BuiltinOperator.ADD, [before, x], [assigned], AddOptions())
        main.operator(BuiltinOperator.ASSIGN_VARIABLE, [handle, assigned], [])
        again = variable.handle(main) if draw(st.booleans()) else handle
        main.output(before, *([variable.read(main, again, "after")] if draw(st.booleans()) else []))
    invocations = [[values(draw, variable.type, variable.shape) for variable in drawn] for _ in range(INVOKES)]
    return builder.build(), invocations


def _variable(draw: Draw, name: str) -> Variable:
    type = draw(st.sampled_from([FLOAT32, INT8, INT32]))
    return Variable(name, draw(shapes(1, 3, 5)), type, quantized(0.5, 3) if type == INT8 else None)


def _assign_first(draw: Draw, graph: SubgraphBuilder, drawn: list[Variable]) -> None:
    """Assign constants to the variables, or to some of them."""
    for variable in drawn[: draw(st.integers(1, len(drawn)))]:
        handle = variable.handle(graph)
        first = graph.constant("first", values(draw, variable.type, variable.shape), variable.quantization)
        graph.operator(BuiltinOperator.ASSIGN_VARIABLE, [handle, first], [])


OPERATORS |= dict.fromkeys(("ASSIGN_VARIABLE", "READ_VARIABLE", "VAR_HANDLE"), variables())
OPERATORS["CALL_ONCE"] = variables(is_initialized=True)
