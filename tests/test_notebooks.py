"""The notebook runs, and shows what it promises."""

from __future__ import annotations

import ast
import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[1] / "examples" / "strokes" / "strokes.ipynb"


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Run a cell as a notebook does; gives the value of its last expression."""
    tree = ast.parse(source)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        exec(compile(tree, NOTEBOOK.name, "exec"), names)
        return None
    exec(compile(ast.Module(tree.body[:-1], []), NOTEBOOK.name, "exec"), names)
    return eval(compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), names)


def plans_in(shown: str) -> list[dict[str, Any]]:
    """The plans of the picture in what a notebook shows."""
    (frame,) = re.findall(r'<iframe [^>]*sandbox="allow-scripts"[^>]* srcdoc="([^"]*)"></iframe>', shown)
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html.unescape(frame))
    plans: list[dict[str, Any]] = json.loads(data)
    return plans


def test_the_notebook_goes_from_numpy_to_firmware(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] for cell in cells)
    values = [run_cell("".join(cell["source"]), names) for cell in cells]
    model, evaluation, measured, findings, plan, tiled = (value for value in values if value is not None)
    assert "CONV_2D" in model._repr_html_()
    assert evaluation.accuracy > 0.9
    assert findings == []
    assert [each["planner"] for each in plans_in(measured._repr_html_())] == ["memory"]
    assert [each["planner"] for each in plans_in(plan._repr_html_())] == ["memory"]
    before, after = plans_in(tiled._repr_html_())
    assert after["minimum_arena_bytes"] < before["minimum_arena_bytes"] == measured.minimum_arena_bytes
    assert before["inputs"] == list(measured.inputs)
    written = {path.name for path in (tmp_path / "firmware").iterdir()}
    assert written == {"strokes.tflite", "model_data.h", "model_data.cc", "op_resolver.h", "arena_size.h", "main.cc"}
    assert f"ArenaSize = {tiled.minimum_arena_bytes};" in (tmp_path / "firmware" / "arena_size.h").read_text()
