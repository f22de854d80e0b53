"""Constants of C programs: the compiler reads what was written, and lines are short."""

from __future__ import annotations

import ctypes
import itertools
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checked_program import needs_compiler
from test_c_source import HEADERS, compiler
from test_compile import WARNINGS

import tflm
from tflm.c.constants import LINE_LENGTH, integer_literal, lines_of, short_lines, table_definition, wrapped
from tflm.c.program import Pointer, Table, _moves_nothing, _span
from tflm.c.stage_table import Argument, stage_table
from tflm.delegates.compiled.movement import move_elements
from tflm.schema import BuiltinOperator, TensorType

DTYPES = [*(f"{sign}int{bits}" for bits in (8, 16, 32, 64) for sign in ("", "u")), "float32", "float64", "bool"]


HELD = ["uint8", "uint16", "int16", "uint32", "int32", "int64"]
"""Types of tables, of which the first of a size is taken."""


def edges(name: str) -> np.ndarray[Any, Any]:
    """The ends of a type, and what is next to the ends of smaller ones."""
    dtype = np.dtype(name)
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind == "f":
        limits = np.finfo(dtype)
        numbers = [0.0, -0.0, 1.0, 0.1, 1e10, 1e-10, limits.max, limits.min, limits.tiny / 2, np.inf, np.nan]
        return np.array([*numbers, *(-number for number in numbers)], dtype)
    ends = {
        sign * (1 << bits) + more for bits in (7, 8, 15, 16, 31, 32, 63, 64) for sign in (1, -1) for more in (-1, 0, 1)
    }
    ints = np.iinfo(dtype)
    return np.array(sorted(value for value in {0, *ends} if ints.min <= value <= ints.max), dtype)


@needs_compiler
def test_compilers_read_the_numbers_that_were_written(tmp_path: Path) -> None:
    text = HEADERS
    for name in DTYPES:
        text += table_definition(f"of_{name}", edges(name)) + f"const void *read_{name}(void) {{ return of_{name}; }}\n"
    (tmp_path / "constants.c").write_text(text)
    flags = [flag for flag in WARNINGS if "prototypes" not in flag]
    command = [compiler(), "-std=c99", *flags, "-shared", "-fPIC", "constants.c", "-o", "constants.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    library = ctypes.CDLL(str(tmp_path / "constants.so"))
    for name in DTYPES:
        expected, read = edges(name), library[f"read_{name}"]
        read.restype = ctypes.c_void_p
        found = np.frombuffer(ctypes.string_at(read(), expected.nbytes), expected.dtype)
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(np.signbit(found[~np.isnan(found)]), np.signbit(expected[~np.isnan(expected)]))


def test_integers_have_the_type_that_holds_them() -> None:
    values = [-(2**63), -(2**31) - 1, -(2**31), 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63]
    assert [integer_literal(value) for value in values] == [
        *("INT64_MIN", "INT64_C(-2147483649)", "INT32_MIN", "2147483647", "2147483648u", "4294967295u"),
        *("INT64_C(4294967296)", "INT64_C(9223372036854775807)", "UINT64_C(9223372036854775808)"),
    ]


@pytest.mark.parametrize("name", HELD)
def test_tables_of_calls_hold_their_values_in_the_smallest_type(name: str) -> None:
    """Values from the least one of a type to the largest are in it, and one more on either side is in another."""
    limits = np.iinfo(name)
    for low, high in (
        (0, limits.max),
        (limits.min, 0),
        (limits.min, limits.max),
        (-1, limits.max),
        (0, limits.max + 1),
    ):
        if max(-low, high) < 2**63:
            values = [low, high, 5, low]
            table = stage_table([("call", [Argument("x"), Argument("{}", value)]) for value in values])
            assert table is not None
            assert table.cases == {"call": ["x", "v[1]"]}
            assert table.rows.tolist() == [[0, value] for value in values]
            holds = [each for each in HELD if np.iinfo(each).min <= low and high <= np.iinfo(each).max]
            assert table.rows.dtype == min(holds, key=lambda each: np.iinfo(each).bits)


def test_calls_that_differ_in_more_than_values_have_no_table() -> None:
    calls = [
        ("a", [Argument("x + {}", 1), Argument("{}", 7)]),
        ("b", []),
        ("a", [Argument("x + {}", 3), Argument("{}", 7)]),
    ]
    table = stage_table(calls)
    assert table is not None
    assert (table.rows.tolist(), table.cases) == ([[0, 1], [1, 0], [0, 3]], {"a": ["x + v[1]", "7"], "b": []})
    assert stage_table([*calls, ("b", [Argument("x")])]) is None
    assert stage_table([*calls, ("a", [Argument("y + {}", 3), Argument("{}", 7)])]) is None


@pytest.mark.parametrize("length", range(1, 30))
def test_lines_are_as_long_as_they_may_be(length: int) -> None:
    words = ["x" * (1 + (i * length) % 23) for i in range(60)]
    for lines in (list(lines_of(words)), list(wrapped("    call(", words, ");"))[1:]):
        assert [word.rstrip(",);") for line in lines for word in line.split()] == words
        assert all(len(line) <= LINE_LENGTH for line in lines)
        for line, following in itertools.pairwise(lines):
            assert len(line) + 1 + len(following.split()[0]) > LINE_LENGTH
    code = "    " + " + ".join(words) + ";"
    assert short_lines(code).split() == code.split()
    assert all(len(line) <= LINE_LENGTH for line in short_lines(code).split("\n"))
    exact = "x" * (LINE_LENGTH - 4)
    assert short_lines(f"a, {exact};") == f"a, {exact};"


@pytest.mark.parametrize(("value", "expected"), [(-128, "(-128)"), (-1, "(-1)"), (0, "0"), (1, "1")])
def test_negative_zero_points_are_in_parentheses(value: int, expected: str) -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (4,), TensorType.INT8, tflm.quantized(0.5, value))
    y = main.tensor("y", (4,), TensorType.INT8, tflm.quantized(0.5, value))
    main.operator(BuiltinOperator.RELU, [x], [y])
    main.output(y)
    header = tflm.compile_model(tflm.Model(builder.build()), "net").files["net.h"]
    assert [line.split()[2] for line in header.splitlines() if "_ZERO_POINT " in line] == [expected] * 2


