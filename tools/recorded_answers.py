"""Record the results and arena sizes of TFLM's package for a model of each operator, if it is installed.

The models are drawn from the tests' strategies and stored with the results, so that a checkout without TFLM and without
real models can still be compared with TFLM.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

TESTS = Path(__file__).parents[1] / "tests"
LARGEST_CASE_BYTES = 2000
DRAWS = 40


def recorded(oracle: Any, name: str, strategy: Any) -> dict[str, np.ndarray[Any, Any]]:
    """The largest of an operator's small cases that TFLM runs, under names that start with the operator's."""
    from differential import printed_figures  # type: ignore[import-not-found, unused-ignore]
    from oracle import OracleError  # type: ignore[import-not-found, unused-ignore]

    for model, invocations in sorted(drawn(strategy), key=case_bytes, reverse=True):
        try:
            answers, figures = oracle.run(model, invocations), printed_figures(oracle.allocations(model))
        except OracleError:
            continue
        arrays: dict[str, Any] = {
            "model": np.frombuffer(model, np.uint8),
            "arena": np.array(list(figures.values()), np.int32),
        }
        for kind, invokes in (("input", invocations), ("output", answers)):
            arrays |= {f"{kind} {i} {j}": array for i, tensors in enumerate(invokes) for j, array in enumerate(tensors)}
        return {f"{name}/{key}": array for key, array in arrays.items()}
    sys.exit(f"TFLM runs none of the models of {name}")


def drawn(strategy: Any) -> list[Any]:
    """Some small cases of a strategy, the same each time."""
    from hypothesis import HealthCheck, Phase, given, settings

    cases: list[Any] = []

    @settings(
        derandomize=True,
        max_examples=DRAWS,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def draw(case: Any) -> None:
        if case_bytes(case) <= LARGEST_CASE_BYTES:
            cases.append(case)

    draw()
    return cases


def case_bytes(case: Any) -> int:
    """Bytes of a model and its inputs."""
    model, invocations = case
    return len(model) + sum(int(array.nbytes) for inputs in invocations for array in inputs)


def main() -> None:
    """Record all operators."""
    sys.path.insert(0, str(TESTS))
    from oracle import Oracle

    from tflm.testing.operators import OPERATORS

    oracle = Oracle()
    arrays: dict[str, Any] = {}
    for name, strategy in OPERATORS.items():
        arrays |= recorded(oracle, name, strategy)
    oracle.close()
    np.savez_compressed(TESTS / "recorded" / "operators.npz", **arrays)


if __name__ == "__main__":
    main()
