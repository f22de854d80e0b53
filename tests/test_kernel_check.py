"""`check_kernel` accepts kernels of the package, and finds faults planted in one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from custom_operator import ROWS_SCALED
from flatbuffers import flexbuffers
from sampling import some

import tflm
from tflm.kernels import REGISTRATIONS, KernelContext, Node, Registration
from tflm.schema import TensorType
from tflm.testing import CheckFailed, check_kernel, single_operator_models


@pytest.mark.parametrize("name", ["ASSIGN_VARIABLE", "CALL_ONCE", "CIRCULAR_BUFFER", "READ_VARIABLE", "VAR_HANDLE"])
def test_kernels_with_state_pass(name: str) -> None:
    check_kernel(REGISTRATIONS[name], max_examples=5)


def instead(run: Callable[[KernelContext, Node], None]) -> Callable[[KernelContext, Node], Callable[[], None]]:
    return lambda context, node: lambda: run(context, node)


VARIABLE_FAULTS = {
    "READ_VARIABLE": instead(lambda context, node: node.eval_output(0).elements.fill(1)),
    "ASSIGN_VARIABLE": instead(lambda context, node: None),
    "CALL_ONCE": instead(lambda context, node: None),
}


@pytest.mark.parametrize("name", VARIABLE_FAULTS)
def test_faults_in_kernels_of_variables_are_found(name: str) -> None:
    with pytest.raises(CheckFailed, match=rf"(?m)^{name}: v0 x FLOAT32 \[\d+\], v0 handle RESOURCE \[1\]"):
        check_kernel(replace(REGISTRATIONS[name], bind=VARIABLE_FAULTS[name]), max_examples=40)


@pytest.mark.parametrize(("name", "inputs"), [("RELU", 1), ("ADD", 2), ("LOGISTIC", 1)])
def test_kernels_pass(name: str, inputs: int) -> None:
    registration = REGISTRATIONS[name]
    models = single_operator_models(registration.operator, registration.types, inputs)
    check_kernel(registration, models=models, max_examples=20)


def test_the_operator_of_the_documentation_passes() -> None:
    options = bytes(flexbuffers.Dumps({"factor": 2.0}))
    check_kernel(ROWS_SCALED, models=single_operator_models("ROWS_SCALED", custom_options=options), max_examples=120)


def test_a_kernel_that_rejects_everything_needs_other_models() -> None:
    def reject(context: KernelContext, node: Node) -> None:
        raise tflm.OperatorError("is never supported")

    with pytest.raises(tflm.ArgumentError, match="pass models="):
        check_kernel(Registration("NEVER", invoke=lambda context, node: None, prepare=reject), max_examples=5)


Array = np.ndarray[Any, Any]


def prepare(context: KernelContext, node: Node) -> None:
    """Check, and request a byte of scratch memory for each element, and two persistent counters."""
    node.expect(inputs=1, outputs=1)
    if context.allocate_temp_input_tensor(node, 0).type != TensorType.INT8:
        raise tflm.OperatorError("must be INT8")
    counters = context.allocate_array(2, np.int32)
    counters[:] = 0
    size = int(np.prod(context.allocate_temp_output_tensor(node, 0).dims))
    node.op_data = context.request_scratch_buffer_in_arena(size), counters


def kernel(run: Callable[[Array, Array, Array, Array], None], **changes: Any) -> Registration:
    """NEGATED_MAXIMUM: of each element of x and 0, negated. `run` gets x, y, scratch memory and counters."""

    def bind(context: KernelContext, node: Node) -> Callable[[], None]:
        handle, counters = node.op_data
        x, y = (
            context.get_eval_input(node, 0).elements.reshape(-1),
            context.get_eval_output(node, 0).elements.reshape(-1),
        )
        scratch = context.get_scratch_buffer(handle).view(np.int8)[: x.size]
        return lambda: run(x, y, scratch, counters)

    return Registration("NEGATED_MAXIMUM", **{"bind": bind, "prepare": prepare, "types": (TensorType.INT8,)} | changes)


def right(x: Array, y: Array, scratch: Array, counters: Array) -> None:
    np.maximum(x, 0, out=scratch)
    np.negative(scratch, out=y)


def oracle(model: tflm.Model, inputs: list[Array]) -> list[Array]:
    """Return the kernel's result."""
    return [-np.maximum(inputs[0], 0)]


def behind(array: Array, count: int = 1) -> Array:
    """The bytes after an array."""
    return np.lib.stride_tricks.as_strided(array.view(np.int8)[-1:], (count + 1,), (1,))[1:]


def before(array: Array) -> Array:
    """The byte before an array."""
    return np.lib.stride_tricks.as_strided(array.view(np.int8), (2,), (-1,))[1:]


def after_right(more: Callable[[Array, Array, Array, Array], Any]) -> Callable[[Array, Array, Array, Array], None]:
    """The kernel, which then does something else."""

    def run(x: Array, y: Array, scratch: Array, counters: Array) -> None:
        right(x, y, scratch, counters)
        more(x, y, scratch, counters)

    return run


def set_to(array: Array, value: int) -> None:
    array[...] = value


def skips_last(x: Array, y: Array, scratch: Array, counters: Array) -> None:
    y[:-1] = -np.maximum(x[:-1], 0)


def accumulates(x: Array, y: Array, scratch: Array, counters: Array) -> None:
    y -= np.maximum(x, 0)


def reads_scratch(x: Array, y: Array, scratch: Array, counters: Array) -> None:
    y[...] = -np.maximum(x, 0) + (scratch & 1)


