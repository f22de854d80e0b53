"""Figures of operators in Google's Model Explorer: every node has its own."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from example_models import INT8_MODEL
from typer.testing import CliRunner

import tflm
from tflm.application.node_data import _graph_id, _key, arena_figures
from tflm.c.instructions import COUNTED_BUILDS
from tflm.cli.app import app
from tflm.schema import BuiltinOperator, SplitOptions, TensorType

MODELS = (
    "ad01_int8",
    "audio_preprocessor_int8",
    "dtln_noise_suppression",
    "hello_world_float",
    "keyword_scrambled_8bit",
    "kws_ref_model",
    "okay_nabu_v2",
    "person_detect",
    "pretrainedResnet_quant",
    "trained_lstm",
    "vww_96_int8",
)


def chain(names: list[str]) -> bytes:
    """Operators one after the other, from a tensor of the first name to one of the last."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    tensors = [main.input(names[0], (1, 8), TensorType.FLOAT32)]
    tensors += [main.tensor(name, (1, 8), TensorType.FLOAT32) for name in names[1:]]
    for i in range(len(names) - 1):
        main.operator(BuiltinOperator.RELU, [tensors[i]], [tensors[i + 1]])
    main.output(tensors[-1])
    return builder.build()


def node_data(call: str, model: Path, folder: Path) -> list[dict[str, Any]]:
    """The files that a command writes."""
    answer = CliRunner().invoke(app, [*call.split(), str(model), "--node-data", str(folder / "data.json")])
    assert answer.exit_code == 0, answer.output
    return [json.loads(file.read_text()) for file in sorted(folder.glob("data*.json"))]


def test_the_most_that_is_alive_is_the_peak_and_outputs_are_an_operators_own(tmp_path: Path) -> None:
    alive, own = node_data("arena -t cortex-m", INT8_MODEL, tmp_path)
    measured = tflm.measure_arena(tflm.Model.from_file(INT8_MODEL), tflm.AllOpsResolver(), target=tflm.targets.CORTEX_M)
    name = tflm.Model.from_file(INT8_MODEL).subgraphs[0].name or "main"
    values = {key: result["value"] for key, result in alive[name]["results"].items()}
    assert max(values.values()) == measured.peak.bytes
    assert values[str(measured.peak.operator_index)] == measured.peak.bytes
    assert [result["value"] for result in own[name]["results"].values()] == [16, 16, 1]


def test_an_operator_with_several_outputs_has_their_sum(tmp_path: Path) -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    axis = main.constant("axis", np.array(1, np.int32))
    x = main.input("x", (1, 48), TensorType.FLOAT32)
    parts = [main.tensor(f"y{i}", (1, 24), TensorType.FLOAT32) for i in range(2)]
    main.operator(BuiltinOperator.SPLIT, [axis, x], parts, SplitOptions(num_splits=2))
    main.output(*parts)
    (tmp_path / "m.tflite").write_bytes(builder.build())
    alive, own = node_data("arena", tmp_path / "m.tflite", tmp_path)
    (values,) = ([graph["main"]["results"]["0"]["value"] for graph in (alive, own)],)
    assert values == [2 * 4 * 48, 4 * 48]


