"""ADD and SUB by multiply-adds: exact for every pair of inputs, or the table of pairs is used."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tflm.compiler.calls import as_function, is_available
from tflm.compiler.processor import uses_tiles
from tflm.delegates.compiled.planes import Plane, plane_of, sum_on_plane
from tflm.delegates.compiled.tiles import rounds_down

EVERY = np.arange(-128, 128)


def rounded(heights: np.ndarray) -> np.ndarray:
    """Outputs of int8, halves up."""
    return np.clip(np.floor(heights + 0.5), -128, 127).astype(np.int8)


def test_halves_away_from_zero_are_on_a_plane() -> None:
    for factor1, factor2, divisor in [(2, 1, 4), (47, 47, 60), (3, -2, 4)]:
        sums = factor1 * (EVERY[:, np.newaxis] - 3) + factor2 * (EVERY + 2)
        quotients = np.sign(sums) * ((2 * abs(sums) + divisor) // (2 * divisor))
        table = np.clip(quotients, -128, 127).astype(np.int8)
        assert plane_of((factor1 / divisor, factor2 / divisor), table) is not None


SLOPES = [(0.8371, 0.6113), (0.9012, -0.3307), (0.2503, 0.2499), (0.5, 0.25), (-1.75, 0.7001), (3.0, 2.0**-12)]


@pytest.mark.skipif(not is_available(), reason="needs the extra `fast`")
@pytest.mark.skipif(is_available() and not (uses_tiles() and rounds_down()), reason="needs multiply-adds of vectors")
@pytest.mark.parametrize("slopes", SLOPES, ids=str)
@pytest.mark.parametrize("zero_point", [-128, 0, 77])
def test_machine_code_gives_the_output_of_every_pair(slopes: tuple[float, float], zero_point: int) -> None:
    table = rounded(slopes[0] * EVERY[:, np.newaxis] + slopes[1] * EVERY + zero_point)
    plane = plane_of(slopes, table)
    assert plane is not None
    x1, x2 = (np.ascontiguousarray(x, np.int8).reshape(-1) for x in np.meshgrid(EVERY, EVERY, indexing="ij"))
    limits = {"activation_min": int(table.min()), "activation_max": int(table.max())}
    for count in (1 << 16, 1, 15, 16, 63, 64, 100):
        y = np.full(len(x1) + 64, 5, np.int8)
        as_function(sum_on_plane)(x1=x1, x2=x2, y=y, count=count, **plane._asdict(), **limits)
        np.testing.assert_array_equal(y[:count], table.reshape(-1)[:count])
        assert (y[count:] == 5).all()


@pytest.mark.parametrize(
    "function",
    [
        lambda heights: np.round(heights),
        lambda heights: np.floor(heights) + (heights == 7),
        lambda heights: 0 * heights,
    ],
    ids=["half to even", "one is wrong", "constant"],
)
def test_what_is_not_on_a_plane_has_none(function: Callable[[np.ndarray], np.ndarray]) -> None:
    slopes = (0.5, 0.25)
    heights = slopes[0] * EVERY[:, np.newaxis] + slopes[1] * EVERY
    assert plane_of(slopes, np.clip(function(heights), -128, 127).astype(np.int8)) is None


def test_slopes_for_which_float64_is_not_exact_have_none() -> None:
    for slopes in [(2.0**-13, 0.5), (0.5, 33.0)]:
        table = rounded(slopes[0] * EVERY[:, np.newaxis] + slopes[1] * EVERY)
        found: Plane | None = plane_of(slopes, table)
        assert found is None
