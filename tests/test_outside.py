"""Constants and custom options that lie in the file, but outside of the flatbuffer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from differential import run
from hypothesis import given
from hypothesis import strategies as st
from oracle import Oracle

import tflm
from tflm.application.export import Firmware, sources
from tflm.application.machine import MachineOptions
from tflm.firmware.device_check import check_device, operator_findings
from tflm.schema import Buffer, BuiltinOperator, FullyConnectedOptions, ModelBuilder, TensorType, quantized, write_model
from tflm.schema.patch import with_metadata

X = np.arange(8, dtype=np.int8).reshape(1, 8)


def dense() -> bytes:
    """Two layers with weights, biases and metadata."""
    rng = np.random.default_rng(5)
    builder = ModelBuilder()
    main = builder.subgraph()
    tensors = [main.input("x", (1, 8), TensorType.INT8, quantized(0.5))]
    for i in range(2):
        weights = main.constant(f"w{i}", rng.integers(-99, 99, (8, 8)).astype(np.int8), quantized(0.01))
        bias = main.constant(f"b{i}", rng.integers(-99, 99, 8).astype(np.int32), quantized(0.005))
        tensors.append(main.tensor(f"y{i}", (1, 8), TensorType.INT8, quantized(0.5)))
        operands = [tensors[-2], weights, bias]
        main.operator(BuiltinOperator.FULLY_CONNECTED, operands, [tensors[-1]], FullyConnectedOptions())
    main.output(tensors[-1])
    builder.metadata("mine", b"kept")
    return builder.build()


def with_data_behind(model: bytes) -> bytes:
    """The model with the data of every buffer behind the flatbuffer, as quantizers write large models."""
    root = tflm.schema.read_model(memoryview(model))
    contents = [bytes(buffer.data or b"") for buffer in root.buffers or ()]

    def written(start: int) -> bytes:
        at, buffers = start, []
        for content in contents:
            buffers.append(Buffer(offset=at, size=len(content)) if content else Buffer(offset=1, size=1))
            at += -(-len(content) // 16) * 16
        root.buffers = buffers
        return write_model(root)

    start = -(-len(written(1 << 40)) // 16) * 16  # all offsets have the same size
    behind = b"".join(content.ljust(-(-len(content) // 16) * 16, b"\0") for content in contents)
    return written(start).ljust(start, b"\0") + behind


INSIDE = dense()
OUTSIDE = with_data_behind(INSIDE)


def answers(data: bytes) -> list[Any]:
    (outputs,) = run(data, [[X]])
    return [output.tolist() for output in outputs]


def test_data_outside_is_read_as_if_it_were_inside() -> None:
    outside, inside = tflm.Model(OUTSIDE), tflm.Model(INSIDE)
    assert outside.subgraphs == inside.subgraphs
    assert [buffer.data for buffer in outside.buffers] == [buffer.data for buffer in inside.buffers]
    assert outside.outside == tuple(f"buffers[{i}]" for i, buffer in enumerate(inside.buffers) if buffer.data)
    assert inside.outside == ()
    assert bytes(outside.metadata("mine") or b"") == b"kept"
    assert answers(OUTSIDE) == answers(INSIDE)


def test_litert_reads_the_same() -> None:
    litert = pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")
    interpreter = litert.Interpreter(
        model_content=OUTSIDE, experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF
    )
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], X)
    interpreter.invoke()
    assert [interpreter.get_tensor(interpreter.get_output_details()[0]["index"]).tolist()] == answers(INSIDE)


WRITERS: dict[str, Callable[[tflm.Model], bytes]] = {
    "strip": tflm.strip,
    "fold": tflm.fold,
    "plan": lambda model: tflm.plan(model).data,
    "tile": lambda model: tflm.tile(model, verify=0).data,
    "resize": lambda model: tflm.resize(model, {"x": (1, 8)}),
    "update_versions": tflm.update_versions,
    "metadata": lambda model: with_metadata(model, "mine", b"more"),
    "export": lambda model: exported(sources(Firmware(model, "model", MachineOptions().machine(), "a test"))),
}


def exported(files: dict[str, str]) -> bytes:
    """The bytes of the model in C sources."""
    lines = files["model_data.cc"].split("{", 1)[1].rsplit("}", 2)[0]
    return bytes(int(byte, 16) for byte in lines.replace("\n", " ").replace(",", " ").split() if byte.startswith("0x"))


@pytest.mark.parametrize("writer", WRITERS)
def test_what_is_written_has_all_data_inside(oracle: Oracle, writer: str) -> None:
    """TFLM reads only data inside of the file, and has the same results."""
    written = WRITERS[writer](tflm.Model(OUTSIDE))
    assert tflm.Model(written).outside == ()
    (outputs,) = oracle.run(written, [[X]])
    assert [output.tolist() for output in outputs] == answers(INSIDE)


def test_no_device_reads_it() -> None:
    (warning,) = tflm.verify(OUTSIDE)
    assert (warning.level, warning.place) == ("warning", "buffers[1]")
    assert "outside of the flatbuffer, where TFLM does not read it" in str(warning)
    for target in (tflm.targets.CORTEX_M, tflm.targets.HOST):
        (finding,) = check_device(tflm.Model(OUTSIDE), target=target)
        assert finding.stops
        assert "computes garbage" in finding.happens
        assert operator_findings(tflm.Model(OUTSIDE), target=target) == [finding]
        assert check_device(tflm.Model(INSIDE), target=target) == []


def test_large_custom_options_are_read_too() -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    x, y = (main.tensor(name, (4,), TensorType.INT8) for name in "xy")
    main.table.inputs = (x,)
    main.operator("mine", [x], [y])
    main.output(y)
    root = tflm.schema.read_model(memoryview(builder.build()))
    (operator,) = (root.subgraphs or [])[0].operators or []
    operator.large_custom_options_offset = operator.large_custom_options_size = 7
    operator.large_custom_options_offset = len(write_model(root))
    model = tflm.Model(write_model(root) + b"options")
    ((read,),) = (subgraph.operators or [] for subgraph in model.subgraphs)
    assert bytes(read.custom_options or b"") == b"options"
    assert model.outside == ("subgraphs[0].operators[0]",)


@given(offset=st.integers(2, 2**64 - 1) | st.integers(2, len(INSIDE) + 99), size=st.integers(0, 2**64 - 1))
def test_no_place_outside_leads_beyond_the_file(offset: int, size: int) -> None:
    root = tflm.schema.read_model(memoryview(INSIDE))
    assert root.buffers
    root.buffers[1] = Buffer(offset=offset, size=size)
    data = write_model(root)
    if offset + size > len(data):
        with pytest.raises(tflm.ModelError, match="outside of the model itself"):
            tflm.Model(data)
    assert tflm.verify(data)
