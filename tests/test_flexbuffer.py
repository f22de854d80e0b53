"""Custom options: flexbuffers are read back as they were written, by key and by position; damaged ones are rejected."""

from __future__ import annotations

import contextlib
import math
import struct
from typing import Any

import numpy as np
import outcomes
import pytest
from flatbuffers import flexbuffers
from hypothesis import given
from hypothesis import strategies as st
from test_broken_models import calls_limited_to

import tflm
from tflm.schema.flexbuffer import FlexbufferMap

NAMES = st.text(st.characters(min_codepoint=1, max_codepoint=127), min_size=1, max_size=8)
INT64 = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(width=32) | st.floats(-1e38, 1e38)  # the writer takes no finite float beyond those of 32 bits
NUMBERS = st.booleans() | INT64 | st.integers(-200, 200) | FLOATS


def int32(value: int) -> int:
    """The low 32 bits, signed."""
    return struct.unpack("<i", struct.pack("<q", value)[:4])[0]


@given(st.dictionaries(NAMES, NUMBERS, max_size=12))
def test_numbers_are_found_by_key(options: dict[str, Any]) -> None:
    read = FlexbufferMap(flexbuffers.Dumps(options))
    for key, value in options.items():
        np.testing.assert_equal(read.as_float(key), float(np.float32(value)))
        if math.isfinite(value) and abs(value) < 2**63:
            assert read.as_int32(key) == int32(int(value))
            assert read.as_bool(key) == bool(int(value))
        else:
            assert read.as_int32(key) == 0
    assert read.as_int32("not there", 7) == 7
    assert read.as_float("not there", 0.5) == 0.5
    assert read.as_bool("not there", True)


@given(st.dictionaries(NAMES, INT64 | st.booleans() | st.integers(0, 200), min_size=1, max_size=12))
def test_integers_are_found_by_place_in_the_order_of_their_keys(options: dict[str, int]) -> None:
    read = FlexbufferMap(flexbuffers.Dumps(options))
    for place, key in enumerate(sorted(options)):
        assert read.element_as_int32(place) == int32(options[key])
        assert read.element_as_bool(place) == bool(options[key])


def test_numbers_may_lie_elsewhere_or_be_null() -> None:
    builder = flexbuffers.Builder()
    with builder.Map():
        for name, add, value in (("f", "IndirectFloat", 0.5), ("i", "IndirectInt", -3), ("u", "IndirectUInt", 200)):
            builder.Key(name)
            getattr(builder, add)(value)
        builder.Key("none")
        builder.Null()
    read = FlexbufferMap(builder.Finish())
    assert (read.as_float("f"), read.as_int32("i"), read.as_int32("u"), read.as_int32("none", 5)) == (0.5, -3, 200, 5)


def test_options_that_are_no_numbers_are_refused_by_key() -> None:
    read = FlexbufferMap(flexbuffers.Dumps({"text": "12", "list": [1, 2]}))
    for key in ("text", "list"):
        with pytest.raises(tflm.OperatorError, match=f"{key!r}.*needs a number"):
            read.as_int32(key)


@pytest.mark.parametrize("value", [3, 0.5, "a", True, b"\0", None])
def test_a_root_that_is_no_map_is_refused(value: Any) -> None:
    with pytest.raises(tflm.OperatorError, match="needs a map"):
        FlexbufferMap(flexbuffers.Dumps(value))


def test_a_vector_has_places_but_no_keys() -> None:
    read = FlexbufferMap(flexbuffers.Dumps([1, True, "a"]))
    assert (read.element_as_int32(0), read.element_as_bool(1), read.as_int32("a", 4)) == (1, True, 4)


def read_everything(data: bytes) -> None:
    """Ask for values that may be there or not; nothing but an `OperatorError` may come of it."""
    answered = 0
    with calls_limited_to(5000), contextlib.suppress(tflm.OperatorError):
        read = FlexbufferMap(data)
        for ask, wanted in (
            *((ask, key) for ask in (read.as_int32, read.as_float, read.as_bool) for key in ("T", "fft_length", "")),
            *((ask, place) for ask in (read.element_as_int32, read.element_as_bool) for place in (0, 1, 2**40)),
        ):
            with contextlib.suppress(tflm.OperatorError):
                ask(wanted)
                answered += 1
    outcomes.count(ran=answered > 0)


ROOTS = st.builds(bytes, st.tuples(st.sampled_from([0x24, 0x25, 0x26, 0x27, 0x28]), st.sampled_from([1, 2, 4, 8])))


@given(st.binary(max_size=40), ROOTS | st.binary(max_size=2))
def test_any_bytes_are_read_or_refused(data: bytes, root: bytes) -> None:
    read_everything(data + root)


@pytest.mark.runs(0.3)
@given(st.data())
def test_damaged_maps_are_read_or_refused(data: st.DataObject) -> None:
    options = bytearray(flexbuffers.Dumps({"T": 7, "fft_length": data.draw(st.sampled_from([512, 2**20, 0.1]))}))
    for _ in range(data.draw(st.integers(1, 3))):
        options[data.draw(st.integers(0, len(options) - 1))] = data.draw(st.integers(0, 255))
    read_everything(bytes(options[data.draw(st.integers(0, 5)) :]))
