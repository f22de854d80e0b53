"""Run the example's notebook and store what its cells show: `python tools/notebook.py`.

A test fails if the stored outputs are out of date.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import tempfile
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[1] / "examples" / "strokes" / "strokes.ipynb"


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Run a cell as a notebook does, and return the value of its last expression."""
    tree = ast.parse(source)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        exec(compile(tree, NOTEBOOK.name, "exec"), names)
        return None
    exec(compile(ast.Module(tree.body[:-1], []), NOTEBOOK.name, "exec"), names)
    return eval(compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), names)


def outputs(printed: str, value: Any, count: int) -> list[dict[str, Any]]:
    """Return what a cell shows, as a notebook stores it: the text that it printed, and its value."""
    shown: list[dict[str, Any]] = []
    if printed:
        shown.append({"name": "stdout", "output_type": "stream", "text": printed.splitlines(keepends=True)})
    if value is not None:
        html = hasattr(value, "_repr_html_")
        kind, text = ("text/html", value._repr_html_()) if html else ("text/plain", repr(value))
        data = {kind: text.splitlines(keepends=True)}
        shown.append({"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"})
    return shown


def executed(notebook: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """Run the cells of a notebook in the current folder.

    Returns:
        The notebook with the outputs of its cells, and the values that it shows.
    """
    names: dict[str, Any] = {}
    cells, values = [], []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                value = run_cell("".join(cell["source"]), names)
            values.append(value)
            count = len(values)
            cell = cell | {"execution_count": count, "outputs": outputs(printed.getvalue(), value, count)}
        cells.append(cell)
    return notebook | {"cells": cells}, [value for value in values if value is not None]


def main() -> None:
    """Run the notebook in a temporary folder and store it."""
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        written, _ = executed(notebook)
        os.chdir(NOTEBOOK.parent)
    NOTEBOOK.write_text(json.dumps(written, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
