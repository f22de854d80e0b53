"""How many models of a test ran: one that takes a refusal for an answer must not pass because all are refused.

Such a test tells each outcome, and bears the mark `runs` with the share of its models that must run:

    @pytest.mark.runs(0.5)
    @given(model=models())
    def test_any_model_is_run_or_refused(model: bytes) -> None: ...
"""

from __future__ import annotations

MARK = "runs(share): the test fails unless this share of the models that it counts runs"

_counts = {"ran": 0, "refused": 0}


def count(ran: bool) -> bool:
    """Count a model of the current test; returns whether it ran."""
    _counts["ran" if ran else "refused"] += 1
    return ran


def clear() -> None:
    """Another test begins."""
    _counts.update(ran=0, refused=0)


def check(share: float) -> None:
    """Fail unless this share of the current test's models ran."""
    total = sum(_counts.values())
    assert total, "no model was counted"
    assert _counts["ran"] >= share * total, f"{_counts['ran']} of {total} models ran, expected {share:.0%}"
