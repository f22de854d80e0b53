"""Versions of operators: what each needs, what the real models need, and models that are updated."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from differential import assert_close, assert_same_as_tflm, run
from oracle import Oracle

import tflm
from tflm import versioning
from tflm.firmware.device_check import check_device
from tflm.kernels import REGISTRATIONS
from tflm.schema import (
    BuiltinOperator,
    ModelBuilder,
    SoftmaxOptions,
    SparsityParameters,
    TensorType,
    options,
    quantized,
)
from tflm.versioning.rules import WITHOUT_KERNEL, versions_of

TYPES = {
    **{f"f{bits}": TensorType[f"FLOAT{bits}"] for bits in (16, 32, 64)},
    **{f"i{bits}": TensorType[f"INT{bits}"] for bits in (2, 4, 8, 16, 32, 64)},
    **{f"u{bits}": TensorType[f"UINT{bits}"] for bits in (4, 8, 16, 32)},
    "bf16": TensorType.BFLOAT16,
    "b": TensorType.BOOL,
    "s": TensorType.STRING,
    "c64": TensorType.COMPLEX64,
    "f8": TensorType.FLOAT8_E4M3FN,
    "g8": TensorType.FLOAT8_E5M2,
}

SHARED_OPTIONS = {
    "AVERAGE_POOL_2D": "Pool2D",
    "MAX_POOL_2D": "Pool2D",
    "UNIDIRECTIONAL_SEQUENCE_RNN": "SequenceRNN",
    "ARG_MAX": "ArgMax",
}
"""Operators whose options are not called as they are."""

SPARSE = {"FULLY_CONNECTED": {8}}
"""Versions that the table has no case of, as it has no sparse tensors."""


def table() -> Iterator[tuple[str, int, str, str, str]]:
    """Each case of the table: operator, version, inputs, outputs, options."""
    for line in (Path(__file__).parent / "operator_version_table.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        operators, _, cases = line.partition(": ")
        for operator in operators.split():
            for case in cases.split("; "):
                match = re.fullmatch(r"(\d+)=(\S+)>(\S+)((?: \w+=\d)*)", case)
                assert match, case
                yield operator, int(match[1]), match[2], match[3], match[4]


def options_of(operator: str, values: str) -> Any:
    """Return an operator's options with some values, otherwise the schema's defaults; None if it has none."""
    name = SHARED_OPTIONS.get(operator, operator.replace("_", ""))
    tables = {kind.casefold(): getattr(options, kind) for kind in dir(options) if kind.endswith("Options")}
    kind = tables.get(f"{name}Options".casefold())
    given = dict(value.split("=") for value in values.split())
    if kind is None:
        assert not given
        return None
    made = kind()
    for field, value in given.items():
        setattr(made, field, type(getattr(made, field))(int(value)))
    return made


def built(operator: str, inputs: str, outputs: str, values: str) -> tflm.schema.Model:
    """A model of one operator."""
    builder = ModelBuilder()
    main = builder.subgraph()

    def tensors(side: str) -> list[int]:
        texts = re.findall(r"(?:bf\d+|[a-z]\d*|\?)(?:\[[\d,]*\])?(?:~[\d.]+(?:,[\d.]+)*(?:@\d)?)?", side)
        assert ",".join(texts) == side
        return [tensor(text) for text in texts]

    def tensor(text: str) -> int:
        if text == "?":
            return -1
        match = re.fullmatch(r"([a-z]+\d*)(?:\[([\d,]*)\])?(?:~([\d.,]+)(?:@(\d))?)?", text)
        assert match, text
        shape = tuple(map(int, match[2].split(","))) if match[2] else (4,)
        scales = [float(scale) for scale in match[3].split(",")] if match[3] else []
        quantization = quantized(scales, 0, int(match[4] or 0)) if scales else None
        return main.tensor(text, shape, TYPES[match[1]], quantization)

    given = options_of(operator, values)
    main.operator(BuiltinOperator[operator], tensors(inputs), tensors(outputs), given)
    return builder.model


@pytest.mark.parametrize("operator", dict.fromkeys(name for name, *_ in table()))
def test_each_branch_of_each_rule(operator: str) -> None:
    """The expected versions restate TFLite's own tool; the builder writes them."""
    cases = [(version, parts) for name, version, *parts in table() if name == operator]
    ruled = versions_of(BuiltinOperator[operator]).keys()
    assert {version for version, _ in cases} >= ruled - SPARSE.get(operator, set())
    for version, parts in cases:
        (found,) = versioning.operator_versions(built(operator, *parts))
        assert (found.operator.name, found.needed, found.version) == (operator, version, version), parts


