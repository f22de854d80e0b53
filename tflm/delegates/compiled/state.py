"""Operators with state between invokes: variables, CALL_ONCE, CIRCULAR_BUFFER."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from tflm.compiler.intrinsics import move_bytes
from tflm.compiler.language import ABORTED, DONE, REFUSED, Address, Int32s, Step, UInt8s, kernel
from tflm.compiler.processor import Profile
from tflm.delegates.compiled.movement import copy_steps
from tflm.errors import OperatorError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.control_flow import variable
from tflm.memory.tensor import TfLiteEvalTensor


@kernel
def call_once(pending: UInt8s) -> int:
    """Let Python run the other subgraph if `pending` is set."""
    return REFUSED if pending[0] else DONE


@kernel
def take_turns(buffer: Address, newest: Address, buffer_bytes: int, newest_bytes: int, cycles: Int32s) -> int:
    """Replace the oldest part of a buffer by the newest one. End the invoke except once in cycles[1] times."""
    kept = buffer_bytes - newest_bytes
    move_bytes(buffer, buffer + newest_bytes, kept)
    move_bytes(buffer + kept, newest, newest_bytes)
    cycles[0] -= 1
    if cycles[0]:
        return ABORTED
    cycles[0] = cycles[1]
    return DONE


def _bind_var_handle(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    return []


def _bind_read_variable(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    handle, value = node.eval_input(0), node.eval_output(0)
    data = _variable(context, handle, value)
    return None if data is None else copy_steps([(value.elements.reshape(-1), data)])


def _bind_assign_variable(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    handle, value = node.eval_input(0), node.eval_input(1)
    data = _variable(context, handle, value)
    return None if data is None else copy_steps([(data, value.elements.reshape(-1))])


def _variable(context: KernelContext, handle: TfLiteEvalTensor, value: TfLiteEvalTensor) -> npt.NDArray[Any] | None:
    """Return the variable's elements; None if it is unknown, or numpy will reject it."""
    if handle.offset is not None:
        return None
    try:
        return variable(context, handle.elements, value)
    except OperatorError:
        return None


def _bind_call_once(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    return [call_once.step(pending=node.op_data.pending)]


def _bind_circular_buffer(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    input, output = node.eval_input(0), node.eval_output(0)
    depth = output.dims[2] * output.dims[3]
    sizes = {"buffer_bytes": output.dims[1] * depth, "newest_bytes": depth}
    return [take_turns.step(buffer=output.elements, newest=input.elements, **sizes, cycles=node.op_data)]


BINDINGS = {
    "ASSIGN_VARIABLE": _bind_assign_variable,
    "CALL_ONCE": _bind_call_once,
    "CIRCULAR_BUFFER": _bind_circular_buffer,
    "READ_VARIABLE": _bind_read_variable,
    "VAR_HANDLE": _bind_var_handle,
}
