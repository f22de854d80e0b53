"""Tables of 256 bytes in registers: every byte, any number of them, in place too."""

from __future__ import annotations

import numpy as np
import pytest

from tflm.compiler.calls import as_function
from tflm.compiler.processor import uses_tiles
from tflm.delegates.compiled.byte_tables import has_byte_tables, look_up_bytes


@pytest.mark.skipif(not uses_tiles() or not has_byte_tables(), reason="the instructions need AVX-512 VBMI")
@pytest.mark.parametrize("count", [1, 63, 64, 65, 256, 1000])
@pytest.mark.parametrize("in_place", [False, True])
def test_each_byte_is_looked_up(count: int, in_place: bool) -> None:
    rng = np.random.default_rng(count)
    table = rng.permutation(np.arange(256, dtype=np.uint8))
    x = np.concatenate([np.arange(256, dtype=np.uint8), rng.integers(0, 256, 1000, np.uint8)])
    y = x if in_place else np.zeros_like(x)
    expected = y.copy()
    expected[:count] = table[x[:count]]
    as_function(look_up_bytes)(x=x, table=table, y=y, count=count)
    np.testing.assert_array_equal(y, expected)