@pytest.mark.parametrize(
    "view",
    [
        np.s_[1:3],
        np.s_[::2],
        np.s_[::-1],
        np.s_[:, 1:4],
        np.s_[1, ::-2],
        np.s_[..., 1],
        np.s_[2:0:-1, ::2, 1:],
        np.s_[3, 4, 2:],
        ...,
    ],
    ids=str,
)
def test_of_a_view_no_more_is_stored_than_from_its_first_element_to_its_last(view: Any) -> None:
    base = np.arange(60, dtype=np.int16).reshape(4, 5, 3)
    part = base[view]
    memory, begin = _span(part)
    values = np.ravel(part).tolist()
    assert memory.tolist() == list(range(min(values), max(values) + 1))
    assert begin == 2 * (values[0] - min(values))


@pytest.mark.parametrize(
    ("dimensions", "moves_nothing"),
    [
        ([(2, 12, 12), (3, 4, 4), (4, 1, 1)], True),
        ([(1, 9, 5), (3, 4, 4), (4, 1, 1)], True),
        ([(2, 12, 12), (3, 4, 4), (2, 1, 2)], False),
        ([(2, 12, 8), (3, 4, 4), (4, 1, 1)], False),
        ([(2, 8, 12), (1, 4, 1), (4, 1, 1)], False),
    ],
)
def test_a_copy_to_itself_is_left_out_if_its_elements_stay_in_order(
    dimensions: list[tuple[int, int, int]], moves_nothing: bool
) -> None:
    """Dimensions are a size, and the steps of target and source."""
    whole = [*[(1, 0, 0)] * (6 - len(dimensions)), *dimensions]
    elements = np.zeros(64, np.int8)
    step = move_elements.step(target=elements, source=elements, steps=np.array(whole, np.int32).reshape(-1))
    place, other = Pointer(Table("a", elements), 0), Pointer(Table("b", elements), 0)
    assert _moves_nothing(step, {"target": place, "source": place}) == moves_nothing
    assert not _moves_nothing(step, {"target": place, "source": other})
