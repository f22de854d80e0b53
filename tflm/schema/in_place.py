"""Operators whose output may lie in the place of an input, as a memory plan may have it."""

from __future__ import annotations

from tflm.schema.enums import BuiltinOperator
from tflm.schema.tables import Operator

COPYING = frozenset({BuiltinOperator.EXPAND_DIMS, BuiltinOperator.RESHAPE, BuiltinOperator.SQUEEZE})
"""Operators that give the bytes of their first input as they are: it may even be read afterwards."""

ELEMENT_WISE = frozenset(
    {
        BuiltinOperator.ABS,
        BuiltinOperator.ADD,
        BuiltinOperator.ADD_N,
        BuiltinOperator.CAST,
        BuiltinOperator.CEIL,
        BuiltinOperator.COS,
        BuiltinOperator.DIV,
        BuiltinOperator.ELU,
        BuiltinOperator.EXP,
        BuiltinOperator.FLOOR,
        BuiltinOperator.FLOOR_DIV,
        BuiltinOperator.FLOOR_MOD,
        BuiltinOperator.HARD_SWISH,
        BuiltinOperator.LEAKY_RELU,
        BuiltinOperator.LOG,
        BuiltinOperator.LOGICAL_AND,
        BuiltinOperator.LOGICAL_NOT,
        BuiltinOperator.LOGICAL_OR,
        BuiltinOperator.LOGISTIC,
        BuiltinOperator.MAXIMUM,
        BuiltinOperator.MINIMUM,
        BuiltinOperator.MUL,
        BuiltinOperator.NEG,
        BuiltinOperator.PRELU,
        BuiltinOperator.QUANTIZE,
        BuiltinOperator.RELU,
        BuiltinOperator.RELU6,
        BuiltinOperator.ROUND,
        BuiltinOperator.RSQRT,
        BuiltinOperator.SIN,
        BuiltinOperator.SQRT,
        BuiltinOperator.SQUARE,
        BuiltinOperator.SQUARED_DIFFERENCE,
        BuiltinOperator.SUB,
        BuiltinOperator.TANH,
    }
)
"""Operators that write an element after they have read, of an input as large as the output, all that they need of it
and of those before it."""


def replaceable_inputs(code: BuiltinOperator, operator: Operator) -> tuple[int, ...]:
    """The inputs in whose place the output may lie, if it has their size, as far as the kind of operator decides it.

    That of one in `COPYING` may do so always, that of another one where the input is not read afterwards.
    """
    inputs, outputs = operator.inputs or (), operator.outputs or ()
    if len(outputs) != 1 or not (code in COPYING or code in ELEMENT_WISE):
        return ()
    return tuple(tensor for tensor in (inputs[:1] if code in COPYING else inputs) if tensor >= 0)
