"""Nothing on a model's way to a device takes more than in proportion to its operators."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "tools"))

import benchmark

STEPS = "load", "verify", "measure", "plan", "inspect", "export"


def calls(step: Callable[[], Any]) -> int:
    """How many functions are called, Python's and others."""
    count = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        step()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("name", STEPS)
def test_four_times_the_operators_take_four_times_the_calls(name: str) -> None:
    small, large = (dict(benchmark.steps_to_firmware(benchmark.grown_model("tensors", n)))[name] for n in (100, 400))
    small()  # imports what it needs
    assert calls(large) < 4.2 * calls(small)


def test_the_benchmark_times_each_step_and_says_how_it_grows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(benchmark, "OPERATOR_COUNTS", (20, 80))
    results = benchmark.growth_with_operators()
    assert [list(result["seconds"]) for result in results] == [list(STEPS)] * 2
    assert not results[0]["growth"]
    assert list(results[1]["growth"]) == list(STEPS)
    heading, *rows = capsys.readouterr().out.split("\n")[1:-1]
    assert [word for word in heading.split() if word in STEPS] == list(STEPS)
    assert [row.split()[1] for row in rows] == ["20", "80"]
