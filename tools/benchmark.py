"""Times this package beside TFLM's own Python package, in turns within one run, on one thread.

    python tools/benchmark.py [--json FILE] MODEL...

For each model: milliseconds to load and verify it and to allocate its tensors, microseconds an invoke in both, and
the ratio of the two. Figures are medians. Only ratios mean something from one machine to another.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # read when numpy is imported

import numpy as np  # noqa: E402

import tflm  # noqa: E402

ROUNDS = 7
SECONDS_A_ROUND = 0.02
ARENA_BYTES = 1 << 24


def main() -> None:
    """Time the models, print a table, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL", help="a .tflite file")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file")
    options = parser.parse_args()
    print(f"{'model':28} {'load ms':>8} {'allocate ms':>12} {'invoke us':>10} {'tflm us':>9} {'ratio':>7}")
    results = []
    for path in options.models:
        try:
            result = timings(path)
        except (tflm.TflmError, OSError) as error:
            print(f"{path.stem:28} {error}", file=sys.stderr)
            continue
        results.append(result)
        print(row(result), flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


def timings(path: Path) -> dict[str, Any]:
    """Medians for one model; the peer's time and the ratio are None where the peer is not installed."""

    def allocated() -> tflm.MicroInterpreter:
        interpreter = tflm.MicroInterpreter(tflm.Model.from_file(path), tflm.AllOpsResolver(), bytearray(ARENA_BYTES))
        interpreter.allocate_tensors()
        return interpreter

    interpreter = allocated()
    calls = {"ours": interpreter.invoke}
    peer = peer_interpreter(path)
    if peer is not None:
        calls["peer"] = peer.invoke
    seconds = in_turns(calls)
    load = median_seconds(lambda: tflm.Model.from_file(path))
    ours, theirs = seconds["ours"], seconds.get("peer")
    return {
        "model": path.stem,
        "load_ms": 1e3 * load,
        "allocate_ms": 1e3 * (median_seconds(allocated) - load),
        "invoke_us": 1e6 * ours,
        "peer_invoke_us": None if theirs is None else 1e6 * theirs,
        "ratio": None if theirs is None else ours / theirs,
    }


def peer_interpreter(path: Path) -> Any:
    """TFLM's interpreter with the model, its inputs zero; None where the package is not installed."""
    try:
        from tflite_micro.python.tflite_micro import runtime
    except ImportError:
        return None
    return runtime.Interpreter.from_file(str(path), arena_size=ARENA_BYTES)


def in_turns(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Median seconds of each call; the calls take turns, so that whatever slows the machine down hits all of them."""
    repeats = {name: repeats_for(call) for name, call in calls.items()}
    rounds = [{name: seconds(call, repeats[name]) for name, call in calls.items()} for _ in range(ROUNDS)]
    return {name: statistics.median(figures[name] for figures in rounds) for name in calls}


def median_seconds(call: Callable[[], Any]) -> float:
    """Median seconds of one call."""
    return in_turns({"call": call})["call"]


def repeats_for(call: Callable[[], Any]) -> int:
    """How often to repeat a call in a round."""
    call()
    return max(1, int(SECONDS_A_ROUND / max(seconds(call, 1), 1e-7)))


def seconds(call: Callable[[], Any], repeats: int) -> float:
    """Seconds of one of `repeats` calls in a row."""
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def row(result: dict[str, Any]) -> str:
    """A line of the table."""
    figures: Iterable[tuple[str, str]] = (
        ("load_ms", "8.2f"),
        ("allocate_ms", "12.2f"),
        ("invoke_us", "10.1f"),
        ("peer_invoke_us", "9.1f"),
        ("ratio", "7.2f"),
    )
    cells = (format(np.nan if result[key] is None else result[key], form) for key, form in figures)
    return f"{result['model']:28} {' '.join(cells)}"


if __name__ == "__main__":
    main()
