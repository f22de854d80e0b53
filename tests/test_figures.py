"""Plans, smaller graphs and streaming forms of generated models are those that `make figures` recorded."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from example_models import EXAMPLE
from image_graphs import Images, shrinking_network
from large_operators import LARGE
from networks import branches
from test_planners import random_graph, tight_problem

import tflm
from tflm.memory import SearchLimits, plan_bytes, search_plan
from tflm.memory.buffer import Buffer
from tflm.memory.planners import place_by_breadth, place_greedily, place_in_best_fit
from tflm.memory.several_memories import Memory, place_in_memories
from tflm.planning.memories_plan import MemoriesPlan
from tflm.planning.plan_report import ModelPlan
from tflm.runtime.micro_measurement import measure_separate_arenas
from tflm.runtime.traffic import traffic
from tflm.schema import BuiltinOperator, ModelBuilder, Padding

RECORDED = Path(__file__).with_name("recorded") / "figures.json"
RESOLVER = tflm.AllOpsResolver()
Figures = dict[str, Any]


def window() -> tflm.Model:
    """A network over a window of frames, with strides, a pool and layers of the whole window."""
    builder = ModelBuilder()
    images = Images(builder.subgraph(), (1, 24, 6, 2))
    x = images.convolution(images.last, 4, strides=(2, 1), padding=Padding.VALID)
    x = images.pool(
        images.convolution(x, taps=(3, 1), padding=Padding.VALID),
        BuiltinOperator.MAX_POOL_2D,
        (2, 1),
        (1, 1),
        Padding.VALID,
    )
    images.main.output(images.convolution(x, 3, (images.shapes[x][1], 1), padding=Padding.VALID))
    return tflm.Model(builder.build())


def parts() -> tflm.Model:
    """Parts of an image, each changed on its own, and put together again."""
    builder = ModelBuilder()
    images = Images(builder.subgraph(), (1, 8, 6, 4))
    x = images.element_wise(images.last)
    top, rest = images.cropped(x, 0, 3), images.cropped(x, 3, 5)
    other = images.convolution(images.pad(rest, (0, 0), (1, 1)), 12, strides=(2, 2), padding=Padding.VALID)
    both = images.beside(top, images.cropped(x, 4, 3))
    both = images.beside(both, images.cropped(rest, 1, 3, 1, 2))
    images.convolution(other, 2, (1, 1))
    images.main.output(images.element_wise(images.convolution(both, 2, (1, 1))))
    return tflm.Model(builder.build())


def striding() -> tflm.Model:
    """Convolutions of which the first one strides: rows that are fed take more instructions in the least RAM."""
    builder = ModelBuilder()
    images = Images(builder.subgraph(), (1, 24, 24, 3))
    x = images.convolution(images.last, 8, strides=(2, 2))
    images.main.output(images.convolution(images.convolution(x, 8), 8))
    return tflm.Model(builder.build())


def wide() -> tflm.Model:
    """Branches that all grow before the first of them shrinks."""
    builder = ModelBuilder()
    images = Images(builder.subgraph(), (1, 4, 4, 2))
    x = images.last
    grown = [images.convolution(x, channels, (1, 1)) for channels in (16, 6, 24, 10)]
    small = [images.convolution(each, 3, (1, 1)) for each in grown]
    images.main.output(functools.reduce(images.add, small))
    return tflm.Model(builder.build())


MODELS: dict[str, Callable[[], tflm.Model]] = {
    "branches": lambda: branches(16),
    "shrinking": lambda: shrinking_network(32),
    "parts": parts,
    "striding": striding,
    "wide": wide,
    "window": window,
    "dense": lambda: tflm.Model.from_file(EXAMPLE / "hello_world_int8.tflite"),
}
"""Models by name."""

model = functools.cache(lambda name: MODELS[name]())
M4: dict[str, Any] = {"target": "cortex-m4"}

ALIASES: list[dict[str, bool]] = [{"views": False}, {"in_place": True}, {"overlap": True}, {"reorder": True}]


def digest(data: bytes) -> str:
    """The first digits of a hash."""
    return hashlib.sha256(data).hexdigest()[:16]


def layouts(name: str) -> Figures:
    """Parts of the arena, places of buffers and traffic of an operator, by kernels and planner."""
    found: Figures = {}
    one = tflm.Model(LARGE[name]()[0])
    for kernels, planner in (("reference", "greedy"), ("cmsis-nn", "tflite"), ("esp-nn", "linear")):
        target = "esp32s3" if kernels == "esp-nn" else "cortex-m4"
        of = tflm.measure_arena(one, RESOLVER, target=target, kernels=kernels, planner=planner)
        places = [(b.size, b.first_use, b.last_use, b.offset, b.name, b.kind) for b in of.buffers]
        records = [(kind.name, *dataclasses.astuple(record)) for kind, record in of.records.items()]
        rest = digest(repr((places, records, of.steps, [*map(tuple, of.places)], str(of.peak))).encode())
        parts = [of.arena_used_bytes, of.head_bytes, of.minimum_arena_bytes, of.temp_bytes, of.recording_tail_bytes]
        found[f"{kernels} {planner}"] = [*parts, *dataclasses.astuple(traffic(one, of)), rest]
    separate = measure_separate_arenas(one, RESOLVER, **M4)
    return found | {"separate": [separate.head_arena_bytes, separate.tail_arena_bytes]}


def plans(name: str) -> Figures:
    """Bytes of the head with each kind of aliases, on its own and with CMSIS-NN, and a digest of the planned model."""
    found: Figures = {}
    for kernels in ("reference", "cmsis-nn"):
        for aliases in (*ALIASES, {"overlap": True, "reorder": True}):
            plan: ModelPlan = tflm.plan(model(name), kernels=kernels, **aliases, **M4)
            found[f"{kernels} {'+'.join(aliases)}"] = [plan.head_bytes, digest(plan.data)]
    return found


def plans_in_memories(name: str) -> Figures:
    """Costs of plans for a small fast memory and a large slow one, with bound and rivals, and digests of the places."""
    whole = tflm.measure_arena(model(name), RESOLVER, **M4)
    found: Figures = {}
    for share in (0.4, 0.8):
        memories = [("fast", int(whole.head_bytes * share), 1), ("slow", whole.minimum_arena_bytes, 6)]
        for aliases in ALIASES:
            plan: MemoriesPlan = tflm.plan(model(name), memories=memories, **aliases, **M4)
            places = repr([[*spot] for spot in plan.spots]).encode()
            found[f"{share} {'+'.join(aliases)}"] = [
                *(plan.cost, plan.lower_bound, plan.arena_bytes, *plan.rivals.values()),
                digest(places + plan.data),
            ]
    return found


def crowded(count: int, seed: int) -> list[Buffer]:
    """Buffers that live long, of sizes that hardly fit together, of which every fourth has an offline offset.

    Sizes are multiples of 16 bytes, or of one byte if the seed is odd.
    """
    rng = np.random.default_rng(seed)
    sizes, steps, lives = (rng.integers(*of, count).tolist() for of in ((1, 60), (0, 20), (1, 12)))
    unit = 1 if seed % 2 else 16
    free = [Buffer(unit * size, step, step + life) for size, step, life in zip(sizes, steps, lives)]
    offsets = [-1 if i % 4 else offset for i, offset in enumerate(place_by_breadth(free))]
    return [Buffer(of.size, of.first_use, of.last_use, offset) for of, offset in zip(free, offsets)]


def searches(name: str) -> Figures:
    """Results of searches in random buffers, cut short after some steps."""
    found: Figures = {}
    problems = [tight_problem(int(name), 1), *(crowded(int(name), seed) for seed in (0, 1, 3))]
    for (i, problem), steps in itertools.product(enumerate(problems), (1, 2000)):
        plan = search_plan(problem, SearchLimits(seconds=None, steps=steps))
        places = digest(repr([*map(int, plan.offsets)]).encode())
        found[f"{i} {steps}"] = [plan.head_bytes, plan.lower_bound_bytes, plan.steps, plan.stopped.name, places]
    return found


def placements(name: str) -> Figures:
    """Places of random buffers by each heuristic."""
    buffers = random_graph(int(name))
    offsets = {place.__name__: place(buffers) for place in (place_greedily, place_in_best_fit, place_by_breadth)}
    return {key: [plan_bytes(buffers, of), digest(repr([*map(int, of)]).encode())] for key, of in offsets.items()}


def placements_in_memories(name: str) -> Figures:
    """Costs, bounds and places of random buffers in three memories, by effort and number of assignments."""
    buffers = random_graph(int(name), 1)
    traffic = [size * (1 + i % 5) for i, (size, *_) in enumerate(buffers)]
    found: Figures = {}
    for share, effort, states in ((4, 1, 2048), (4, 2, 2048), (9, 1, 2048), (9, 1, 16), (6, 1, 5)):
        room = plan_bytes(buffers, place_greedily(buffers)) // share
        memories = [Memory("b", 2 * room, 3), Memory("a", room, 1), Memory("c", 99 * room, 10)]
        with mock.patch("tflm.memory.several_memories.MAX_STATES", states):
            made = place_in_memories([Buffer(*each) for each in buffers], traffic, memories, effort)
        places = digest(repr([[*of] for of in made.spots]).encode())
        found[f"{share} {effort} {states}"] = [made.cost, made.lower_bound, places]
    return found


def tiles(name: str) -> Figures:
    """Arena, extra work and digest of graphs in bands, with a head of its own, too."""
    one = tflm.tile(model(name), **M4)
    two = tflm.tile(model(name), tail_ram=1 << 20, max_extra_macs=0.5, **M4)
    assert two.separate is not None
    return {
        "arena": [one.minimum_arena_bytes, one.extra_macs, digest(one.model.data)],
        "separate": [
            two.separate.after.head_arena_bytes,
            two.separate.after.tail_arena_bytes,
            two.extra_macs,
            digest(two.model.data),
        ],
    }


def streams(name: str) -> Figures:
    """State, work and digest of the streaming form, by hop."""
    made = {hop: tflm.stream(model(name), hop=hop) for hop in (2, 4)}
    return {str(hop): [of.state_bytes, of.macs, of.warm_up, digest(of.model.data)] for hop, of in made.items()}


KINDS: dict[Callable[[str], Figures], tuple[str, ...]] = {
    layouts: (
        *("IF-INT8", "WHILE-FLOAT32", "CIRCULAR_BUFFER", "TFLite_Detection_PostProcess-fast", "TFLM_DECODE"),
        *("SVDF-INT8-INT16", "UNIDIRECTIONAL_SEQUENCE_LSTM-INT16", "CONV_2D-INT8", "SignalStacker", "SPLIT-INT8"),
    ),
    plans: ("branches", "shrinking", "parts", "wide", "window"),
    plans_in_memories: ("branches", "shrinking", "parts", "wide"),
    searches: ("12", "24", "40"),
    placements: ("60",),
    placements_in_memories: ("12", "20"),
    tiles: ("branches", "shrinking"),
    streams: ("window",),
}


CASES = [(kind, name) for kind, names in KINDS.items() for name in names]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_plans_are_those_that_were_recorded(kind: Callable[[str], Figures], name: str) -> None:
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    assert kind(name) == recorded[f"{kind.__name__} {name}"]


if __name__ == "__main__":
    lines = (f"{json.dumps(f'{kind.__name__} {name}')}: {json.dumps(kind(name))}" for kind, name in CASES)
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
