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
from tflm.runtime.micro_graph import MicroGraph
from tflm.runtime.micro_interpreter import lay_out
from tflm.runtime.recording_micro_allocator import LoggingMicroAllocator

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
GALLERY = ROOT / "examples" / "gallery"
HELLO_WORLD = ROOT / "examples" / "hello_world" / "hello_world_int8.tflite"
VISUAL_WAKE_WORDS = "vww_96_int8.tflite"

MATPLOTLIB_SETTINGS = "svg.hashsalt: tflm\nsvg.fonttype: none\nfont.size: 11\n"
COLOURS = {"head": "#7fb3d5", "temp": "#f0c987", "tail": "#a9d18e"}
"""As in the page."""


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
        two = ("arena", vision, "--planner", "greedy", "--beside", "optimal")
        tflm_command(*two, "--plot", IMAGES / "greedy_beside_optimal.svg", "--html", page)
        tflm_command("tile", vision, "--plot", IMAGES / "bands.svg")
        draw_allocations(IMAGES / "allocations.svg")
        photograph_page(IMAGES / "arena_page.png", page)


if __name__ == "__main__":
    main()
