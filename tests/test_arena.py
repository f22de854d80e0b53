"""Compare the arena with TFLM's recorded figures for each target, and with the wheel's output."""

from __future__ import annotations

import dataclasses
import gzip
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import models
import numpy as np
import pytest
from conftest import CORPUS
from differential import assert_close, measured_figures, printed_figures, run
from example_models import EXAMPLE
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from oracle import Oracle, OracleError

import tflm
from tflm.libraries import library_for
from tflm.schema import (
    BatchMatMulOptions,
    Buffer,
    BuiltinOperator,
    CumsumOptions,
    FullyConnectedOptions,
    GatherOptions,
    Metadata,
    QuantizationParameters,
    SoftmaxOptions,
    quantized,
    write_model,
)
from tflm.schema.tables import METADATA_NAME, encode_offsets
from tflm.testing import graphs
from tflm.testing.drawing import SingleOperator
from tflm.testing.operators import OPERATORS

RECORDS = {
    "kTfLiteEvalTensorData": tflm.RecordedAllocationType.EVAL_TENSOR_DATA,
    "kPersistentTfLiteTensorData": tflm.RecordedAllocationType.PERSISTENT_TENSOR_DATA,
    "kPersistentTfLiteTensorQuantizationData": tflm.RecordedAllocationType.PERSISTENT_TENSOR_QUANTIZATION_DATA,
    "kPersistentBufferData": tflm.RecordedAllocationType.PERSISTENT_BUFFER_DATA,
    "kTfLiteTensorVariableBufferData": tflm.RecordedAllocationType.VARIABLE_BUFFER_DATA,
    "kNodeAndRegistrationArray": tflm.RecordedAllocationType.NODE_AND_REGISTRATION_ARRAY,
    "kOpData": tflm.RecordedAllocationType.OP_DATA,
}


PATHS = sorted((CORPUS / "models").glob("*.tflite")) or [CORPUS]
"""Every model of the corpus. Without one there is a single entry, whose test skips and says so."""


def corpus_models() -> list[str]:
    """The names of all models of the corpus."""
    return [path.stem for path in PATHS]


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a file of JSON lines."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        for line in file:
            if line.strip():
                yield json.loads(line)


def test_every_recorded_figure_is_reproduced(corpus: Path) -> None:
    """Used bytes, head, tail, smallest arena and every category, for each model and target."""
    names = corpus_models()
    differences, compared = [], 0
    for expected in recorded_figures(corpus):
        model = tflm.Model.from_file(corpus / "models" / f"{expected['model']}.tflite")
        target = tflm.targets.by_name(expected["target"])
        actual = figures(model, target)
        compared += 1
        for key, value in expected["figures"].items():
            if actual[key] != value:
                differences.append(f"{expected['model']:28} {target.name:11} {key:50} {actual[key]} not {value}")
    assert not differences, "\n" + "\n".join(differences)
    assert compared == 4 * len(names)


def recorded_figures(corpus: Path) -> Iterator[dict[str, Any]]:
    """Model, target and figures by name, for the three targets and the wheel."""
    for line in lines(corpus / "golden" / "arena_targets.jsonl"):
        recording = line["recording"]
        values = {key: line[key] for key in ("arena_used_bytes", "head", "tail", "minimum_arena_bytes")}
        values |= {f"recording {key}": recording[key] for key in ("arena_used_bytes", "head", "tail")}
        for key, record in recording["records"].items():
            values |= {f"{RECORDS[key].value} {part}": record[part] for part in ("requested", "used", "count")}
        yield {"model": line["model"], "target": line["target"], "figures": values}
    for line in lines(corpus / "golden" / "arena.jsonl"):
        values = {"arena_used_bytes": line["total"], "head": line["head"], "tail": line["tail"]}
        for key, record in line["records"].items():
            values |= {f"{key} {part}": record[part] for part in ("requested", "used", "count")}
        yield {"model": line["model"], "target": "host-wheel", "figures": values}


