"""Strategies for models of one operator, from what its registration and its options declare.

Types, options and the shapes of outputs follow from there. The function of a strategy draws what does not: shapes that
fit each other, values in range, and scales.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy.typing as npt
from hypothesis import strategies as st

from tflm.kernels import REGISTRATIONS
from tflm.kernels.shapes import Shapes
from tflm.schema import (
    ActivationFunctionType,
    BuiltinOperator,
    Padding,
    TensorType,
    quantized,
)
from tflm.schema.layout import Scalar, fields_of
from tflm.schema.options import BuiltinOptions, BuiltinOptions2
from tflm.testing.drawing import (
    ACTIVATIONS,
    FLOAT32,
    INT8,
    INT16,
    INT32,
    UINT8,
    Draw,
    OperatorCase,
    Quantization,
    SingleOperator,
    any_values,
    float32,
    zero_points,
)

QUANTIZED_TYPES = (INT8, INT16, UINT8)

DRAWN = object()
"""Stands for options that are drawn."""

NUMPY_TYPES = tuple(
    TensorType[name]
    for name in [
        "FLOAT32",
        "INT8",
        "INT16",
        "INT32",
        "INT64",
        "UINT8",
        "UINT32",
        "UINT64",
        "BOOL",
        "FLOAT16",
        "FLOAT64",
        "COMPLEX64",
    ]
)
"""The types that TFLM's Python package takes from numpy, for operators of any type."""

NAMES_OF_OPTIONS = {
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"), "POOL2D"),
    **dict.fromkeys(("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_ALL"), "REDUCER"),
    "L2_NORMALIZATION": "L2NORM",
    "CAST": "",
}
"""Options whose name is not that of the operator. Those of CAST repeat its types, and TFLM does not read them."""

OPTIONS = {
    table.__name__.removesuffix("Options").upper(): table
    for union in (BuiltinOptions, BuiltinOptions2)
    for table in union.__subclasses__()
}


def options_of(operator: str, draw: Draw | None = None, **given: Any) -> Any:
    """The options of a builtin operator: those given, others drawn, or the schema's defaults; None without fields.

    Flags, paddings and activations are drawn; numbers have ranges that only the operator's strategy knows.
    """
    table = OPTIONS.get(NAMES_OF_OPTIONS.get(operator, operator.replace("_", "")))
    if table is None or not fields_of(table):
        return None
    for field in fields_of(table) if draw is not None else ():
        if field.name not in given and isinstance(field.wire, Scalar):
            kind = bool if field.wire.code == "?" else field.wire.enum
            drawn = OPTION_VALUES.get(field.name, OPTION_VALUES.get(kind))
            if draw is not None and drawn is not None:
                given[field.name] = draw(drawn)
    return table(**given)


OPTION_VALUES: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    Padding: st.sampled_from(Padding),
    ActivationFunctionType: ACTIVATIONS,
    "quantized_bias_type": st.sampled_from([FLOAT32, INT32]),
}
"""Values of an option, by its type or by its name."""

WITHOUT_ACTIVATION: dict[str, Any] = {"fused_activation_function": ActivationFunctionType.NONE}
"""Given for operators that allow no other."""

Kind = TensorType | tuple[TensorType, ...]
"""The type of an operator's main tensor, or the types of several of its tensors."""


class DrawnOperator(SingleOperator):
    """A model of an operator of this package, of one of the types that its registration declares.

    Attributes:
        draw: draws from a strategy.
        name: the operator's name.
        type: the type of its main tensor.
        types: the types that were drawn, of which `type` is the first.
    """

    def __init__(self, draw: Draw, name: str, kinds: Sequence[Kind] = (), invokes: int = 1):
        super().__init__(invokes)
        self.draw, self.name = draw, name
        kind: Kind = draw(st.sampled_from(list(kinds or REGISTRATIONS[name].types or NUMPY_TYPES)))
        self.types = kind if isinstance(kind, tuple) else (kind,)
        self.type = self.types[0]

    def operand(self, shape: Sequence[int], parameters: Quantization = None, type: TensorType | None = None) -> None:
        """An input with any elements, of the main tensor's type by default."""
        self.drawn(self.draw, self.type if type is None else type, tuple(shape), parameters)

    def weights(self, shape: Sequence[int], parameters: Quantization = None) -> None:
        """A constant with any elements of the main tensor's type."""
        self.constant(any_values(self.draw, self.type, shape), parameters)

    def numbers(self, elements: npt.ArrayLike, type: TensorType = INT32) -> None:
        """A constant, or an input with the same elements in each invoke."""
        self.either(self.draw, elements, type)

    def quantized(self, scale: float, zero_point: int = 0) -> Quantization:
        """Quantization, or None with float activations."""
        return None if self.type == FLOAT32 else quantized(float32(scale), zero_point)

    def scaled(self, *choices: st.SearchStrategy[float]) -> list[Quantization]:
        """Quantization with a scale from each strategy and any zero point; None for types without quantization."""
        if self.type not in QUANTIZED_TYPES:
            return [None for _ in choices]
        return [quantized(float32(self.draw(scale)), self.draw(zero_points(self.type))) for scale in choices]

    def result(
        self,
        parameters: Quantization = None,
        *,
        type: TensorType | None = None,
        shapes: Shapes = (),
        options: Any = DRAWN,
        **given: Any,
    ) -> OperatorCase:
        """Return the model, and the inputs of each invoke.

        Args:
            parameters: quantization of the outputs.
            type: that of the outputs; by default the last of those that were drawn.
            shapes: of the outputs; by default those that follow from the operands.
            options: a table, in place of the fields of `given` with others drawn.
            given: fields of the options that are not drawn.
        """
        table = options_of(self.name, self.draw, **given) if options is DRAWN else options
        output = self.types[-1] if type is None else type
        outputs = [(shape, output, parameters) for shape in shapes or self.inferred(self.name, table)]
        return self.case(BuiltinOperator[self.name], outputs, table)


OPERATORS: dict[str, st.SearchStrategy[OperatorCase]] = {}
"""A strategy for each operator."""


Strategy = Callable[[Draw, DrawnOperator], OperatorCase]


def strategy(
    *operators: str, kinds: Sequence[Kind] = (), invokes: int | tuple[int, int] = 1
) -> Callable[[Strategy], Strategy]:
    """Make a function the strategy of operators: it adds operands to a model, and returns its result.

    Args:
        operators: their names.
        kinds: types to draw from; by default those of the registration, or of numpy if it takes any.
        invokes: how often a model runs, or the least and the most times.
    """

    def add(function: Strategy) -> Strategy:
        @st.composite
        def case(draw: Draw, name: str) -> OperatorCase:
            times = invokes if isinstance(invokes, int) else draw(st.integers(*invokes))
            return function(draw, DrawnOperator(draw, name, kinds, times))

        OPERATORS.update({name: case(name) for name in operators})
        return function

    return add
