"""Broadcasting inputs in C: they are not copied, and the results are the interpreter's."""

from __future__ import annotations

from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from checked_program import CheckedProgram, needs_compiler
from test_c_ram import interpreter_bytes

import tflm
from tflm.c.kernels.broadcasts import nest_of
from tflm.schema import ELEMENT_TYPES, AddOptions, BuiltinOperator, DivOptions, MulOptions, SubOptions, TensorType
from tflm.schema.builder import SubgraphBuilder

BOOL, FLOAT32, INT8, INT16, INT32 = (TensorType[name] for name in ("BOOL", "FLOAT32", "INT8", "INT16", "INT32"))

Shapes = Sequence[tuple[int, ...]]

BOTH: Shapes = ((1, 5, 1, 4), (3, 1, 6, 4))
OUTER: Shapes = ((7, 1), (1, 6))
DEEP: Shapes = ((2, 1, 3, 1), (1, 3, 1, 2))
SCALAR: Shapes = ((4, 9), ())
WIDE: Shapes = ((2, 5, 3), (2, 1, 1))
ROWS: Shapes = ((1, 3, 1), (3, 9))

OPERATORS: list[tuple[str, TensorType, TensorType, Any]] = [
    ("ADD", INT8, INT8, AddOptions()),
    ("ADD", INT16, INT16, AddOptions()),
    ("ADD", FLOAT32, FLOAT32, AddOptions()),
    ("SUB", INT8, INT8, SubOptions()),
    ("SUB", INT32, INT32, SubOptions()),
    ("MUL", INT8, INT8, MulOptions()),
    ("MUL", INT16, INT16, MulOptions()),
    ("MUL", FLOAT32, FLOAT32, MulOptions(fused_activation_function=tflm.schema.ActivationFunctionType.RELU6)),
    ("DIV", INT8, INT8, DivOptions()),
    ("DIV", FLOAT32, FLOAT32, DivOptions()),
    ("MAXIMUM", INT16, INT16, None),
    ("SQUARED_DIFFERENCE", INT8, INT8, None),
    ("LESS", FLOAT32, BOOL, None),
    ("EQUAL", INT32, BOOL, None),
    ("GREATER", INT8, BOOL, None),
    ("LOGICAL_OR", BOOL, BOOL, None),
]


def add_operator(
    graph: SubgraphBuilder,
    name: str,
    type: TensorType,
    output: TensorType,
    options: Any,
    shapes: Shapes,
    constants: Container[int] = (),
) -> None:
    """An operator with inputs or constants of its own; quantized ones have scales of their own."""

    def quantization(scale: float, of: TensorType) -> Any:
        return tflm.quantized(scale, 3 if of == INT8 else 0) if of in (INT8, INT16) else None

    def operand(i: int, shape: tuple[int, ...]) -> int:
        scale = quantization(0.03 * (i + 1), type)
        if i not in constants:
            return graph.input(f"x{i}", shape, type, scale)
        return graph.constant(f"x{i}", drawn(np.random.default_rng(i), type, shape), scale)

    inputs = [operand(i, shape) for i, shape in enumerate(shapes)]
    y = graph.tensor("y", np.broadcast_shapes(*shapes), output, quantization(0.07, output))
    graph.operator(BuiltinOperator[name], inputs, [y], options)
    graph.output(y)


def add_select(graph: SubgraphBuilder, type: TensorType, shapes: Shapes) -> None:
    """SELECT_V2 with inputs of its own."""
    types = [BOOL, type, type]
    inputs = [graph.input(f"x{i}", shape, each) for i, (shape, each) in enumerate(zip(shapes, types))]
    y = graph.tensor("y", np.broadcast_shapes(*shapes), type)
    graph.operator(BuiltinOperator.SELECT_V2, inputs, [y])
    graph.output(y)


