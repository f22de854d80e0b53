"""Write figures of operators as node data for Google's Model Explorer, which colours its nodes by them.

Each file has one figure, by the name of the graph and a key of the node. The key is the operator's index in the
subgraph. If a tensor has that number as its name, the key means the operator that writes the tensor.
"""

from __future__ import annotations

import collections
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tflm.atomic_write import write_atomically
from tflm.graph import multiply_accumulates
from tflm.memory import ARENA_ALIGNMENT
from tflm.runtime.micro_measurement import alive_at_each_step, covered_bytes
from tflm.runtime.micro_measurement_report import ArenaMeasurement
from tflm.schema.model import Model
from tflm.schema.tables import SubGraph

Place = tuple[int, int]
"""An operator: its subgraph, and its index there."""

Figures = Mapping[Place, float]

GRADIENT = ({"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#d9480f"})


def write_node_data(path: Path, model: Model, figures: Mapping[str, Figures]) -> list[Path]:
    """Write the first figure to `path`, and the others next to it with their names before the suffix.

    Raises:
        OSError: a file cannot be written.
    """
    written: list[Path] = []
    for name, of_operators in figures.items():
        file = path.with_suffix(f".{name.replace(' ', '_')}{path.suffix}") if written else path
        write_atomically(file, json.dumps(_node_data(model, name, of_operators), indent=2).encode())
        written.append(file)
    return written


def _node_data(model: Model, name: str, figures: Figures) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for (subgraph_index, operator_index), value in figures.items():
        key = _key(model.subgraphs[subgraph_index], operator_index)
        graph = document.setdefault(
            _graph_id(model, subgraph_index), {"name": name, "results": {}, "gradient": GRADIENT}
        )
        if key is not None:
            graph["results"][key] = {"value": value}
    return document


def _graph_id(model: Model, index: int) -> str:
    """Return the explorer's name of a subgraph: its own, or that of its signature."""
    keys = (each.signature_key for each in model.root.signature_defs or () if each.subgraph_index == index)
    unnamed = f"subgraph_{index}" if index else "main"
    return model.subgraphs[index].name or next(keys, None) or unnamed


def _key(subgraph: SubGraph, index: int) -> str | None:
    """Return the key of a node; None if it is ambiguous."""
    names = [tensor.name for tensor in subgraph.tensors or ()]
    if str(index) not in names:
        return str(index)
    outputs = (names[tensor] for tensor in (subgraph.operators or [])[index].outputs or ())
    return next((name for name in outputs if name and names.count(name) == 1), None)


def arena_figures(measured: ArenaMeasurement) -> dict[str, Figures]:
    """Return bytes of the head at each operator: those alive, and those of its own outputs and scratch buffers.

    An operator that runs at several steps has its largest values.
    """
    alive: dict[Place, int] = collections.defaultdict(int)
    own: dict[Place, int] = collections.defaultdict(int)
    used = [buffer for buffer in measured.buffers if buffer.last_use >= 0]
    for step, buffers in alive_at_each_step(used, len(measured.places)):
        subgraph_index, operator_index = measured.places[step]
        if operator_index is not None:
            place = subgraph_index, operator_index
            alive[place] = max(alive[place], covered_bytes(buffers, ARENA_ALIGNMENT))
            own[place] = max(own[place], sum(buffer.bytes for buffer in buffers if buffer.first_use == step))
    return {"bytes alive": alive, "own bytes": own}


def work_figures(model: Model) -> Figures:
    """Return the multiply-accumulates of one run of each operator."""
    return {
        (i, j): multiply_accumulates(model, subgraph, operator)
        for i, subgraph in enumerate(model.subgraphs)
        for j, operator in enumerate(subgraph.operators or ())
    }
