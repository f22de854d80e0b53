"""Write the table of docs/smaller.md: smallest arenas of models as they are, planned, tiled and after `tflm fit`.

    python tools/smaller_table.py [--corpus FOLDER]

The folder holds `models/`; it is $TFLM_CORPUS, or `shared` beside the checkout, unless told. Every figure is measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from planning_tables import CORPUS, replaced, table

import tflm
from tflm.boards import Bank, by_name

DOCUMENT = Path(__file__).parents[1] / "docs" / "smaller.md"

MODELS = ("kws_ref_model", "person_detect", "pretrainedResnet_quant", "vww_96_int8")
BOARDS = {"Cortex-M4": "nrf52840dk", "Cortex-M55": "corstone-300", "ESP32-S3": "esp32-s3-eye"}
"""What the columns are called, and a board with that part: its kernels are the usual ones."""

SMALLEST_RAM = 1
"""Bytes of a board that nothing fits, so that `fit` tries everything."""


def sizes(model: tflm.Model, board: str) -> Iterator[int | str]:
    """The smallest arenas of a model on a board: stock, planned, tiled, and after everything with these kernels."""
    where = by_name(board)
    target, kernels = where.target, where.kernels
    yield tflm.measure_arena(model, tflm.AllOpsResolver(), target=target, kernels=kernels).minimum_arena_bytes
    yield tflm.plan(model, target=target, kernels=kernels).after.minimum_arena_bytes
    yield tflm.tile(model, target=target, kernels=kernels).minimum_arena_bytes
    tiny = replace(where, ram=(Bank("RAM", SMALLEST_RAM),))
    found = tflm.fit(model, board=tiny, kernels=kernels, time_limit=None)
    yield found.minimum_arena_bytes
    yield found.chosen.name


def rows(folder: Path, models: Sequence[str]) -> Iterator[Sequence[object]]:
    """The rows of the table."""
    for name in models:
        model = tflm.Model.from_file(folder / f"{name}.tflite")
        for part, board in BOARDS.items():
            yield name, f"{by_name(board).kernels}, {part}", *sizes(model, board)


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description="Writes the table of docs/smaller.md.")
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="folder with models/")
    folder = parser.parse_args().corpus / "models"
    columns = ("model", "kernels and part", "stock", "plan", "tile", "fit", "by")
    written = table(columns, rows(folder, MODELS))
    DOCUMENT.write_text(replaced(DOCUMENT.read_text(), "fit", written))


if __name__ == "__main__":
    main()
