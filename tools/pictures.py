"""Draw the pictures of the documentation: `python tools/pictures.py [FOLDER_OF_MODELS]`.

The folder holds `vww_96_int8.tflite`, the visual wake words model of MLPerf Tiny. Without it, only the gallery is
drawn. Needs the extra `test` and chromium.
The same models give the same bytes for all but the screenshot.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import tflm
from tflm.graph import Graph
from tflm.rewriting.streaming.causal import stream_along
from tflm.rewriting.streaming.time_rules import Track
from tflm.runtime.micro_graph import MicroGraph
from tflm.runtime.micro_interpreter import lay_out
from tflm.runtime.recording_micro_allocator import LoggingMicroAllocator
from tflm.schema import BuiltinOperator, Conv2DOptions, Padding, TensorType

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
GALLERY = ROOT / "examples" / "gallery"
HELLO_WORLD = ROOT / "examples" / "hello_world" / "hello_world_int8.tflite"
VISUAL_WAKE_WORDS = "vww_96_int8.tflite"

MATPLOTLIB_SETTINGS = "svg.hashsalt: tflm\nsvg.fonttype: none\nfont.size: 11\n"
COLOURS = {"head": "#7fb3d5", "temp": "#f0c987", "tail": "#a9d18e"}
"""As in the page."""
ROWS = {"kept": COLOURS["head"], "computed": COLOURS["temp"], "needed no more": "#e4e4e4"}


def tflm_command(*arguments: object) -> None:
    """Run the command as a user does, with the settings that make its pictures reproducible."""
    subprocess.run([sys.executable, "-m", "tflm", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def draw_allocations(path: Path) -> None:
    """Every allocation of the hello world in the smallest arena that works, in the order in which they are made."""
    from matplotlib.figure import Figure

    model, target = tflm.Model.from_file(HELLO_WORLD), tflm.targets.CORTEX_M
    size = tflm.measure_arena(model, tflm.AllOpsResolver(), target=target).minimum_arena_bytes
    allocator = LoggingMicroAllocator(np.zeros(size, np.uint8), "greedy", target)
    lay_out(MicroGraph(model, tflm.AllOpsResolver()), allocator)
    figure = Figure(figsize=(10, 5), layout="constrained")
    axes = figure.subplots()
    for section, colour in COLOURS.items():
        places = [(i, a.offset, a.size) for i, a in enumerate(allocator.log) if a.section == section]
        numbers, offsets, sizes = zip(*places)
        axes.bar(numbers, sizes, bottom=offsets, width=0.9, color=colour, label=section)
    axes.set_xlabel("allocation, in the order in which they are made")
    axes.set_ylabel("offset in the arena (bytes)")
    axes.set_ylim(0, size)
    axes.set_title(f"{HELLO_WORLD.name}: allocations in an arena of {size:,} bytes on {target.name}")
    axes.legend(loc="upper right")
    figure.savefig(path)


def network_along_time(padding: Padding) -> tflm.Model:
    """Convolutions of 3, 5 and 3 rows over a window of 16 frames."""
    main = tflm.ModelBuilder().subgraph()
    rows = 16
    last = main.input("frames", (1, rows, 1, 1), TensorType.FLOAT32)
    for layer, taps in enumerate((3, 5, 3), 1):
        rows -= (taps - 1) * (padding == Padding.VALID)
        weights = main.constant("weights", np.ones((1, taps, 1, 1), np.float32))
        made = main.tensor(f"layer {layer}", (1, rows, 1, 1), TensorType.FLOAT32)
        options = Conv2DOptions(padding=padding, stride_h=1, stride_w=1)
        main.operator(BuiltinOperator.CONV_2D, [last, weights, -1], [made], options)
        last = made
    main.output(last)
    return tflm.Model(main.builder.build())


def draw_streaming(path: Path) -> None:
    """Rows of each layer that are kept and computed when a window moves by a frame, and what its last row reads."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    figure = Figure(figsize=(10, 5), layout="constrained")
    for axes, padding in zip(figure.subplots(2, 1, sharex=True), (Padding.VALID, Padding.SAME)):
        graph = Graph(network_along_time(padding))
        found = stream_along(graph, [1, 1, 1], 0, Track(1, 1, 16), 1)
        tensors = [0, *(output for operator in graph.operators for output in operator.outputs or ())]
        seen = {found.timeline.tensors[tensors[-1]].track.rows - 1}
        for level, tensor in reversed(list(enumerate(tensors))):
            shift = 16 - found.timeline.tensors[tensor].track.rows
            for row in range(16 - shift):
                plan = found.plan[tensor]
                held = {"computed": plan.computed, "kept": plan.kept}
                kinds = [kind for kind, ranges in held.items() if any(r.first <= row < r.end for r in ranges)]
                edge = "black" if row in seen else "white"
                axes.bar(
                    row + shift,
                    0.8,
                    bottom=level,
                    width=0.9,
                    color=ROWS[(kinds or ["needed no more"])[0]],
                    edgecolor=edge,
                    linewidth=1.5,
                )
            if level:
                rule = found.timeline.rules[level - 1]
                assert rule is not None
                seen = {read.row for row in seen for read in rule.reads(row) if read.row is not None}
        axes.set_yticks([level + 0.4 for level in range(len(tensors))], [graph.tensors[t].name for t in tensors])
        axes.set_title(f"{padding.name} padding")
    axes.set_xlabel("frames of the window; outlined: the receptive field of the newest row")
    handles = [Patch(color=colour, label=label) for label, colour in ROWS.items()]
    figure.legend(handles=handles, loc="outside right upper")
    figure.savefig(path)


def photograph_page(path: Path, page: Path) -> None:
    """The page with the pointer on one of the buffers."""
    from playwright.sync_api import sync_playwright

    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        sheet = browser.new_page(viewport={"width": 1360, "height": 780}, color_scheme="light")
        sheet.goto(page.as_uri())
        sheet.wait_for_selector("rect.buffer")
        sheet.locator("svg.map").first.locator("rect.buffer").nth(1).hover()
        sheet.screenshot(path=path)
        browser.close()


def main() -> None:
    """Draw all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="?", help="a folder with vww_96_int8.tflite")
    models = parser.parse_args().models
    (IMAGES / "gallery").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        settings, page = Path(folder, "matplotlibrc"), Path(folder, "arena.html")
        settings.write_text(MATPLOTLIB_SETTINGS)
        os.environ |= {"MATPLOTLIBRC": str(settings), "SOURCE_DATE_EPOCH": "0"}
        for example in GALLERY.glob("*.py"):
            subprocess.run([sys.executable, example, IMAGES / "gallery" / f"{example.stem}.svg"], check=True)
        if models is None:
            return
        vision = models / VISUAL_WAKE_WORDS
        tflm_command("arena", HELLO_WORLD, "--plot", IMAGES / "hello_world.svg")
        two = ("arena", vision, "--planner", "greedy", "--second-planner", "optimal")
        tflm_command(*two, "--plot", IMAGES / "greedy_beside_optimal.svg", "--html", page)
        tflm_command("tile", vision, "--plot", IMAGES / "bands.svg")
        draw_allocations(IMAGES / "allocations.svg")
        draw_streaming(IMAGES / "streaming.svg")
        photograph_page(IMAGES / "arena_page.png", page)


if __name__ == "__main__":
    main()
