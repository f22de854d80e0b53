"""Every test asserts something, or says in its name that the point is that nothing is raised."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

NOT_RAISING = {
    "accepted",
    "accepts",
    "error",
    "fails",
    "loads",
    "nothing",
    "pass",
    "passes",
    "refused",
    "rejected",
    "run",
    "runs",
}
"""Words of which the name of a test without an assertion has one."""

NAMES: dict[type[ast.AST], str] = {ast.Name: "id", ast.Attribute: "attr", ast.arg: "arg"}
"""The field of a node that names something."""

Function = tuple[str, str]
"""A module of the tests, and a function in it, or a method by its name alone."""


class Module:
    """The functions of a test module, and their calls.

    Attributes:
        asserting: functions that assert themselves.
        calls: for each function, the functions of the tests' own modules that it calls.
    """

    def __init__(self, name: str, source: str, names: set[str]):
        everything = list(ast.walk(ast.parse(source)))
        nodes = [node for node in everything if isinstance(node, ast.FunctionDef)]
        self._known = {node.name: name for node in nodes}
        for node in everything:
            if isinstance(node, ast.ImportFrom) and node.module in names:
                self._known |= {alias.asname or alias.name: node.module for alias in node.names}
            elif isinstance(node, ast.Import):
                self._known |= {alias.name: alias.name for alias in node.names if alias.name in names}
        below = {(name, node.name): list(ast.walk(node)) for node in nodes}
        self.asserting = {function for function, inside in below.items() if any(map(asserts, inside))}
        self.calls = {function: set(self._called(inside)) for function, inside in below.items()}

    def _called(self, inside: list[ast.AST]) -> Iterator[Function]:
        """The functions that nodes name, also as fixtures, which are arguments."""
        for node in inside:
            used = NAMES.get(type(node))
            name = getattr(node, used) if used else None
            if name in self._known:
                yield self._known[name], name
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in self._known:
                yield self._known[node.value.id], node.attr


def asserts(node: ast.AST) -> bool:
    """Whether a node fails a test by itself: an assertion, a check by numpy or pytest, a process that must pass."""
    if isinstance(node, ast.Assert) or (isinstance(node, ast.Raise) and "AssertionError" in ast.unparse(node)):
        return True
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    must_pass = any(each.arg == "check" and ast.unparse(each.value) == "True" for each in node.keywords)
    return must_pass or name.startswith("assert_") or name in ("raises", "warns", "fail", "check_call", "validate")


def without_assertion(sources: dict[str, str]) -> list[str]:
    """Tests that neither assert nor call what asserts, by name."""
    modules = [Module(name, source, set(sources)) for name, source in sources.items()]
    asserting = {function for module in modules for function in module.asserting}
    calls = {function: called for module in modules for function, called in module.calls.items()}
    found = set[Function]()
    while found != asserting:
        found, asserting = asserting, asserting | {each for each, called in calls.items() if called & asserting}
    return [name for module, name in calls if name.startswith("test_") and (module, name) not in asserting]


def test_tests_assert_or_say_that_nothing_is_raised() -> None:
    sources = {path.stem: path.read_text(encoding="utf-8") for path in sorted(TESTS.rglob("*.py"))}
    found = without_assertion(sources)
    assert [name for name in found if NOT_RAISING.isdisjoint(name.split("_"))] == []


@pytest.mark.parametrize(
    ("body", "has_one"),
    [
        ("assert f()", True),
        ("f()", False),
        ("helper.checked()", True),
        ("checked()", True),
        ("helper.unchecked()", False),
        ("run(['cc'], check=True)", True),
        ("run(['cc'], check=False)", False),
        ("with pytest.raises(ValueError): f()", True),
    ],
)
def test_an_assertion_is_seen_where_it_is(body: str, has_one: bool) -> None:
    helper = "def checked():\n    assert True\ndef unchecked():\n    pass\n"
    test = f"import helper\nfrom helper import checked\ndef test_it():\n    {body}\n"
    assert without_assertion({"helper": helper, "test_one": test}) == ([] if has_one else ["test_it"])
