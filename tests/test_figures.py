"""Plans, smaller graphs and streaming forms of generated models get no larger; `make figures` records them."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from image_graphs import Images, shrinking_network
from networks import branches

import tflm
from tflm.planning.memories_plan import MemoriesPlan
from tflm.schema import BuiltinOperator, ModelBuilder, Padding

RECORDED = Path(__file__).with_name("recorded") / "figures.json"
EXAMPLES = Path(__file__).parents[1] / "examples" / "hello_world"
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
    "wide": wide,
    "window": window,
    "dense": lambda: tflm.Model.from_file(EXAMPLES / "hello_world_int8.tflite"),
}
"""Models by name."""

model = functools.cache(lambda name: MODELS[name]())
M4: dict[str, Any] = {"target": "cortex-m4"}

ALIASES: list[dict[str, bool]] = [{"views": False}, {"in_place": True}, {"overlap": True}, {"reorder": True}]


def plans(name: str) -> Figures:
    """Bytes of the head with each kind of aliases, on its own and with CMSIS-NN."""
    return {
        f"{kernels} {'+'.join(aliases)}": tflm.plan(model(name), kernels=kernels, **aliases, **M4).head_bytes
        for kernels in ("reference", "cmsis-nn")
        for aliases in (*ALIASES, {"overlap": True, "reorder": True})
    }


def plans_in_memories(name: str) -> Figures:
    """The cost of plans for a small fast memory and a large slow one, and how much the fast one is used."""
    whole = tflm.measure_arena(model(name), RESOLVER, **M4)
    found: Figures = {}
    for share in (0.4, 0.8):
        memories = [("fast", int(whole.head_bytes * share), 1), ("slow", whole.minimum_arena_bytes, 6)]
        for aliases in ALIASES:
            plan: MemoriesPlan = tflm.plan(model(name), memories=memories, **aliases, **M4)
            found[f"{share} {'+'.join(aliases)}"] = plan.cost
    return found


def tiles(name: str) -> Figures:
    """Arena, extra work and operators of graphs in bands, with a head of its own, too."""
    one = tflm.tile(model(name), **M4)
    two = tflm.tile(model(name), tail_ram=1 << 20, max_extra_macs=0.5, **M4)
    assert two.separate is not None
    return {
        "arena": one.minimum_arena_bytes,
        "extra work": one.extra_macs,
        "operators": len(one.model.subgraphs[0].operators or ()),
        "head": two.separate.after.head_arena_bytes,
        "tail": two.separate.after.tail_arena_bytes,
    }


def streams(name: str) -> Figures:
    """State and work of the streaming form, by hop."""
    found: Figures = {}
    for hop in (2, 4):
        made = tflm.stream(model(name), hop=hop)
        found |= {f"{hop} state": made.state_bytes, f"{hop} work": made.macs, f"{hop} warm-up": made.warm_up}
    return found


KINDS: dict[Callable[[str], Figures], tuple[str, ...]] = {
    plans: ("branches", "shrinking", "parts", "wide", "window"),
    plans_in_memories: ("branches", "shrinking", "parts", "wide"),
    tiles: ("branches", "shrinking"),
    streams: ("window",),
}


def require_no_larger(kind: Callable[[str], Figures], name: str) -> None:
    """Compare the figures of a model with the recorded ones."""
    recorded: Figures = json.loads(RECORDED.read_text(encoding="utf-8"))[f"{kind.__name__} {name}"]
    found = kind(name)
    assert found.keys() == recorded.keys()
    assert {key: value for key, value in found.items() if value > recorded[key]} == {}


@pytest.mark.parametrize("name", KINDS[plans])
def test_plans_get_no_larger(name: str) -> None:
    require_no_larger(plans, name)


@pytest.mark.parametrize("name", KINDS[plans_in_memories])
def test_plans_in_memories_cost_no_more(name: str) -> None:
    require_no_larger(plans_in_memories, name)


@pytest.mark.parametrize("name", KINDS[tiles])
def test_graphs_in_bands_get_no_larger(name: str) -> None:
    require_no_larger(tiles, name)


@pytest.mark.parametrize("name", KINDS[streams])
def test_streams_get_no_larger(name: str) -> None:
    require_no_larger(streams, name)


if __name__ == "__main__":
    found = {f"{kind.__name__} {name}": kind(name) for kind, names in KINDS.items() for name in names}
    RECORDED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