def test_the_table_has_every_operator_that_has_a_rule() -> None:
    ruled = {name for name, registration in REGISTRATIONS.items() if registration.versions} | set(WITHOUT_KERNEL)
    assert {name for name, *_ in table()} >= ruled
    assert len(ruled) == 89


def test_operators_without_a_kernel_have_none() -> None:
    assert not WITHOUT_KERNEL.keys() & REGISTRATIONS.keys()


def test_sparse_weights() -> None:
    model = built("FULLY_CONNECTED", "f32,f32,f32", "f32", "")
    weights = model.subgraphs[0].tensors[1]
    weights.sparsity = SparsityParameters()
    assert [found.needed for found in versioning.operator_versions(model)] == [8]


def test_every_rule_says_what_it_brought() -> None:
    for operator in BuiltinOperator:
        for version in versions_of(operator):
            lowest = operator is BuiltinOperator.BROADCAST_TO and version == 2
            assert bool(versioning.brought_by(operator, version)) != lowest


# Models.


def test_real_models_need_what_is_recorded(corpus: Path) -> None:
    lines = (corpus / "golden" / "versions.jsonl").read_text().splitlines()
    assert len(lines) == 61
    for recorded in map(json.loads, lines):
        root = tflm.Model.from_file(corpus / "models" / f"{recorded['model']}.tflite").root
        found = [[op.operator.name, op.version, op.needed] for op in versioning.operator_versions(root)]
        assert found == recorded["operators"]
        assert versioning.runtime_of(root) == recorded["runtime_of_the_file"]
        assert versioning.runtime_needed(root) == recorded["runtime_needed"]


def test_real_models_are_brought_to_what_they_need_and_answer_the_same(corpus: Path) -> None:
    differing = 0
    for path in sorted((corpus / "models").glob("*.tflite")):
        if path.stat().st_size > 400_000:
            continue
        model = tflm.Model.from_file(path)
        before = versioning.operator_versions(model.root)
        updated = tflm.Model(tflm.update_versions(model), checks="tflm")
        after = versioning.operator_versions(updated.root)
        assert [(op.operator, op.needed or op.version) for op in before] == [(op.operator, op.version) for op in after]
        assert versioning.min_runtime_version(updated.root) == versioning.runtime_needed(model.root)
        assert len(updated.metadata("min_runtime_version") or b"") == 16  # as the converter writes it
        assert all(updated.operator_codes.count(code) == 1 for code in updated.operator_codes)
        raised = versioning.operator_versions(tflm.Model(tflm.update_versions(model, downgrade=False), "tflm").root)
        assert [max(op.version, op.needed or 0) for op in before] == [op.version for op in raised]
        assert [subgraph.tensors for subgraph in updated.subgraphs] == [
            subgraph.tensors for subgraph in model.subgraphs
        ]
        differing += before != after
    assert differing > 5


def relu(version: int | None) -> bytes:
    """A model whose only operator needs version 2."""
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (4,), TensorType.INT8, quantized(1.0))
    y = main.tensor("y", (4,), TensorType.INT8, quantized(1.0))
    main.operator(BuiltinOperator.RELU, [x], [y], version=version)
    main.output(y)
    return builder.build()


def answers(model: bytes) -> list[int]:
    interpreter = tflm.MicroInterpreter(tflm.Model(model), tflm.AllOpsResolver(), bytearray(4096))
    interpreter.allocate_tensors()
    interpreter.input(0).data[:] = [-1, 0, 1, 2]
    interpreter.invoke()
    return interpreter.output(0).data.tolist()  # type: ignore[no-any-return]


def versions_in(model: bytes) -> list[int]:
    return [operator.version for operator in versioning.operator_versions(tflm.Model(model).root)]


def test_the_builder_writes_what_is_needed_unless_it_is_told_another() -> None:
    assert [versions_in(relu(version)) for version in (None, 1, 3)] == [[2], [1], [3]]


def test_an_old_file_means_what_it_meant_and_a_new_one_can_be_brought_to_an_older_version() -> None:
    old, new = relu(1), relu(3)
    assert answers(old) == answers(new) == answers(relu(None)) == [0, 0, 1, 2]
    assert versions_in(tflm.update_versions(tflm.Model(old))) == [2]
    assert versions_in(tflm.update_versions(tflm.Model(new))) == [2]
    assert versions_in(tflm.update_versions(tflm.Model(new), downgrade=False)) == [3]
    assert answers(tflm.update_versions(tflm.Model(new))) == [0, 0, 1, 2]


