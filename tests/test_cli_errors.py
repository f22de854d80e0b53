"""Exit statuses and messages of commands: options have the names that the user types, and no request is empty."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from example_models import FLOAT_MODEL, INT8_MODEL
from test_cli import refusal, run

import tflm
import tflm.cli
from tflm.cli.group import OPTIONS, with_options
from tflm.cli.output import table_lines
from tflm.report import NAME, TEXT, Table

PACKAGE = Path(tflm.__file__).parent

ARGUMENT = re.compile(r"(?<![\\w.\\[])[a-z_]+=(?=[\'\"{]|True|False|[0-9])")
"""An argument of a function with a value, in the text of an error."""

PYTHON_ONLY = {
    "input=": "the name of a tensor, in an example of --shape",
    "preserve_all_tensors=": "no command asks for a tensor of an interpreter that lacks them",
}
"""What looks like an argument that has an option, and has none."""


@functools.cache
def raised_texts() -> set[str]:
    """The constant parts of all texts in functions that raise, with { for each value: errors may be built earlier."""
    texts = set()
    for source in (text for path in PACKAGE.rglob("*.py") if "raise" in (text := path.read_text())):
        functions = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef))
        for nodes in (list(ast.walk(function)) for function in functions):
            if any(isinstance(node, ast.Raise) for node in nodes):
                texts |= set(texts_in(nodes))
    return texts


def texts_in(nodes: list[ast.AST]) -> Iterator[str]:
    """Texts in the nodes of a function, without docstrings."""
    docstrings = [n.value for n in nodes if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)]
    for each in nodes:
        if isinstance(each, ast.JoinedStr):
            yield "".join(str(p.value) if isinstance(p, ast.Constant) else "{" for p in each.values)
        elif isinstance(each, ast.Constant) and isinstance(each.value, str) and each not in docstrings:
            yield each.value


def test_errors_built_before_they_are_raised_are_found() -> None:
    assert any(text.startswith("overlap={ is for another kernel library") for text in raised_texts())


def test_every_argument_in_an_error_has_an_option() -> None:
    named = {found for text in raised_texts() for found in ARGUMENT.findall(text)}
    known = {option.partition("=")[0] + "=" for option in OPTIONS}
    assert named - known - set(PYTHON_ONLY) == set()


def test_arguments_of_functions_become_options() -> None:
    assert with_options("a (on_bad='leave-out' skips such samples)") == "a (--leave-out skips such samples)"
    assert with_options("use kernels='cmsis-nn'") == "use --kernels cmsis-nn"
    assert with_options("my_kernels='a'") == "my_kernels='a'"


def test_commands_advise_options(tmp_path: Path) -> None:
    error = refusal("plan", INT8_MODEL, "--overlap", "cmsis-nn")
    assert "--kernels cmsis-nn" in error
    assert "overlap=" not in error
    np.save(tmp_path / "x.npy", np.zeros((2, 3), np.int8))
    error = refusal("evaluate", INT8_MODEL, "--inputs", tmp_path / "x.npy")
    assert "on_bad" not in error


def test_a_part_without_ram_is_a_usage_error() -> None:
    answer = run("arena", INT8_MODEL, "--ram", "0")
    assert (answer.returncode, "--ram is 0" in answer.stderr) == (2, True)
    answer = run("fit", INT8_MODEL, "--target", "cortex-m4", "--ram", "0K")
    assert (answer.returncode, "--ram is 0K" in answer.stderr) == (2, True)


def test_names_that_are_empty_are_refused() -> None:
    for option in ("--target", "--board", "--kernels", "--tflm"):
        answer = run("arena", INT8_MODEL, option, "")
        assert (answer.returncode, "unknown" in answer.stderr) == (2, True)


def test_a_float_model_has_no_ranges_to_compare(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 1), np.float32))
    assert "no quantized activations" in refusal("calibrate-report", FLOAT_MODEL, "--inputs", tmp_path / "x.npy")


def test_no_color_leaves_no_styles() -> None:
    shown = run("inspect", INT8_MODEL, FORCE_COLOR="1", TERM="xterm-256color").stdout
    assert "\x1b[1mOperators\x1b[0m\n\x1b[2m#  operator " in shown
    assert r"\x1b" not in shown
    assert "\x1b[" not in run("inspect", INT8_MODEL, FORCE_COLOR="1", TERM="xterm-256color", NO_COLOR="1").stdout


def test_shapes_are_not_wrapped_and_names_are_shortened() -> None:
    table = Table("", {"name": NAME, "shape": TEXT, "what": TEXT}, [("n" * 300, "1 96 96 3", "word " * 60)])
    lines = table_lines(table, 160)
    assert max(map(len, lines)) <= 160
    assert any("1 96 96 3" in line for line in lines)
    assert all("1 96 96 3" in line for line in table_lines(table, 40)[1:2])


def test_an_interrupt_while_modules_are_imported_has_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("importlib.util.find_spec", interrupted)
    with pytest.raises(SystemExit) as ended:
        tflm.cli.main()
    assert ended.value.code == 130