def drawn(rng: np.random.Generator, type: TensorType, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Draw elements of any sign, none of them zero except bools."""
    if type == BOOL:
        return rng.integers(0, 2, shape).astype(np.bool_)
    values = rng.integers(1, 120, shape) * rng.choice([-1, 1], shape)
    return np.asarray(values, ELEMENT_TYPES[type].dtype)


CASES = [
    (*operator, shapes)
    for place, operator in enumerate(OPERATORS)
    for shapes in (BOTH, OUTER, DEEP, SCALAR, WIDE)[place % 2 :: 2]
]


@pytest.mark.parametrize(("name", "type", "output", "options", "shapes"), CASES)
def test_what_broadcasts_takes_at_most_what_tflm_takes(
    name: str, type: TensorType, output: TensorType, options: Any, shapes: Shapes
) -> None:
    builder = tflm.ModelBuilder()
    add_operator(builder.subgraph(), name, type, output, options, shapes)
    model = tflm.Model(builder.build())
    assert tflm.compile_model(model).ram_bytes <= interpreter_bytes(model)


@pytest.mark.parametrize("type", [FLOAT32, INT8, INT16])
@pytest.mark.parametrize("shapes", [((4, 1, 1), (1, 5, 1), (4, 5, 3)), ((4, 5, 3), (1, 1, 3), ()), ((), (6,), (5, 1))])
def test_selects_take_at_most_what_tflm_takes(type: TensorType, shapes: Shapes) -> None:
    builder = tflm.ModelBuilder()
    add_select(builder.subgraph(), type, shapes)
    model = tflm.Model(builder.build())
    assert tflm.compile_model(model).ram_bytes <= interpreter_bytes(model)


@needs_compiler
def test_what_broadcasts_gives_the_results_of_the_interpreter(tmp_path: Path) -> None:
    builder = tflm.ModelBuilder()
    graph = builder.subgraph()
    for each in CASES[::2]:
        add_operator(graph, *each)
    for type in (FLOAT32, INT8, INT16):
        add_select(graph, type, ((4, 1, 1), (1, 5, 1), (4, 5, 3)))
        add_select(graph, type, ((), (6,), (5, 1)))
    check_results(tflm.Model(builder.build()), tmp_path)


@needs_compiler
def test_constants_that_are_read_in_rows_are_whole(tmp_path: Path) -> None:
    builder = tflm.ModelBuilder()
    graph = builder.subgraph()
    for place, operator in enumerate(OPERATORS):
        add_operator(graph, *operator, ROWS, constants=(1,))
        add_operator(graph, *operator, DEEP, constants=(place % 2,))
    check_results(tflm.Model(builder.build()), tmp_path)


def check_results(model: tflm.Model, folder: Path) -> None:
    """Compare a program with the interpreter; memory is checked."""
    interpreter = tflm.MicroInterpreter(model, tflm.AllOpsResolver(), bytearray(1 << 18), delegates=())
    interpreter.allocate_tensors()
    rng = np.random.default_rng(5)
    inputs = [interpreter.input(i) for i in range(interpreter.inputs_size())]
    given = [drawn(rng, tensor.type, tensor.data.shape) for tensor in inputs]
    for tensor, values in zip(inputs, given):
        tensor.data[...] = values
    interpreter.invoke()
    (found,) = CheckedProgram(tflm.compile_model(model, optimize="speed"), folder).run([given])
    assert found is not None
    for i, array in enumerate(found):
        np.testing.assert_array_equal(array, interpreter.output(i).data.reshape(array.shape))


def test_rows_are_as_long_as_inputs_allow() -> None:
    """Dimensions along which inputs go on alike are one loop, or one row."""
    x1, x2, y = np.zeros((3, 4, 1, 5, 6)), np.zeros((4, 2, 5, 1)), np.zeros((3, 4, 2, 5, 6))
    nest = nest_of([x1, x2], y)
    assert nest.counts == (3, 4, 2, 5)
    assert [row.size for row in nest.rows] == [6, 1, 6]
    assert nest.steps[2] == (240, 60, 30, 6)
    whole = nest_of([np.zeros((3, 4, 1)), np.zeros((3, 4, 7))], np.zeros((3, 4, 7)))
    assert whole.counts == (12,)
