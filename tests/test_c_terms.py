"""Random expressions of integers in C have the values that Python computes, and the ranges and types that they claim.

An operation of the kernel language has 32 bits, or 64 if an operand has these: values of an expression count where no
operation in it leaves them.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from test_c_source import HEADERS, built

from tflm.c import terms
from tflm.c.helpers import helpers_of
from tflm.c.syntax import TranslationError
from tflm.c.terms import PRIMARY, Term
from tflm.c.values import INTEGER_BITS, Number, Range, range_of

VARIABLES = [
    *(Number(dtype, range_of(dtype)) for dtype in INTEGER_BITS),
    Number("bool", Range(0, 1)),
    *(Number("int64", Range(*ends)) for ends in [(0, 31), (1, 7), (-100, 100), (-7, -1), (0, 2**31 - 1)]),
    *(Number("int64", Range(*ends)) for ends in [(-(2**31), 0), (32, 40), (0, 2**40), (-(2**62), 2**33)]),
]
LITERALS = [0, 1, 2, 3, -1, -5, 7, 31, 33, 255, 2**31 - 1, -(2**31), 2**31, 2**32 - 1, -(2**33), 2**62, -(2**63)]
TREES, SAMPLES = 1200, 8

PYTHON: dict[str, Callable[[int, int], int]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mult": lambda a, b: a * b,
    "FloorDiv": lambda a, b: a // b,
    "Mod": lambda a, b: a % b,
    "LShift": lambda a, b: a << b,
    "RShift": lambda a, b: a >> b,
    "BitAnd": lambda a, b: a & b,
    "BitOr": lambda a, b: a | b,
    "BitXor": lambda a, b: a ^ b,
}
COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "Eq": lambda a, b: a == b,
    "NotEq": lambda a, b: a != b,
    "Lt": lambda a, b: a < b,
    "LtE": lambda a, b: a <= b,
    "Gt": lambda a, b: a > b,
    "GtE": lambda a, b: a >= b,
}

MAIN = """\
static int64_t (*const expressions[])(const int64_t *) = {%s};