def figures(model: tflm.Model, target: tflm.targets.Target) -> dict[str, int]:
    """The same figures, worked out here."""
    measured = tflm.measure_arena(model, tflm.AllOpsResolver(), target=target)
    recording = tflm.RecordingMicroAllocator(bytearray(1 << 20), target=target)
    tflm.MicroInterpreter(model, tflm.AllOpsResolver(), recording, delegates=()).allocate_tensors()
    assert measured.records == recording.records
    values = {
        "arena_used_bytes": measured.arena_used_bytes,
        "head": measured.head_bytes,
        "tail": measured.tail_bytes,
        "minimum_arena_bytes": measured.minimum_arena_bytes,
        "recording arena_used_bytes": recording.used_bytes(),
        "recording head": recording.head_bytes,
        "recording tail": recording.tail_bytes,
    }
    for kind, record in measured.records.items():
        values |= {
            f"{kind.value} requested": record.requested_bytes,
            f"{kind.value} used": record.used_bytes,
            f"{kind.value} count": record.count,
        }
    return values


@pytest.mark.parametrize("name", corpus_models())
def test_every_single_allocation_is_tflms(corpus: Path, name: str) -> None:
    model = tflm.Model.from_file(corpus / "models" / f"{name}.tflite")
    letters = {"tail": "P", "temp": "T", "head": "R"}
    traces = [trace for trace in lines(corpus / "golden" / "traces.jsonl.gz") if trace["model"] == name]
    assert traces
    for expected in traces:
        target = tflm.targets.by_name(expected["target"])
        allocator = tflm.RecordingMicroAllocator(bytearray(1 << 20), target=target)
        tflm.MicroInterpreter(model, tflm.AllOpsResolver(), allocator).allocate_tensors()
        actual = [[letters[a.section], a.size, a.alignment] for a in allocator.log]
        # The recording allocator's own objects, the first and third, are larger; the planner takes all that is left.
        trace = [call[:3] for call in expected["trace"]]
        planning = next(i for i, call in enumerate(trace) if call[1] > 1 << 20)
        for i in (0, 2, planning):
            actual[i][1] = trace[i][1] = 0
        assert actual == trace, target.name


def test_structures_have_the_sizes_that_the_compilers_give_them(corpus: Path) -> None:
    sizes = json.loads((corpus / "golden" / "sizes.json").read_text())
    structs = declared_structs()
    compared = 0
    for name, recorded in sizes.items():
        target = tflm.targets.by_name(name)
        library = library_for("reference", target)
        for key, size in recorded["types"].items():
            struct = structs.get(key) or structs.get(key.split(":")[-1])
            if struct is None or (name == "host-wheel" and key == "TfLiteFullyConnectedParams"):
                continue
            compared += 1
            assert library.layout(struct, target) == (size["size"], size["align"]), (name, key)
    assert compared > 80


def declared_structs() -> dict[str, tflm.targets.Struct]:
    """Every structure that a module of the package declares for TFLM of today, by TFLM's name for it."""
    import sys

    found = {}
    for module in [
        module for name, module in sys.modules.items() if name.startswith("tflm.") and "libraries" not in name
    ]:
        for value in vars(module).values():
            if isinstance(value, tflm.targets.Struct):
                found[value.name] = value
    return found


@pytest.mark.parametrize("model", ["hello_world_int8", "hello_world_float"])
def test_the_hello_world_gives_what_tflm_gives(oracle: Oracle, model: str) -> None:
    data = (EXAMPLE / f"{model}.tflite").read_bytes()
    tensor = (tflm.Model(data).subgraphs[0].tensors or [])[0]
    if tensor.type == tflm.schema.TensorType.INT8:
        values = np.arange(-128, 128).astype(np.int8)
    else:
        values = np.linspace(0, 2 * np.pi, 200, dtype=np.float32)
    invocations = [[value.reshape(1, 1)] for value in values]
    for actual, expected in zip(run(data, invocations), oracle.run(data, invocations)):
        assert_close(actual, expected)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_model_that_was_read_and_written_runs_in_tflm_as_before(corpus: Path, oracle: Oracle, path: Path) -> None:
    original = path.read_bytes()
    written = write_model(tflm.Model(original).root)
    assert tflm.Model(written).root == tflm.Model(original).root
    golden = np.load(corpus / "golden" / f"{path.stem}.npz")
    inputs = [golden[key] for key in sorted(golden) if key.startswith("in_0_")]
    (before,), (after,) = (oracle.run(model, [inputs]) for model in (original, written))
    for a, b in zip(before, after):
        assert np.array_equal(a, b)


