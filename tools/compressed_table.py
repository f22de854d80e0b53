"""Bring the sizes of compressed models in docs/compile.md up to date: `python tools/compressed_table.py [CORPUS]`.

The folder holds `models/`; it is `shared` beside the checkout by default. Instructions stay as they are:
`make compiled-figures` measures kernels.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import tflm

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs" / "compile.md"

ROW = re.compile(r"^\| (\w+) (\(.*\)) \| ([\d,]+ \| ){4}", re.MULTILINE)
"""A model, its encodings, and constants and RAM of the model before and after compression."""


def compiled(path: Path) -> tuple[tflm.CompiledModel, tflm.CompiledModel]:
    """A model as C, and the same after compression."""
    model = tflm.Model.from_file(path)
    return tflm.compile_model(model), tflm.compile_model(tflm.compress(model).model)


def cells(programs: tuple[tflm.CompiledModel, tflm.CompiledModel]) -> str:
    """The cells of a model: constants, compressed, RAM, compressed."""
    pairs = ((each.constant_bytes, each.ram_bytes) for each in programs)
    return "".join(f"{size:,} | " for pair in zip(*pairs) for size in pair)


def main(corpus: Path) -> None:
    """Write the sizes of each row into the page."""

    def updated(row: re.Match[str]) -> str:
        return f"| {row[1]} {row[2]} | " + cells(compiled(corpus / "models" / f"{row[1]}.tflite"))

    DOCUMENT.write_text(ROW.sub(updated, DOCUMENT.read_text()))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT.parent / "shared")