def test_operators_that_shared_a_code_get_one_each_where_they_need_different_versions() -> None:
    builder = ModelBuilder()
    main, other = builder.subgraph(), builder.subgraph()
    x, z = main.input("x", (4,), TensorType.INT8, quantized(1.0)), main.input("z", (4,), TensorType.FLOAT32)
    y, w = main.tensor("y", (4,), TensorType.INT8, quantized(1.0)), main.tensor("w", (4,), TensorType.FLOAT32)
    main.operator(BuiltinOperator.RELU, [x], [y], version=3)
    main.operator("mine", [z], [w], version=7)
    main.output(y, w)
    u, v = other.input("u", (4,), TensorType.FLOAT32), other.tensor("v", (4,), TensorType.FLOAT32)
    other.operator(BuiltinOperator.RELU, [u], [v], version=3)
    other.output(v)
    model = tflm.Model(builder.build())
    updated = tflm.update_versions(model)
    assert [(each.place, each.reason, each.level) for each in versioning.version_findings(model.root)] == [
        (f"subgraphs[{i}].operators[0]", f"RELU says version 3 and needs {n}: version 3 brought INT16", "warning")
        for i, n in enumerate((2, 1))
    ]
    assert list(versioning.version_findings(tflm.Model(updated).root)) == []
    assert versions_in(updated) == [2, 7, 1]
    assert len(tflm.Model(updated).operator_codes) == 3


def test_metadata_takes_the_place_of_what_was_there() -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (4,), TensorType.INT8, quantized(1.0))
    main.output(x)
    builder.metadata("min_runtime_version", b"9.9.9".ljust(16, b"\0"))
    builder.metadata("mine", b"kept")
    model = tflm.Model(builder.build())
    assert versioning.min_runtime_version(model.root) == "9.9.9"
    (finding,) = versioning.version_findings(model.root)
    assert finding.reason == "min_runtime_version is 9.9.9, its operators need none"
    assert (finding.table, finding.field, finding.level) == ("Model", "metadata", "warning")
    updated = tflm.Model(tflm.update_versions(model))
    assert versioning.min_runtime_version(updated.root) == ""
    assert bytes(updated.metadata("mine") or b"") == b"kept"
    assert len(updated.root.metadata or ()) == 2


def softmax(version: int) -> bytes:
    """A float model of SOFTMAX that asks for a version."""
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (4,), TensorType.FLOAT32)
    y = main.tensor("y", (4,), TensorType.FLOAT32)
    main.operator(BuiltinOperator.SOFTMAX, [x], [y], SoftmaxOptions(beta=1.0), version=version)
    main.output(y)
    return builder.build()


@pytest.mark.parametrize("version", [-(2**31), 0, 4, 2**31 - 1])
@pytest.mark.parametrize("delegates", [None, ()])
def test_versions_do_not_count_in_tflm_and_not_here(oracle: Oracle, version: int, delegates: Any) -> None:
    inputs = [[np.arange(4, dtype=np.float32)]]
    assert_same_as_tflm(oracle, softmax(version), inputs, delegates=delegates)
    assert_close(run(softmax(version), inputs)[0], run(softmax(1), inputs)[0])


@pytest.mark.parametrize("resolver", [tflm.AllOpsResolver, partial(tflm.MicroMutableOpResolver, 1)])
def test_a_strict_resolver_refuses_a_version_that_is_too_new_with_what_it_brought(
    resolver: Callable[..., tflm.MicroMutableOpResolver],
) -> None:
    strict = resolver(strict_versions=True)
    if "SOFTMAX" not in strict:
        strict.add_softmax()
    tflm.measure_arena(tflm.Model(softmax(3)), strict)
    with pytest.raises(tflm.UnresolvedOperator, match=r"SOFTMAX version 4, which brought FLOAT16, .* versions 1 to 3"):
        tflm.measure_arena(tflm.Model(softmax(4)), strict)


def test_a_version_that_the_kernel_does_not_implement_is_a_warning() -> None:
    assert tflm.verify(softmax(3)) == []
    assert ["requests SOFTMAX version 0" in str(finding) for finding in tflm.verify(softmax(0))] == [True]
    (finding,) = tflm.verify(softmax(4))
    assert finding.level == "warning"
    assert "requests SOFTMAX version 4, which brought FLOAT16" in str(finding)
    (on_device,) = check_device(tflm.Model(softmax(4)), target=tflm.targets.CORTEX_M)
    assert (on_device.stops, on_device.shown) == (False, True)
    assert "version 4" in on_device.happens
    assert check_device(tflm.Model(softmax(3)), target=tflm.targets.CORTEX_M) == []


@pytest.mark.parametrize("value", [b"model", "model.tflite", None])
def test_something_else_than_a_model_is_refused(value: Any) -> None:
    with pytest.raises(tflm.ArgumentError):
        tflm.update_versions(value)
