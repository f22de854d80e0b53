"""The notebook runs, and its outputs are those that it announces."""

from __future__ import annotations

import html
import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from notebook import NOTEBOOK, executed


def plans_in(shown: str) -> list[dict[str, Any]]:
    """The plans of the picture in what a notebook shows."""
    (frame,) = re.findall(r'<iframe [^>]*sandbox="allow-scripts"[^>]* srcdoc="([^"]*)"></iframe>', shown)
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html.unescape(frame))
    plans: list[dict[str, Any]] = json.loads(data)
    return plans


def shown(notebook: dict[str, Any]) -> list[Any]:
    """What the cells of a notebook show, with the data of pictures in place of the page that draws them."""
    cells = [cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    found: list[Any] = []
    for output in itertools.chain.from_iterable(cells):
        texts = output.get("data", {"text": output.get("text")})
        for kind, lines in texts.items():
            text = "".join(lines)
            found += [kind, re.sub("<iframe.*</iframe>", "", text, flags=re.DOTALL)]
            found += plans_in(text) if "<iframe" in text else []
    return found


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], list[Any]]:
    """The folder in which the notebook ran, the notebook with its outputs, and the values that it shows."""
    folder = tmp_path_factory.mktemp("notebook")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return folder, *executed(json.loads(NOTEBOOK.read_text(encoding="utf-8")))


def test_the_stored_outputs_are_those_of_a_run(ran: tuple[Path, dict[str, Any], list[Any]]) -> None:
    stored = shown(json.loads(NOTEBOOK.read_text(encoding="utf-8")))
    assert "text/html" in stored
    assert stored == shown(ran[1]), "run `make reference`"


def test_the_notebook_goes_from_numpy_to_firmware(ran: tuple[Path, dict[str, Any], list[Any]]) -> None:
    folder, _, (model, evaluation, measured, findings, plan, tiled) = ran
    assert "CONV_2D" in model._repr_html_()
    assert evaluation.accuracy > 0.9
    assert findings == []
    assert [each["planner"] for each in plans_in(measured._repr_html_())] == ["memory"]
    assert [each["planner"] for each in plans_in(plan._repr_html_())] == ["memory"]
    before, after = plans_in(tiled._repr_html_())
    assert after["minimum_arena_bytes"] < before["minimum_arena_bytes"] == measured.minimum_arena_bytes
    assert before["inputs"] == list(measured.inputs)
    written = {path.name for path in (folder / "firmware").iterdir()}
    assert written == {
        *("strokes.tflite", "model_data.h", "model_data.cc", "op_resolver.h", "arena_size.h", "main.cc", "console.h"),
    }
    assert f"ArenaSize = {tiled.minimum_arena_bytes};" in (folder / "firmware" / "arena_size.h").read_text()
