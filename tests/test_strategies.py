"""The strategies of `tflm.testing` draw what their names say, and `check_kernel` finds faults by way of them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import outcomes
import pytest
from hypothesis import given, settings
from models import counter
from sampling import examples

import tflm
from tflm.kernels import REGISTRATIONS, KernelContext, Node, Registration
from tflm.schema import TensorType
from tflm.testing import (
    Case,
    CheckFailed,
    allocator_calls,
    buffers,
    check_kernel,
    damaged_files,
    graphs,
    quantized_models,
    single_operator_models,
)
from tflm.testing.kernel_check import _described
from tflm.testing.operators.custom import prefix_code, tables_of

Array = np.ndarray[Any, Any]


def ready(data: bytes) -> tflm.MicroInterpreter:
    """An interpreter whose tensors are allocated."""
    interpreter = tflm.MicroInterpreter(tflm.Model(data), tflm.AllOpsResolver(), bytearray(1 << 16))
    interpreter.allocate_tensors()
    return interpreter


@settings(max_examples=20)
@given(data=graphs())
def test_graphs_run(data: bytes) -> None:
    ready(data).invoke()


@pytest.mark.runs(0.5)
@settings(max_examples=30)
@given(case=quantized_models())
def test_quantized_models_have_int8_tensors_and_run(case: Case) -> None:
    model = tflm.Model(case.data)
    assert {tensor.type for tensor in model.subgraphs[0].tensors or []} == {TensorType.INT8}
    try:
        interpreter = ready(case.data)
    except tflm.OperatorError:  # ADD rejects some combinations of scales
        outcomes.count(ran=False)
        return
    outcomes.count(ran=True)
    for inputs in case.invocations:
        interpreter.input(0).data[...] = inputs[0]
        interpreter.invoke()


@settings(max_examples=30)
@given(case=quantized_models(max_layers=2))
def test_quantized_models_have_at_most_so_many_layers(case: Case) -> None:
    assert 1 <= len(tflm.Model(case.data).subgraphs[0].operators or ()) <= 2


@settings(max_examples=50)
@given(damaged=damaged_files(counter(TensorType.INT8, 4, with_init=True)))
def test_damaged_files_are_rejected_or_still_run(damaged: bytes) -> None:
    with contextlib.suppress(tflm.TflmError):
        ready(damaged).invoke()


@settings(max_examples=30)
@given(case=single_operator_models("MY_OPERATOR", [TensorType.INT16], inputs=2))
def test_models_of_an_operator_have_its_inputs_and_another(case: Case) -> None:
    model = tflm.Model(case.data)
    (operator,) = model.subgraphs[0].operators or []
    assert model.operator_name(operator) == "MY_OPERATOR"
    assert len(operator.inputs or ()) == 2
    assert all(len(inputs) == 3 for inputs in case.invocations)


@settings(max_examples=50)
@given(added=buffers(min_count=1, max_count=4, fixed=True, alignment=8, max_size=64))
def test_buffers_are_within_their_limits(added: list[tflm.memory.Buffer]) -> None:
    assert 1 <= len(added) <= 4
    for buffer in added:
        assert 0 <= buffer.size <= 64
        assert buffer.size % 8 == 0
        assert buffer.first_use <= buffer.last_use
        assert buffer.offset == -1 or buffer.offset % 8 == 0


def test_every_call_of_an_allocator_is_drawn() -> None:
    drawn: set[str] = set()

    @settings(max_examples=50)
    @given(calls=allocator_calls(min_count=10))
    def draw(calls: list[Any]) -> None:
        drawn.update(call.name for call in calls)

    draw()
    assert drawn == {
        "allocate_above",
        "allocate_persistent_buffer",
        "allocate_resizable_buffer",
        "allocate_temp",
        "checkpoint",
        "deallocate_resizable_buffer",
        "deallocate_temp",
        "reserve_non_persistent_overlay_memory",
        "reset_temp_allocations",
        "resize_buffer",
        "restore",
    }


def test_a_second_invoke_has_other_data_and_the_same_indices() -> None:
    data = counter(TensorType.INT8, 4, with_init=True)
    for dtype, is_data in {
        "f4": True,
        "i1": True,
        "u1": True,
        "?": True,
        "i2": False,
        "i4": False,
        "i8": False,
    }.items():
        values = np.arange(6).astype(dtype).reshape(2, 3)
        case = _described(data, [[values]])
        (first,), (second,) = case.invocations
        assert first.tolist() == values.tolist()
        assert second.tolist() == (values.reshape(-1)[::-1].reshape(2, 3) if is_data else values).tolist()
        assert _described(data, [[values], [values]]).invocations == [[values], [values]]


@pytest.mark.parametrize(("first", "step"), [(1, 1), (2, 1), (1, 3), (3, 2), (5, 4)])
def test_tables_of_a_prefix_code_lead_to_its_symbols(first: int, step: int) -> None:
    """Each entry is a symbol with the length of its code, or the bits of the next table and the way to it."""
    codes = dict(zip(prefix_code(np.random.default_rng(first), 9), range(100, 109), strict=True))
    table = tables_of(codes, first, step, 16)
    for code, symbol in codes.items():
        at, bits, rest = 0, first, code + "0" * 8
        while not table[at + int(rest[:bits], 2)] >> 15:
            entry = table[at + int(rest[:bits], 2)]
            at, rest, bits = at + int(rest[:bits], 2) + (entry & 0x7FF), rest[bits:], (entry >> 11) + 1
        entry = table[at + int(rest[:bits], 2)]
        length = entry >> 11 & 15
        assert entry & 0x7FF == symbol
        assert len(rest) - length == 8


def test_the_package_is_imported_without_hypothesis() -> None:
    """Only `tflm.testing` needs it."""
    command = "import sys, tflm, tflm.cli; assert 'hypothesis' not in sys.modules"
    subprocess.run([sys.executable, "-c", command], check=True)


@pytest.mark.parametrize("name", ["CONV_2D", "ARG_MAX", "SVDF", "IF", "RSQRT", "SPLIT", "SPACE_TO_BATCH_ND"])
def test_a_kernel_passes_on_models_of_its_operator(name: str) -> None:
    """Scalars, state, several operators, subgraphs and elements that are rejected in an invoke."""
    check_kernel(REGISTRATIONS[name], max_examples=examples(10))


def changing(name: str, change: Callable[[Array, Array], None]) -> Registration:
    """The kernel, which then changes its first input or output."""

    def bind(context: KernelContext, node: Node) -> Callable[[], None]:
        run = REGISTRATIONS[name].bind(context, node)
        x, y = context.get_eval_input(node, 0).elements, context.get_eval_output(node, 0).elements

        def faulty() -> None:
            run()
            change(x, y)

        return faulty

    return replace(REGISTRATIONS[name], bind=bind)


def last_is_zero(x: Array, y: Array) -> None:
    y.reshape(-1)[-1] = 0


def last_column(x: Array, y: Array) -> None:
    if y.dtype == np.int8 and y.shape[2] > 1:
        y[:, :, -1] = y[:, :, -2]


def second_channel(x: Array, y: Array) -> None:
    if y.dtype == np.int8 and y.shape[-1] > 1:
        y[..., 1] ^= 1


def second_batch(x: Array, y: Array) -> None:
    if y.shape[0] > 1:
        y[1] = y[0]


def after_broadcasting(x: Array, y: Array) -> None:
    if x.shape != y.shape:
        y[...] = 0


def rank_5(x: Array, y: Array) -> None:
    if y.ndim == 5:
        y[...] = 0


def largest_int16(x: Array, y: Array) -> None:
    if y.dtype == np.int16:
        np.minimum(y, 32766, out=y)


def before_the_output(x: Array, y: Array) -> None:
    np.lib.stride_tricks.as_strided(y.reshape(-1).view(np.uint8), (2,), (-1,))[1] ^= 1


FAULTS = {
    "CONV_2D: last column": changing("CONV_2D", last_column),
    "CONV_2D: second channel": changing("CONV_2D", second_channel),
    "FULLY_CONNECTED: second batch": changing("FULLY_CONNECTED", second_batch),
    "ADD: broadcasting": changing("ADD", after_broadcasting),
    "ADD: rank 5": changing("ADD", rank_5),
    "SOFTMAX: largest int16": changing("SOFTMAX", largest_int16),
    "LOGISTIC: byte before the output": changing("LOGISTIC", before_the_output),
    **{
        f"{name}: last element": changing(name, last_is_zero)
        for name in ("ARG_MAX", "DEPTHWISE_CONV_2D", "GATHER", "MEAN", "PAD", "SPLIT", "SVDF", "TRANSPOSE")
    },
}


@pytest.mark.usefixtures("unshrunk")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_builtin_operator_is_found(fault: str) -> None:
    with pytest.raises(CheckFailed):
        check_kernel(FAULTS[fault])
