"""Compute the tables of docs/planning.md and write them into the page.

    python tools/planning_tables.py [--corpus FOLDER]

The folder holds `minimalloc/`, the instances of MiniMalloc as CSV, and `models/`; it is $TFLM_CORPUS, or `shared`
beside the checkout, unless told. Times are those of one core of this machine, with the extra `fast`.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import tflm
from tflm.memory import PLANNERS, Buffer, SearchLimits, lower_bound_bytes, plan_bytes, search_plan
from tflm.planning.minimalloc_csv import read_csv

DOCUMENT = Path(__file__).parents[1] / "docs" / "planning.md"
CORPUS = Path(os.environ.get("TFLM_CORPUS", Path(__file__).parents[2] / "shared"))

CAPACITY = 1048576
SECONDS = 30
RUNS = 3
"""Number of equal runs; the shortest time is the least disturbed."""

MINIMALLOC_SECONDS = {
    "A": 7.4,
    "B": 4.9,
    "C": 0.8,
    "D": 3.8,
    "E": 5.4,
    "F": 8.1,
    "G": 1.8,
    "H": 3.0,
    "I": 5.9,
    "J": 1.5,
    "K": 0.9,
}
"""Seconds of MiniMalloc's own C++ solver for each instance, on one core of a similar machine."""


def instance_rows(folder: Path) -> Iterable[Sequence[object]]:
    """Results of each planner on the instances, and times of the searches."""
    search_plan([Buffer(16, i, i + 2) for i in range(9)], SearchLimits(steps=1))  # loads compiled code
    for path in sorted(folder.glob("*.csv")):
        buffers = read_csv(path.read_text())
        heights = [plan_bytes(buffers, _placed(name, buffers)) for name in ("linear", "greedy", "best_fit")]
        seconds = []
        for _ in range(RUNS):
            begin = time.perf_counter()
            found = search_plan(buffers, SearchLimits(seconds=SECONDS, capacity=CAPACITY))
            seconds.append(time.perf_counter() - begin)
        name = path.stem.partition(".")[0]
        yield (
            name,
            len(buffers),
            lower_bound_bytes(buffers),
            *heights,
            found.head_bytes,
            f"{min(seconds):.2f}",
            f"{MINIMALLOC_SECONDS[name]:.1f}",
        )


def _placed(name: str, buffers: Sequence[Buffer]) -> list[int]:
    planner = PLANNERS[name]()
    for buffer in buffers:
        planner.add_buffer(*buffer)
    return [planner.get_offset_for_buffer(i) for i in range(len(buffers))]


def model_rows(folder: Path) -> Iterable[Sequence[object]]:
    """The heads of each model: greedy, optimal, lower bound, and optimal with in-place outputs."""
    for path in sorted(folder.glob("*.tflite")):
        model = tflm.Model.from_file(path)
        try:
            plan = tflm.plan(model)
            in_place = tflm.plan(model, in_place=True)
        except tflm.UnresolvedOperator as error:
            print(f"{path.stem} is left out: {error}", file=sys.stderr)
            continue
        proved = "yes" if plan.proved_optimal else f"no, {plan.head_bytes - plan.lower_bound_bytes:,} above"
        heads = plan.greedy_head_bytes, plan.head_bytes, plan.lower_bound_bytes
        yield path.stem, *heads, proved, in_place.head_bytes


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown, numbers with separators of thousands."""
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)]]
    lines += [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def replaced(text: str, name: str, content: str) -> str:
    """The document with the lines between the named marks replaced."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    pattern = re.escape(begin) + ".*?" + re.escape(end)
    return re.sub(pattern, lambda _: f"{begin}\n{content}\n{end}", text, flags=re.DOTALL)


def main() -> None:
    """Write the tables."""
    parser = argparse.ArgumentParser(description="Writes the tables of docs/planning.md.")
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="folder with minimalloc/ and models/")
    corpus = parser.parse_args().corpus
    instances = table(
        ("instance", "buffers", "bound", "linear", "greedy", "best fit", "search", "search, s", "MiniMalloc, s"),
        instance_rows(corpus / "minimalloc"),
    )
    models = table(("model", "greedy", "plan", "lower bound", "proved", "plan in place"), model_rows(corpus / "models"))
    text = replaced(DOCUMENT.read_text(), "instances", instances)
    DOCUMENT.write_text(replaced(text, "models", models))


if __name__ == "__main__":
    main()
