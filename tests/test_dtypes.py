"""No array of the package has numpy's default integer type, which has 32 bits on a machine of 32 bits.

The source code is read: every call that creates integers must specify their type; None stands for the type of the
argument. What the code does not tell is shown by `make i386`, which runs the real models and the kernels' tests on such
a machine.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tflm.schema import TensorType
from tflm.schema.builder import ModelBuilder

PACKAGE = Path(__file__).parents[1] / "tflm"

MAKERS = {
    **dict.fromkeys(("zeros", "ones", "empty", "identity", "indices", "array", "asarray", "asanyarray"), 1),
    **dict.fromkeys(("ascontiguousarray", "asfortranarray", "require", "fromiter", "frombuffer"), 1),
    **dict.fromkeys(("full", "arange", "eye", "tri"), 3),
    "full": 2,
}
"""Functions that make arrays, and how many arguments may stand before `dtype`."""

WIDENING = {"sum", "prod", "cumsum", "cumprod", "nansum", "nanprod", "trace"}
"""Functions and methods that widen small integers to the default type."""

WIDENING_UFUNCS, REDUCTIONS = {"add", "multiply"}, {"reduce": 2, "accumulate": 2, "reduceat": 3}

PLACES = {
    *("nonzero", "flatnonzero", "argwhere", "argsort", "lexsort", "argpartition", "argmax", "argmin", "searchsorted"),
    *("bincount", "digitize", "count_nonzero", "unravel_index", "ravel_multi_index"),
}
"""What gives places, as intp: good as indices, too narrow to be counted with."""

DEFAULT_TYPES = {"int_", "uint", "long", "ulong"}


def is_name(node: ast.expr, *names: str) -> bool:
    return isinstance(node, ast.Name) and node.id in names


def is_integer(node: ast.expr) -> bool:
    """Whether Python alone makes an integer there."""
    if isinstance(node, ast.Constant):
        return type(node.value) is int
    if isinstance(node, ast.UnaryOp):
        return is_integer(node.operand)
    if isinstance(node, ast.BinOp):
        return is_integer(node.left) and is_integer(node.right)
    return isinstance(node, ast.Call) and is_name(node.func, "int", "len", "round")


def are_integers(node: ast.expr) -> bool:
    """Whether Python alone makes integers there, in a list or a tuple."""
    if isinstance(node, ast.ListComp):
        return is_integer(node.elt)
    return isinstance(node, ast.List | ast.Tuple) and bool(node.elts) and all(map(is_integer, node.elts))


def says_type(call: ast.Call, arguments_before: int) -> bool:
    return len(call.args) > arguments_before or any(keyword.arg in ("dtype", "out") for keyword in call.keywords)


def called(node: ast.expr) -> str:
    return node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""


def faults(source: str) -> Iterator[tuple[int, str]]:
    """Line and reason of each place where integers may be of the default type."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and is_name(node.value, "np") and node.attr in DEFAULT_TYPES:
            yield node.lineno, f"np.{node.attr} depends on the machine"
        elif isinstance(node, ast.BinOp):
            sides = (node.left, node.right)
            if any(called(side) in PLACES for side in sides):
                yield node.lineno, "places are too narrow to be counted with"
            if any(isinstance(side, ast.Compare) for side in sides) and any(map(is_integer, sides)):
                yield node.lineno, "a truth times an integer has the default type"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            reason = fault_of_call(node, node.func)
            if reason:
                yield node.lineno, reason


def fault_of_call(call: ast.Call, function: ast.Attribute) -> str | None:
    name, owner = function.attr, function.value
    of_numpy = is_name(owner, "np")
    types = [keyword.value for keyword in call.keywords if keyword.arg == "dtype"]
    if any(is_name(value, "int") for value in (*types, *call.args)) and (
        of_numpy or types or name in ("astype", "view")
    ):
        return "int depends on the machine"
    if of_numpy and name in MAKERS:
        return None if says_type(call, MAKERS[name]) else f"np.{name} does not say its dtype"
    if name in WIDENING and not is_name(owner, "math"):
        return None if says_type(call, 2 if of_numpy else 1) else f"{name} does not say its dtype"
    if name in REDUCTIONS and isinstance(owner, ast.Attribute) and owner.attr in WIDENING_UFUNCS:
        return None if says_type(call, REDUCTIONS[name]) else f"{owner.attr}.{name} does not say its dtype"
    if of_numpy and name == "where" and len(call.args) == 3 and all(map(is_integer, call.args[1:])):
        return "np.where of two of Python's integers has the default type"
    first = call.args[:1]
    if name in ("repeat", "tile", "outer", "resize", "concatenate", "stack", "unique", "take", "searchsorted") and (
        any(map(are_integers, first)) or any(map(are_integers, getattr(first[0], "elts", [])) if first else [])
    ):
        return f"a list of Python's integers has the default type in {name}"
    return None


def test_arrays_of_integers_say_their_type() -> None:
    sources = {path.relative_to(PACKAGE): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
    assert [f"{name}:{line}: {why}" for name, source in sources.items() for line, why in faults(source)] == []


@pytest.mark.parametrize(
    "code",
    [
        *(
            "np.arange(256)",
            "np.arange(0, 9, 2)",
            "np.full(shape, 3)",
            "np.zeros(n)",
            "np.array([1, 2])",
            "np.asarray(a)",
        ),
        *("np.indices((2, 3))", "a.sum()", "a.sum(axis=1)", "np.cumsum(a)", "np.prod(a, 0)", "np.add.reduce(a, 0)"),
        *("np.add.reduceat(a, starts)", "np.where(a < 0, -1, 1)", "np.repeat([0, 1 << 16], n)", "a.astype(int)"),
        *("np.zeros(n, int)", "np.zeros(n, dtype=int)", "np.int_(3)", "(a >= 3) * 1", "np.argsort(a) * n"),
        *("a.searchsorted(b) - 1", "np.concatenate([[0], a])", "np.multiply.outer([1, 2], a)", "a.take([0, 1])"),
    ],
)
def test_the_default_type_is_seen(code: str) -> None:
    assert list(faults(code))


@pytest.mark.parametrize(
    "code",
    [
        *("np.arange(256, dtype=np.int64)", "np.full(shape, 3, np.intp)", "np.zeros(n, np.int8)", "math.prod(dims)"),
        *("np.asarray(a, None)", "a.sum(axis=1, dtype=np.int64)", "np.cumsum(a, out=b)", "a[np.argsort(a)]", "sum(a)"),
        *("np.where(a < 0, b, 1)", "np.where(a < 0, np.int64(-1), np.int64(1))", "np.concatenate([a, b])"),
    ],
)
def test_what_says_its_type_is_no_fault(code: str) -> None:
    assert list(faults(code)) == []


def test_integers_of_python_are_int64_in_a_model() -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    for values in ([1, 2], 3, np.array([1], np.int32)):
        main.constant("c", values)
    types = [tensor.type for tensor in main.table.tensors]
    assert types == [TensorType.INT64, TensorType.INT64, TensorType.INT32]
