"""What has to be known of every operator: a new one that forgets a fact is named here, with the fact."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tflm.delegates.compiled.bindings import FAMILIES as COMPILED
from tflm.firmware.loop_trips import PATHS
from tflm.kernels import FAMILIES, REGISTRATIONS, Registration
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.testing.operators import OPERATORS
from tflm.versioning.runtimes import FIRST_RUNTIMES

NOT_RESIZABLE = {
    **dict.fromkeys(("CALL_ONCE", "IF", "WHILE"), "its subgraphs would have to be resized, too"),
    **dict.fromkeys(("ASSIGN_VARIABLE", "READ_VARIABLE", "VAR_HANDLE"), "the shape is that of a variable"),
    **dict.fromkeys(("BATCH_TO_SPACE_ND", "BROADCAST_ARGS", "EMBEDDING_LOOKUP", "GATHER_ND"), "no rule yet"),
    **dict.fromkeys(("SPACE_TO_BATCH_ND", "UNIDIRECTIONAL_SEQUENCE_LSTM"), "no rule yet"),
}
"""Builtin operators without a rule of output shapes, and why. Options of custom operators are not read."""

NUMPY_ONLY: dict[str, str] = {
    **dict.fromkeys(("IF", "WHILE"), "runs other subgraphs, whose operators are compiled on their own"),
    **dict.fromkeys(("ethos-u",), "calls a driver in Python"),
}
"""Operators without compiled kernels, and why."""

NOT_COUNTED = {
    **dict.fromkeys(("BATCH_MATMUL", "SVDF", "TRANSPOSE_CONV"), "estimated from multiply-accumulates"),
    **dict.fromkeys(("UNIDIRECTIONAL_SEQUENCE_LSTM",), "estimated from multiply-accumulates"),
}
"""Operators with weights whose loops were not counted."""

WITHOUT_STRATEGY = {
    "ethos-u": "needs a driver",
}
"""Operators that models of one operator can't test, and why."""


def missing_facts(registration: Registration) -> Iterator[str]:
    """What is not said of an operator, in the words of the place where it belongs."""
    name = registration.name
    if not any(name in operators for operators in FAMILIES.values()):
        yield "FAMILIES of tflm.kernels"
    if isinstance(registration.operator, BuiltinOperator):
        if bool(registration.shape_rule) == (name in NOT_RESIZABLE):
            yield "output_shapes of the registration"
        if name not in FIRST_RUNTIMES:
            yield "FIRST_RUNTIMES of tflm.versioning"
        if len(FIRST_RUNTIMES.get(name, ())) > 1 and not registration.versions:
            yield "versions of the registration"
    if bool(registration.weights) != bool(registration.multiply_accumulates):
        yield "weights or multiply_accumulates of the registration"
    if registration.weights and all(name in paths for paths in PATHS.values()) == (name in NOT_COUNTED):
        yield "a path in tflm.firmware.loop_trips"
    if sum(name in operators for operators in (*COMPILED.values(), NUMPY_ONLY)) != 1:
        yield "FAMILIES of tflm.delegates.compiled.bindings"
    if (name in OPERATORS) == (name in WITHOUT_STRATEGY):
        yield "a strategy in tflm/testing/operators"


@pytest.mark.parametrize("operator", REGISTRATIONS)
def test_every_fact_of_an_operator_is_declared(operator: str) -> None:
    assert list(missing_facts(REGISTRATIONS[operator])) == []


def test_what_a_new_operator_forgets_is_named() -> None:
    weights = {"weights": (1,), "types": (TensorType.INT8,)}
    assert len(list(missing_facts(Registration(BuiltinOperator.GELU, lambda context, node: print, **weights)))) == 7


ROOT = Path(__file__).parents[1]


def walk() -> str:
    """The section of CONTRIBUTING.md that adds HARD_SWISH."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return text.split("## Adding an operator\n")[1].split("A custom operator")[0]


def test_the_walk_names_every_file_that_knows_the_operator() -> None:
    named = set(re.findall(r"`(tflm/[\w/]+\.pyi?)`", walk()))
    knowing = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tflm").rglob("*.py*")
        if path.suffix in (".py", ".pyi") and re.search("HARD_SWISH|HardSwish|hard_swish", path.read_text("utf-8"))
    }
    general = {"tflm/kernels/shapes.py", "tflm/schema/version_rules.py", "tflm/delegates/compiled/__init__.py"}
    assert named - general == knowing
    assert all((ROOT / path).is_file() for path in general)


def test_the_code_of_the_walk_is_that_of_the_files() -> None:
    steps = re.split(r"\n(?=\d\. )", walk())
    blocks = [(step, re.findall(r"```python\n(.*?)```", step, re.DOTALL)) for step in steps]
    assert sum(len(found) for _, found in blocks) == 5
    for step, found in blocks:
        texts = [(ROOT / path).read_text("utf-8") for path in re.findall(r"`(tflm/[\w/]+\.py)`", step)]
        for block in found:
            code = textwrap.dedent(block)
            assert any(code in textwrap.dedent(text) or code.strip() in text for text in texts), code


@pytest.mark.parametrize(
    ("table", "fact"),
    [
        (FAMILIES, "FAMILIES of tflm.kernels"),
        (FIRST_RUNTIMES, "FIRST_RUNTIMES of tflm.versioning"),
        (COMPILED, "FAMILIES of tflm.delegates.compiled.bindings"),
        (OPERATORS, "a strategy in tflm/testing/operators"),
    ],
)
def test_a_step_of_the_walk_that_is_left_out_is_named(
    table: dict[str, object], fact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    registration = REGISTRATIONS["HARD_SWISH"]
    assert list(missing_facts(registration)) == []
    for family, operators in list(table.items()):
        if family == "HARD_SWISH":
            monkeypatch.delitem(table, family)
        elif isinstance(operators, tuple) and "HARD_SWISH" in operators:
            monkeypatch.setitem(table, family, tuple(name for name in operators if name != "HARD_SWISH"))
    assert list(missing_facts(registration)) == [fact]


def test_reasons_are_of_operators_that_this_package_has() -> None:
    assert {*NOT_RESIZABLE, *NOT_COUNTED, *NUMPY_ONLY, *WITHOUT_STRATEGY} <= REGISTRATIONS.keys()