def test_a_tensor_that_is_called_as_a_node_is_not_taken_for_it(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(chain(["0", "a", "1", "b"]))
    alive, _ = node_data("arena", tmp_path / "m.tflite", tmp_path)
    assert list(alive["main"]["results"]) == ["a", "1", "2"]


def test_profile_gives_time_and_work_of_every_operator(tmp_path: Path) -> None:
    time, work = node_data("profile --runs=1", INT8_MODEL, tmp_path)
    (times,), (works,) = ([graph["results"] for graph in each.values()] for each in (time, work))
    assert [works[key]["value"] for key in sorted(works)] == [16, 256, 16]
    assert sorted(times) == ["0", "1", "2"]
    assert all(result["value"] > 0 for result in times.values())


def test_estimates_are_those_of_the_operators(tmp_path: Path) -> None:
    model = tflm.Model.from_file(INT8_MODEL)
    program, estimate = tflm.compile_model(model).instructions, tflm.estimate(model, target="cortex-m4")
    build = COUNTED_BUILDS[-1]
    calls: dict[str, list[dict[str, object]]] = {
        "profile --compiled": [{str(i): program.operators[i][build] for i in range(3)}],
        "profile -t cortex-m4": [
            {str(op.operator_index): op.cycles for op in estimate.operators},
            {"0": 16, "1": 256, "2": 16},
        ],
    }
    for call, expected in calls.items():
        files = node_data(call, INT8_MODEL, tmp_path)
        found = [
            {key: result["value"] for key, result in graph["results"].items()}
            for data in files
            for graph in data.values()
        ]
        assert found == expected
        for file in tmp_path.iterdir():
            file.unlink()


def graphs_of(model: Path) -> dict[str, list[dict[str, Any]]]:
    """The nodes of each graph, as Model Explorer's own adapter has them."""
    adapter = pytest.importorskip(
        "ai_edge_model_explorer_adapter",
        reason="Model Explorer's adapter is not there (it is 500 MB: `make explorer` installs it and runs this)",
    )
    text = adapter.ConvertFlatbufferDirectlyToJson(adapter.VisualizeConfig(), str(model))
    return {graph["id"]: graph["nodes"] for collection in json.loads(text) for graph in collection["subgraphs"]}


def found_by(key: str, nodes: list[dict[str, Any]]) -> dict[str, Any]:
    """The node that a key stands for: the last one with an output tensor of that name, or the one with that number."""
    for node in reversed(nodes):
        for output in node["outputsMetadata"]:
            if {"key": "tensor_name", "value": key} in output["attrs"]:
                return node
    (node,) = (node for node in nodes if node["id"] == key)
    return node


def expect_every_node(data: dict[str, Any], model: Path, graphs: dict[str, list[dict[str, Any]]]) -> None:
    """Every graph is there, and in it every operator's node with a figure and no other node."""
    subgraphs = tflm.Model.from_file(model).subgraphs
    assert set(data) == set(graphs)
    for (name, nodes), subgraph in zip(graphs.items(), subgraphs):
        found = [found_by(key, nodes)["id"] for key in data[name]["results"]]
        assert sorted(found, key=int) == [str(i) for i in range(len(subgraph.operators or ()))]


@pytest.mark.parametrize("name", MODELS)
def test_every_node_of_model_explorers_graph_is_matched(name: str, corpus: Path, tmp_path: Path) -> None:
    model = corpus / "models" / f"{name}.tflite"
    graphs = graphs_of(model)
    for call in ("arena", "profile --runs=1"):
        for data in node_data(call, model, tmp_path):
            expect_every_node(data, model, graphs)


def test_names_that_are_numbers_match_in_model_explorer(tmp_path: Path) -> None:
    model = tmp_path / "m.tflite"
    model.write_bytes(chain(["0", "a", "1", "b", "4", "3"]))
    graphs = graphs_of(model)
    for data in node_data("arena", model, tmp_path):
        expect_every_node(data, model, graphs)


def test_a_graph_has_its_name_or_that_of_its_signature_or_its_number() -> None:
    builder = tflm.ModelBuilder()
    for name in ("", "", "named", ""):
        part = builder.subgraph(name)
        x, y = part.input("x", (1,), TensorType.FLOAT32), part.tensor("y", (1,), TensorType.FLOAT32)
        part.operator(BuiltinOperator.RELU, [x], [y])
        part.output(y)
    builder.signature("second", {"x": 0}, {"y": 1}, 1)
    builder.signature("third", {"x": 0}, {"y": 1}, 2)
    model = tflm.Model(builder.build())
    assert [_graph_id(model, i) for i in range(4)] == ["main", "second", "named", "subgraph_3"]
    assert _key(model.subgraphs[0], 0) == "0"


def test_a_name_of_several_tensors_is_no_key() -> None:
    main = tflm.Model(chain(["0", "a", "a", "1", "b"])).subgraphs[0]
    assert [_key(main, i) for i in range(4)] == [None, None, "2", "3"]


def test_an_operator_that_runs_at_several_steps_has_its_largest_values() -> None:
    """Also if that is not the last one. Buffers without use are not alive."""
    uses = [(48, 0, 0), (64, 1, 2), (32, 2, 2), (16, 3, 3), (128, -1, -1)]
    buffers = [SimpleNamespace(first_use=a, last_use=b, bytes=size, size=size, offset=0) for size, a, b in uses]
    places = [(0, None), (0, 0), (1, 0), (1, 0)]
    measured: Any = SimpleNamespace(buffers=buffers, places=places)
    assert arena_figures(measured) == {
        "bytes alive": {(0, 0): 64, (1, 0): 64},
        "own bytes": {(0, 0): 64, (1, 0): 32},
    }
