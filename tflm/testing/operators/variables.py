"""Models with resource variables, which a subgraph may assign in the first invoke."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from tflm.schema import (
    AddOptions,
    BuiltinOperator,
    CallOnceOptions,
    ModelBuilder,
    QuantizationParameters,
    SubgraphBuilder,
    TensorType,
    VarHandleOptions,
    quantized,
)
from tflm.testing.drawing import FLOAT32, INT8, INT32, Draw, OperatorCase, shapes, values
from tflm.testing.operators.declared import OPERATORS

INVOKES = 3


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
        constant = values(draw, variable.type, variable.shape)
        graph.operator(
            BuiltinOperator.ASSIGN_VARIABLE, [handle, graph.constant("first", constant, variable.quantization)], []
        )


OPERATORS |= dict.fromkeys(("ASSIGN_VARIABLE", "READ_VARIABLE", "VAR_HANDLE"), variables())
OPERATORS["CALL_ONCE"] = variables(is_initialized=True)
