"""Edges of a model that strategies of operators seldom draw: constants as inputs, inputs as constants, no operand."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from models import Arrays, Case, Draw

from tflm.schema import ELEMENT_TYPES, BuiltinOperator, read_model, write_model
from tflm.schema.tables import Buffer, Model, builtin_code


def at_an_edge(draw: Draw, case: Case) -> Case:
    """A model with one operand that comes from elsewhere, or from nowhere."""
    root = read_model(memoryview(case[0]))
    invocations = [list(arrays) for arrays in case[1]]
    draw(st.sampled_from([*[_with_constant, _with_input] * 3, _without_operand]))(draw, root, invocations)
    return write_model(root), invocations


def _with_constant(draw: Draw, root: Model, invocations: list[Arrays]) -> None:
    """Make an input a constant with the values of the first invoke."""
    main = root.subgraphs[0]
    inputs = list(main.inputs or ())
    places = [place for place, tensor in enumerate(inputs) if tensor not in main.outputs]
    if places:
        place = draw(st.sampled_from(places))
        root.buffers.append(Buffer(data=invocations[0][place].tobytes()))
        main.tensors[inputs.pop(place)].buffer = len(root.buffers) - 1
        main.inputs = tuple(inputs)
        for arrays in invocations:
            del arrays[place]


def _with_input(draw: Draw, root: Model, invocations: list[Arrays]) -> None:
    """Make a constant an input: each invoke feeds its elements."""
    main = root.subgraphs[0]
    read = {tensor for operator in main.operators for tensor in operator.inputs or ()} - {-1, *(main.inputs or ())}
    constants = [
        tensor
        for tensor in sorted(read)
        if root.buffers[main.tensors[tensor].buffer].data and ELEMENT_TYPES[main.tensors[tensor].type].bits >= 8
    ]
    if constants:
        tensor = draw(st.sampled_from(constants))
        table = main.tensors[tensor]
        elements = np.frombuffer(bytes(root.buffers[table.buffer].data), ELEMENT_TYPES[table.type].dtype)
        table.buffer = 0
        main.inputs = (*(main.inputs or ()), tensor)
        for arrays in invocations:
            arrays.append(elements.reshape(table.shape or ()))


def _without_operand(draw: Draw, root: Model, invocations: list[Arrays]) -> None:
    """Leave an operand out: it is -1, or there are fewer.

    Without a part, TFLM leaves the rest of a CONCATENATION's output as it is; here it is refused.
    """
    operator = draw(st.sampled_from(root.subgraphs[0].operators))
    is_whole = builtin_code(root.operator_codes[operator.opcode_index]) is BuiltinOperator.CONCATENATION
    operands = list(operator.inputs or ())
    if operands and not is_whole:
        place = draw(st.integers(0, len(operands) - 1))
        operands[place] = -1
        is_last = place == len(operands) - 1
        operator.inputs = tuple(operands[:-1] if is_last and draw(st.booleans()) else operands)
