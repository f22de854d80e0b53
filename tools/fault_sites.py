"""Single-line faults for mutation testing.

A fault is a typical programming slip that a good test detects: `<` for `<=`, a constant off by one, `min` for `max`,
`+` for `-`, a division rounded the other way, `or` for `and`, a lost `not`, a flag the wrong way round, a slice shifted
by one, a call left out. No fault is made where no behaviour follows: in annotations, decorators, assertions, texts of
errors and logs, seeds, strategies and sizes of random draws, lengths of digests, bounds of waits and of the effort of a
search, sizes of caches, at the very tick of a clock, members of enumerations, and tables of data.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

OPERATORS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.BitXor: ("^", "&"),
}
"""Operators and their replacements."""

FUNCTIONS = {
    "min": "max",
    "max": "min",
    "minimum": "maximum",
    "maximum": "minimum",
    "any": "all",
    "all": "any",
    "floor": "ceil",
    "ceil": "floor",
}

SILENT_CALLS = re.compile(r"(_?log|logging|warnings|gc|os\.fsync$|time\.sleep$)\b")
"""Calls that only log, clean up, wait, or make files outlast a loss of power."""

SILENT_KEYWORDS = {
    "stacklevel",
    "exist_ok",
    "copy",
    "check",
    "capture_output",
    "frozen",
    "slots",
    "daemon",
    "hidden",
    "timeout",
    "indent",
    "min_size",
    "max_size",
    "min_count",
    "max_count",
}
SILENT_FUNCTIONS = {"__repr__"}
SILENT_NAMES = re.compile(r"SECONDS|TIMEOUT|ATTEMPTS|ROUNDS|STEPS_PER|__all__|__slots__")
"""Constants that bound a wait or the effort of a search, and declarations."""

CACHE_SIZE = re.compile(r"\blru_cache\((?:maxsize=)?(\w+)\)")
"""The constant that bounds a cache, which costs time only."""

GENERATORS = {"Random", "RandomState", "default_rng"}
"""Random number generators, whose seed is arbitrary."""


CLOCK = re.compile(r"\bmonotonic\(\)|\bperf_counter\(\)")
"""Clocks: whether the end of a wait belongs to it cannot be seen."""


class Fault(NamedTuple):
    """A line of a source and its faulty version; lines count from 1."""

    line: int
    original: str
    changed: str


class _Edit(NamedTuple):
    """Characters of a line to replace."""

    line: int
    start: int
    end: int
    text: str


def faults(source: str) -> list[Fault]:
    """All faults of a Python source, in order."""
    lines = source.splitlines()
    made = []
    for line, start, end, text in sorted(set(_Sites(lines).of(ast.parse(source)))):
        original = lines[line - 1]
        made.append(Fault(line, original.strip(), (original[:start] + text + original[end:]).strip()))
    return made


def applied(source: str, fault: Fault) -> str:
    """The source with a fault in it."""
    lines = source.splitlines(keepends=True)
    lines[fault.line - 1] = lines[fault.line - 1].replace(fault.original, fault.changed, 1)
    return "".join(lines)


class _Sites:
    """Walks a syntax tree and yields the edits that make faults."""

    def __init__(self, lines: list[str]):
        self._lines = lines
        self._cache_sizes = set(CACHE_SIZE.findall("\n".join(lines)))

    def of(self, node: ast.AST, in_function: bool = False) -> Iterator[_Edit]:
        """The edits in a node and all that is below it."""
        if _is_silent(node) or (_is_data(node) and not in_function) or self._is_cache_size(node):
            return
        yield from self._at(node)
        inside = in_function or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for child in _behaviour(node):
            yield from self.of(child, inside)

    def _is_cache_size(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in self._cache_sizes

    def _at(self, node: ast.AST) -> Iterator[_Edit]:
        if isinstance(node, ast.Compare) and not CLOCK.search(ast.unparse(node)):
            operands = [node.left, *node.comparators]
            for operator, before, after in zip(node.ops, operands, operands[1:]):
                yield from self._operator(operator, before, after)
        elif isinstance(node, ast.BoolOp):
            for before, after in zip(node.values, node.values[1:]):
                yield from self._operator(node.op, before, after)
        elif isinstance(node, ast.BinOp):
            yield from self._binary(node)
        elif isinstance(node, ast.AugAssign):
            yield from self._operator(node.op, node.target, node.value)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
            if not isinstance(node.operand, ast.Constant):
                yield from self._replaced(node, f"({self._text(node.operand)})")
        elif isinstance(node, ast.Constant):
            yield from self._constant(node)
        elif isinstance(node, ast.Call):
            yield from self._call(node)
        elif isinstance(node, ast.Slice):
            for bound, shift in ((node.lower, "+ 1"), (node.upper, "- 1")):
                if bound is not None and not isinstance(bound, ast.Constant):
                    yield from self._replaced(bound, f"({self._text(bound)}) {shift}")
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield from self._replaced(node, "pass")
        elif isinstance(node, (ast.If, ast.IfExp)) and isinstance(node.test, (ast.Name, ast.Attribute, ast.Call)):
            yield from self._replaced(node.test, f"not {self._text(node.test)}")

    def _binary(self, node: ast.BinOp) -> Iterator[_Edit]:
        yield from self._operator(node.op, node.left, node.right)
        if isinstance(node.op, ast.FloorDiv):
            yield from self._replaced(node, f"-(-({self._text(node.left)}) // ({self._text(node.right)}))")

    def _constant(self, node: ast.Constant) -> Iterator[_Edit]:
        if isinstance(node.value, bool):
            yield from self._replaced(node, str(not node.value))
        elif isinstance(node.value, int):
            yield from self._replaced(node, str(node.value + 1))
            if node.value:
                yield from self._replaced(node, str(node.value - 1))
        elif isinstance(node.value, float):
            yield from self._replaced(node, repr(node.value + 1))

    def _call(self, node: ast.Call) -> Iterator[_Edit]:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in FUNCTIONS and len(node.args) + len(node.keywords) > (name in ("min", "max")):
            text = self._text(node.func)
            yield from self._replaced(node.func, text[: len(text) - len(name)] + FUNCTIONS[name])
        if name == "range" and not isinstance(node.args[min(1, len(node.args) - 1)], (ast.Constant, ast.Starred)):
            stop = node.args[min(1, len(node.args) - 1)]
            if SILENT_NAMES.search(self._text(stop)):
                return
            yield from self._replaced(stop, f"({self._text(stop)}) - 1")

    def _operator(self, operator: ast.AST, before: ast.expr, after: ast.expr) -> Iterator[_Edit]:
        """Exchange the operator between two operands, where it stands on a line with the end of one of them."""
        if type(operator) not in OPERATORS:
            return
        is_, becomes = OPERATORS[type(operator)]
        pattern = re.escape(is_).replace(r"\ ", r"\s+")
        for line in range(before.end_lineno or 0, after.lineno + 1):
            text = self._lines[line - 1]
            start = self._column(line, before.end_col_offset or 0) if line == before.end_lineno else 0
            end = self._column(line, after.col_offset) if line == after.lineno else len(text)
            found = re.search(pattern, text[start:end].split("#")[0])
            if found:
                yield _Edit(line, start + found.start(), start + found.end(), becomes)
                return

    def _replaced(self, node: ast.expr | ast.stmt, text: str) -> Iterator[_Edit]:
        if node.lineno == node.end_lineno:
            start, end = (self._column(node.lineno, of or 0) for of in (node.col_offset, node.end_col_offset))
            yield _Edit(node.lineno, start, end, text)

    def _text(self, node: ast.expr) -> str:
        """The text of a node, as far as it stands on one line."""
        start = self._column(node.lineno, node.col_offset)
        end = self._column(node.lineno, node.end_col_offset or 0) if node.lineno == node.end_lineno else None
        return self._lines[node.lineno - 1][start:end]

    def _column(self, line: int, offset: int) -> int:
        """The character at a byte of a line, because syntax trees count bytes of UTF-8."""
        return len(self._lines[line - 1].encode()[:offset].decode())


def _behaviour(node: ast.AST) -> Iterator[ast.AST]:
    """The children of a node that are executed."""
    unread = {"annotation", "returns", "decorator_list", "keywords" if isinstance(node, ast.ClassDef) else ""}
    for name, value in ast.iter_fields(node):
        if name not in unread:
            children = (
                child for child in (value if isinstance(value, list) else [value]) if isinstance(child, ast.AST)
            )
            yield from (child for child in children if not _is_arbitrary(child, node))


def _is_arbitrary(child: ast.AST, node: ast.AST) -> bool:
    """Whether a child is a member of an enumeration, or the -1 in a shape: numpy takes any negative number for it."""
    if isinstance(node, ast.ClassDef):
        return isinstance(child, ast.Assign) and any(ast.unparse(base).endswith("Enum") for base in node.bases)
    is_reshape = isinstance(node, ast.Call) and ast.unparse(node.func).endswith("reshape")
    return is_reshape and ast.unparse(child) == "-1"


def _is_silent(node: ast.AST) -> bool:
    """Whether nothing below a node changes what the program does."""
    if isinstance(node, (ast.Assert, ast.Raise, ast.JoinedStr)):
        return True
    if isinstance(node, ast.FunctionDef):
        decorators = (ast.unparse(each) for each in node.decorator_list)
        draws = node.returns is not None and "SearchStrategy" in ast.unparse(node.returns)
        return (
            draws
            or node.name in SILENT_FUNCTIONS
            or any(each.endswith(("overload", "composite")) for each in decorators)
        )
    if isinstance(node, ast.If):
        return bool(re.search(r"\bTYPE_CHECKING\b|\b__name__\b", ast.unparse(node.test)))
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        return bool(SILENT_NAMES.search(ast.unparse(target)))
    if isinstance(node, ast.keyword):
        return node.arg in SILENT_KEYWORDS
    if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("digest()"):
        return True
    call = node.value if isinstance(node, ast.Expr) else node
    if not isinstance(call, ast.Call):
        return False
    function = ast.unparse(call.func)
    return bool(SILENT_CALLS.match(function)) or function.rpartition(".")[2] in GENERATORS


def _is_data(node: ast.AST) -> bool:
    """Whether a statement outside functions is a table of data, whose numbers are not behaviour."""
    return isinstance(node, (ast.Dict, ast.List, ast.Tuple, ast.Set, ast.Call))