@given(model=graphs())
def test_random_models_take_what_the_wheel_says(oracle: Oracle, model: bytes) -> None:
    assert measured_figures(model) == printed_figures(oracle.allocations(model))


@pytest.mark.parametrize("operator", OPERATORS)
@settings(max_examples=max(settings().max_examples // 10, 1))
@given(data=st.data())
def test_an_operator_takes_what_the_wheel_says(oracle: Oracle, operator: str, data: st.DataObject) -> None:
    model, (inputs, *_) = data.draw(OPERATORS[operator])
    try:
        printed = oracle.allocations(model, inputs)
    except OracleError:
        reject()  # TFLM refuses the model; where it refuses all, the test fails
    assert measured_figures(model) == printed_figures(printed)
    smallest = tflm.measure_arena(tflm.Model(model), tflm.AllOpsResolver(), target=tflm.targets.HOST_WHEEL)
    assert oracle.allocations(model, inputs, smallest.minimum_arena_bytes) == printed


def single(
    operator: BuiltinOperator, shapes: Sequence[Sequence[int]], parameters: QuantizationParameters, options: Any = None
) -> models.Case:
    """An operator of int8: the shapes of its input, its constants of ones, and its output."""
    model = SingleOperator()
    type = models.INT16 if operator == BuiltinOperator.SOFTMAX else models.INT8
    dtype = tflm.schema.ELEMENT_TYPES[type].dtype
    model.input(type, [np.ones(shapes[0], dtype)], quantized(1.0))
    for shape in shapes[1:-1]:
        per_row = operator == BuiltinOperator.FULLY_CONNECTED
        is_index = operator in (BuiltinOperator.CUMSUM, BuiltinOperator.GATHER)
        elements = np.zeros(shape, np.int32) if is_index else np.ones(shape, dtype)
        model.constant(elements, None if is_index else quantized([1.0] * shape[0] if per_row else 1.0))
    return model.case(operator, [(shapes[-1], type, parameters)], options)


@pytest.mark.parametrize(
    ("operator", "shapes", "parameters", "options"),
    [
        (BuiltinOperator.FULLY_CONNECTED, [(1, 4), (5, 4), (1, 5)], quantized(9.0), FullyConnectedOptions()),
        (BuiltinOperator.FULLY_CONNECTED, [(1, 4), (9, 4), (1, 9)], quantized(9.0), FullyConnectedOptions()),
        (BuiltinOperator.SOFTMAX, [(1, 4), (1, 4)], quantized(1 / 32768), SoftmaxOptions(beta=1.0)),
        (BuiltinOperator.LOG_SOFTMAX, [(1, 4), (1, 4)], quantized(1 / 16, 127), None),
        (BuiltinOperator.CUMSUM, [(1, 4), (1,), (1, 4)], quantized(9.0), CumsumOptions()),
        (BuiltinOperator.GATHER, [(3, 4, 2, 2), (2,), (2, 4, 2, 2)], quantized(1.0), GatherOptions()),
        (BuiltinOperator.BATCH_MATMUL, [(1, 4, 4), (1, 4, 4), (1, 4, 4)], quantized(9.0), BatchMatMulOptions()),
        (BuiltinOperator.ADD_N, [(1, 4), (1, 4), (1, 4), (1, 4), (1, 4)], quantized(9.0), None),
    ],
    ids=lambda value: value.name if isinstance(value, BuiltinOperator) else "",
)
def test_what_an_operator_keeps_may_lie_over_temp_memory_that_is_not_read_again(
    oracle: Oracle, operator: BuiltinOperator, shapes: list[Any], parameters: QuantizationParameters, options: Any
) -> None:
    """The smallest arena is TFLM's: it runs in that one, and in no smaller one."""
    model, invocations = single(operator, shapes, parameters, options)
    smallest = tflm.measure_arena(tflm.Model(model), tflm.AllOpsResolver(), target=tflm.targets.HOST_WHEEL)
    expected = oracle.run(model, invocations)
    assert_close(oracle.run(model, invocations, smallest.minimum_arena_bytes)[0], expected[0])
    with pytest.raises(OracleError):
        oracle.run(model, invocations, smallest.minimum_arena_bytes - 16)


@given(
    type=st.sampled_from([models.FLOAT32, models.INT8]),
    width=st.integers(1, 20),
    with_init=st.booleans(),
    seed=st.integers(0, 99),
)
def test_resource_variables_keep_state_as_in_tflm(
    oracle: Oracle, type: tflm.schema.TensorType, width: int, with_init: bool, seed: int
) -> None:
    model = models.counter(type, width, with_init)
    dtype = np.float32 if type == models.FLOAT32 else np.int8
    rng = np.random.default_rng(seed)
    invocations = [[rng.integers(-9, 9, (1, width)).astype(dtype)] for _ in range(4)]
    for actual, expected in zip(run(model, invocations), oracle.run(model, invocations)):
        assert_close(actual, expected)
    measured = tflm.measure_arena(tflm.Model(model), tflm.AllOpsResolver(), target=tflm.targets.HOST_WHEEL)
    assert printed_figures(oracle.allocations(model))["total"] == measured.arena_used_bytes


def with_plan(model: bytes, offsets: list[int]) -> bytes:
    """The model with an offline plan in its metadata."""
    root = tflm.Model(model).root
    buffers = [*(root.buffers or ()), Buffer(data=encode_offsets(offsets))]
    metadata = [*(root.metadata or ()), Metadata(name=METADATA_NAME, buffer=len(buffers) - 1)]
    return write_model(dataclasses.replace(root, buffers=buffers, metadata=metadata))


@given(model=graphs(), data=st.data())
def test_offline_plans_are_obeyed_as_in_tflm(oracle: Oracle, model: bytes, data: st.DataObject) -> None:
    """A tensor here and there is put where the linear planner would put it; the others are planned around them."""
    plan = tflm.measure_arena(tflm.Model(model), tflm.AllOpsResolver(), planner="linear")
    places = {buffer.name: buffer.offset for buffer in plan.buffers}
    tensors = tflm.Model(model).subgraphs[0].tensors or []
    offsets = [places.get(t.name or "", -1) if data.draw(st.booleans()) else -1 for t in tensors]
    planned = with_plan(model, offsets)
    measured = tflm.measure_arena(tflm.Model(planned), tflm.AllOpsResolver(), target=tflm.targets.HOST_WHEEL)
    assert printed_figures(oracle.allocations(planned)) == {
        "total": measured.arena_used_bytes,
        "head": measured.head_bytes,
        "tail": measured.tail_bytes,
    }
    obeyed = {buffer.name: buffer.offset for buffer in measured.buffers}
    assert all(obeyed[t.name or ""] == offset for t, offset in zip(tensors, offsets) if offset >= 0)
    x = tensors[0]
    inputs = [np.full(x.shape or (), 3, tflm.schema.ELEMENT_TYPES[x.type].dtype)]
    assert_close(run(planned, [inputs])[0], run(model, [inputs])[0])


def test_one_offline_plan_serves_the_tensors_of_all_subgraphs(oracle: Oracle) -> None:
    model = with_plan(models.counter(models.FLOAT32, 4, with_init=True), [64, -1, 0, 32, -1, -1])
    measured = tflm.measure_arena(tflm.Model(model), tflm.AllOpsResolver(), target=tflm.targets.HOST_WHEEL)
    assert {buffer.name: buffer.offset for buffer in measured.buffers} == {"x": 64, "state": 0, "y": 32}
    assert printed_figures(oracle.allocations(model))["head"] == measured.head_bytes == 80


def test_an_arena_of_any_size_that_is_too_small_names_what_lacks_how_much() -> None:
    model = tflm.Model.from_file(EXAMPLE / "hello_world_int8.tflite")
    needed = tflm.measure_arena(model, tflm.AllOpsResolver()).minimum_arena_bytes
    lacking = set()
    for size in range(0, needed - 16, 8):  # of which alignment may take 16
        with pytest.raises(tflm.ArenaError) as error:
            tflm.MicroInterpreter(model, tflm.AllOpsResolver(), bytearray(size)).allocate_tensors()
        found = re.match(
            r"the arena is too small for (.*): ([\d,]+) bytes .*, ([\d,]+) available, ([\d,]+)", str(error.value)
        )
        assert found is not None
        requested, available, missing = (int(each.replace(",", "")) for each in found.groups()[1:])
        assert requested == available + missing
        assert 0 < missing <= needed - size
        lacking.add(found[1])
    assert {"3 x NodeAndRegistration", "SubgraphAllocations", "TfLiteFullyConnectedParams"} <= lacking