int main(void)
{
    int64_t row[1 + %d];
    while (fread(row, sizeof row, 1, stdin) == 1) {
        printf("%%lld\\n", (long long)expressions[row[0]](row + 1));
    }
    return 0;
}
"""

Value = Callable[[Sequence[int]], int | None]
"""The value of an expression, given those of its variables; None where an operation leaves its bits."""


class Tree(NamedTuple):
    """An expression in C and in Python."""

    term: Term
    value: Value


def leaf(dice: random.Random) -> Tree:
    if dice.random() < 0.25:
        constant = dice.choice(LITERALS)
        return Tree(terms.literal(constant), lambda values: constant)
    place = dice.randrange(len(VARIABLES))
    number = VARIABLES[place]
    text, c_type = f"v{place}", number.c_type
    if number.dtype == "int64" and dice.random() < 0.3:  # small values of 64 bits
        text, c_type = f"((int64_t){text})", "int64_t"
    return Tree(Term(text, PRIMARY, number, c_type), lambda values: values[place])


def wrapped(value: int, range: Range) -> int:
    return (value - range.lowest) % (range.highest - range.lowest + 1) + range.lowest


def has_64_bits(*trees: Tree) -> bool:
    return any(tree.term.c_type in ("int64_t", "uint64_t") for tree in trees)


def has_no_sign(*trees: Tree) -> bool:
    return all(tree.term.number.dtype.startswith("u") for tree in trees)


def of_values(function: Callable[..., int | None], *trees: Tree) -> Value:
    def value(values: Sequence[int]) -> int | None:
        found = [tree.value(values) for tree in trees]
        return None if None in found else function(*found)

    return value


def operation(name: str, a: Tree, b: Tree) -> Tree:
    """Without a sign if neither operand has one; of shifts, the first one alone decides."""
    if name in ("LShift", "RShift") and not b.term.within(Range(0, 63)):
        raise TranslationError("undefined")
    unsigned = has_no_sign(a) if name in ("LShift", "RShift") else has_no_sign(a, b)
    wide = has_64_bits(a) if name in ("LShift", "RShift") else has_64_bits(a, b)
    limits = range_of("uint64" if unsigned else "int64" if wide else "int32")

    def result(x: int, y: int) -> int | None:
        if name in ("FloorDiv", "Mod") and y == 0:
            return None
        if name in ("LShift", "RShift") and not 0 <= y < (64 if wide or unsigned else 32):
            return None
        exact = PYTHON[name](x, y)
        if unsigned:
            return wrapped(exact, limits)
        # A remainder is computed with its quotient.
        quotient = x // y if name == "Mod" else 0
        is_defined = max(x, y) < 2**63 and all(limits.lowest <= each <= limits.highest for each in (exact, quotient))
        return exact if is_defined else None

    return Tree(terms.operation(name, a.term, b.term), of_values(result, a, b))


def negated(a: Tree) -> Tree:
    limits = range_of("int64" if has_64_bits(a) else "int32")
    return Tree(terms.negated(a.term), of_values(lambda x: -x if limits.lowest <= -x <= limits.highest else None, a))


def absolute(a: Tree) -> Tree:
    opposite = negated(a)
    return Tree(terms.absolute(a.term), of_values(lambda x, y: max(x, y), a, opposite))


def extreme(name: str, a: Tree, b: Tree) -> Tree:
    return Tree(terms.extreme(name, a.term, b.term), of_values(min if name == "min" else max, a, b))


def comparison(name: str, a: Tree, b: Tree) -> Tree:
    return Tree(terms.comparison(name, a.term, b.term), of_values(COMPARISONS[name], a, b))


def choice(test: Tree, a: Tree, b: Tree) -> Tree:
    term = terms.choice(terms.condition(test.term), a.term, b.term)
    return Tree(term, of_values(lambda t, x, y: x if t else y, test, a, b))


def cast(dtype: str, a: Tree) -> Tree:
    if dtype == "bool":
        return Tree(terms.as_number(a.term, dtype), of_values(lambda x: int(x != 0), a))
    return Tree(terms.as_number(a.term, dtype), of_values(lambda x: wrapped(x, range_of(dtype)), a))


def tree(dice: random.Random, depth: int) -> Tree:
    """A random expression of so many operations in each other at most."""
    if depth == 0:
        return leaf(dice)

    def below() -> Tree:
        return tree(dice, dice.randrange(depth))

    kind = dice.randrange(12)
    if kind < 6:
        return operation(dice.choice(list(PYTHON)), below(), below())
    if kind == 6:
        return dice.choice([negated, absolute])(below())
    if kind == 7:
        return extreme(dice.choice(["min", "max"]), below(), below())
    if kind == 8:
        return choice(below(), below(), below())
    if kind == 9:
        return comparison(dice.choice(list(COMPARISONS)), below(), below())
    return cast(dice.choice([*INTEGER_BITS, "bool"]), below())


def samples(dice: random.Random) -> list[int]:
    """A value of each variable: an end of its range, one next to it, or any."""
    found = []
    for number in VARIABLES:
        low, high = number.range.lowest, number.range.highest
        ordinary = min(max(dice.randint(-40, 40), low), high)
        found.append(dice.choice([low, high, min(low + 1, high), max(high - 1, low), ordinary, ordinary]))
    return found


def trees(dice: random.Random) -> Iterator[tuple[Tree, list[list[int]]]]:
    """Expressions that C has, with values of the variables for which they are defined."""
    count = 0
    while count < TREES:
        try:
            found = tree(dice, 1 + count % 3)
        except (TranslationError, ZeroDivisionError, ValueError):  # constants are folded
            continue
        drawn = [samples(dice) for _ in range(SAMPLES)]
        defined = [values for values in drawn if found.value(values) is not None]
        if defined and found.term.constant is None:
            count += 1
            yield found, defined


@pytest.mark.parametrize("seed", [45])
def test_expressions_of_integers_are_those_of_python(seed: int, tmp_path: Path) -> None:
    cases = list(trees(random.Random(seed)))
    functions, expected = [], []
    for place, (found, defined) in enumerate(cases):
        names = [f"    {each.c_type} v{i} = ({each.c_type})v[{i}];" for i, each in enumerate(VARIABLES)]
        used = "\n".join(line for i, line in enumerate(names) if f"v{i}" in found.term.text)
        functions.append(
            f"static int64_t expression_{place}(const int64_t *v)\n{{\n{used}\n    (void)v;\n"
            f"    return (int64_t)({found.term.text});\n}}\n"
        )
        values = [found.value(each) for each in defined]
        claimed = found.term.number.range
        limits = Range(0, 1) if found.term.c_type == "bool" else range_of(found.term.c_type.removesuffix("_t"))
        for value in values:
            assert value is not None
            assert claimed.lowest <= value <= claimed.highest, (found.term.text, value, claimed)
            assert limits.lowest <= value <= limits.highest, (found.term.text, value, found.term.c_type)
        expected.append([wrapped(value, range_of("int64")) for value in values if value is not None])
    table = ", ".join(f"expression_{place}" for place in range(len(cases)))
    body = "\n".join(functions)
    source = f"{HEADERS}{''.join(helpers_of(body))}{body}{MAIN % (table, len(VARIABLES))}"
    rows = [[place, *values] for place, (_, defined) in enumerate(cases) for values in defined]
    (tmp_path / "rows").write_bytes(np.array([[wrapped(x, range_of("int64")) for x in row] for row in rows]).tobytes())
    path = built(source, tmp_path, "-w")
    with (tmp_path / "rows").open() as file:
        done = subprocess.run([path], stdin=file, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    wanted = [(found.term.text, value) for (found, _), values in zip(cases, expected) for value in values]
    for (text, value), line in zip(wanted, lines):
        assert int(line) == value, text
    assert len(lines) == len(wanted), (wanted[len(lines)], done.stderr[:1000])