def counts(x: Array, y: Array, scratch: Array, counters: Array) -> None:
    counters[0] += 1
    y[...] = counters[0]


CALLS = [0]


def counts_outside(x: Array, y: Array, scratch: Array, counters: Array) -> None:
    CALLS[0] += 1
    y[...] = CALLS[0] % 100


def fails_late(x: Array, y: Array, scratch: Array, counters: Array) -> None:
    counters[0] += 1
    y[...] = -np.maximum(x, 0) + (counters[0] > 6)


def without_scalars(context: KernelContext, node: Node) -> None:
    prepare(context, node)
    assert node.input(0).dims[0]


def in_place(x: Array, y: Array, scratch: Array, counters: Array) -> None:
    np.maximum(x, 0, out=x)
    np.negative(x, out=y)


def never_rejects(context: KernelContext, node: Node) -> None:
    node.op_data = context.request_scratch_buffer_in_arena(16), context.allocate_array(2, np.int32)
    raise IndexError("list index out of range")


def bind_shared(context: KernelContext, node: Node) -> Callable[[], None]:
    VIEWS["x"], VIEWS["y"] = context.get_eval_input(node, 0).elements, context.get_eval_output(node, 0).elements
    return lambda: np.copyto(VIEWS["y"], VIEWS["x"])


VIEWS: dict[str, Array] = {}


def bind_once(context: KernelContext, node: Node) -> Callable[[], None]:
    x, y = context.get_eval_input(node, 0).elements.copy(), context.get_eval_output(node, 0).elements
    return lambda: np.copyto(y, x)


def uninitialized(context: KernelContext, node: Node) -> None:
    prepare(context, node)
    node.op_data = node.op_data[0], context.allocate_array(2, np.int32)


def bind_late(context: KernelContext, node: Node) -> Callable[[], None]:
    return lambda: set_to(context.allocate_array(2, np.int32), 1)


FAULTS = {
    "writes behind the output": kernel(after_right(lambda x, y, s, c: set_to(behind(y, 16), 7))),
    "writes before the output": kernel(after_right(lambda x, y, s, c: set_to(before(y), 7))),
    "writes behind the scratch memory": kernel(after_right(lambda x, y, s, c: set_to(behind(s, 32), 7))),
    "writes behind the counters": kernel(after_right(lambda x, y, s, c: set_to(behind(c, 16), 7))),
    "clears its input": kernel(after_right(lambda x, y, s, c: set_to(x, 0))),
    "computes in the input": kernel(in_place),
    "skips the last element": kernel(skips_last),
    "accumulates": kernel(accumulates),
    "reads scratch memory first": kernel(reads_scratch),
    "state without reset": kernel(counts),
    "state outside of the arena": kernel(counts_outside),
    "state that is not declared": kernel(counts, has_state=False, reset=lambda c, n: set_to(n.op_data[1], 0)),
    "wrong from the seventh invoke on": kernel(fails_late),
    "no dimensions": kernel(right, prepare=without_scalars),
    "raises in an invoke": kernel(after_right(lambda x, y, s, c: y[6])),
    "another exception in prepare": kernel(right, prepare=never_rejects),
    "views in a global": kernel(right, bind=bind_shared),
    "input read in bind": kernel(right, bind=bind_once),
    "counters without a value": kernel(lambda x, y, s, c: set_to(y, int(c[0]) % 100), prepare=uninitialized),
    "allocates in an invoke": kernel(right, bind=bind_late),
    "not negated": kernel(lambda x, y, s, c: np.copyto(y, np.maximum(x, 0))),
    "wrong for the lowest value": kernel(after_right(lambda x, y, s, c: np.copyto(y, 1, where=x <= -120))),
    "off by one": kernel(after_right(lambda x, y, s, c: np.subtract(y, 1, out=y, where=y < -1))),
}


def test_the_kernel_without_a_fault_passes() -> None:
    check_kernel(kernel(right), oracle, max_examples=40)


@pytest.mark.usefixtures("unshrunk")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str) -> None:
    with pytest.raises(CheckFailed):
        check_kernel(FAULTS[fault], oracle)


@pytest.mark.parametrize("fault", some(FAULTS, "skips the last element", "not negated"))
def test_what_is_reported_is_small(fault: str) -> None:
    with pytest.raises(CheckFailed) as found:
        check_kernel(FAULTS[fault], oracle)
    assert len(str(found.value).splitlines()) <= 8


def rejects_late(x: Array, y: Array, scratch: Array, counters: Array) -> None:
    if x.size:
        raise tflm.OperatorError("elements are not supported")


@pytest.mark.usefixtures("unshrunk")
def test_a_kernel_may_reject_elements_only_where_the_oracle_does() -> None:
    check_kernel(kernel(right), kernel(right), max_examples=3)
    with pytest.raises(CheckFailed, match="the kernel raised OperatorError in an invoke, the oracle does not"):
        check_kernel(kernel(rejects_late), kernel(right), max_examples=3)
    for oracle in (kernel(rejects_late), lambda model, inputs: inputs):
        with pytest.raises(tflm.ArgumentError, match="rejected every model"):
            check_kernel(kernel(rejects_late), oracle, max_examples=3)


@pytest.mark.usefixtures("unshrunk")
def test_an_output_has_the_shape_of_the_oracles() -> None:
    with pytest.raises(CheckFailed, match=r"the result has shape .*, the oracle's has \[7, 7\]"):
        check_kernel(kernel(right), lambda model, inputs: [np.zeros((7, 7), np.int8)], max_examples=3)
