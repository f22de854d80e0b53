"""Names from models, files and arguments: output has no control characters, and pages do not change."""

from __future__ import annotations

import ast
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from example_models import INT8_MODEL
from test_cli import figures, run

import tflm
from tflm.application.export import Firmware, sources
from tflm.application.machine import MachineOptions
from tflm.arena_page import BLOCK_KINDS, arena_frame, arena_page, block_kind
from tflm.cli.output import table_lines
from tflm.report import NAME, Report, Table, in_one_line, printable
from tflm.schema import ActivationFunctionType, BuiltinOperator, FullyConnectedOptions, TensorType

CONTROL = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\r\u202egnp\u2066\u2028"
"""ESC, BEL, CSI of C1, DEL, a carriage return, overrides of the direction of writing, a separator of lines."""

MARKUP = "</script><!--<script><img src=x onerror=alert(1)>'\"{{title}}{{data}}"


def model_of(name: str) -> bytes:
    """A layer whose tensors are called so."""
    builder = tflm.ModelBuilder(name)
    main = builder.subgraph()
    x = main.input(f"x{name}", (1, 2), TensorType.INT8, tflm.quantized(0.5))
    y = main.tensor(f"y{name}", (1, 2), TensorType.INT8, tflm.quantized(0.5))
    weights = main.constant(f"w{name}", np.eye(2, dtype=np.int8), tflm.quantized(0.5))
    options = FullyConnectedOptions(fused_activation_function=ActivationFunctionType.NONE)
    main.operator(BuiltinOperator.FULLY_CONNECTED, [x, weights, -1], [y], options)
    main.output(y)
    return builder.build()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose file, tensors and description are called so."""
    path = tmp_path_factory.mktemp("hostile") / f"a{CONTROL}.tflite"
    path.write_bytes(model_of(CONTROL))
    return path


def require_printable(text: str) -> None:
    """Check that a terminal shows every character of a text as itself."""
    assert [line for line in text.split("\n") if not line.isprintable()] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["arena"],
        ["arena", "--board", "nano33ble"],
        ["arena", "--json"],
        ["inspect"],
        ["inspect", "--check"],
        ["check", "--board", "nano33ble"],
        ["gate", "--budget", "1"],
        ["plan"],
        ["tile"],
        ["resize", "-o", "resized.tflite"],
        ["run", "--random"],
        ["run", "--inputs", f"{CONTROL}=x.npy"],
        ["run", "--inputs", f"{CONTROL}.npy"],
        ["run"],
        ["profile", "--runs", "1"],
        ["compare", str(INT8_MODEL)],
        ["versions"],
        ["export", f"firmware{CONTROL}"],
        ["arena", "--target", CONTROL],
        ["arena", f"--{CONTROL}"],
    ],
    ids=lambda arguments: printable(" ".join(Path(argument).name for argument in arguments)),
)
def test_nothing_that_is_printed_controls_the_terminal(arguments: list[str], hostile: Path, tmp_path: Path) -> None:
    answer = run(arguments[0], hostile, *arguments[1:], cwd=tmp_path)
    assert answer.stdout + answer.stderr
    require_printable(answer.stdout)
    require_printable(answer.stderr)


def test_a_traceback_and_a_wrong_command_are_escaped_too(hostile: Path, tmp_path: Path) -> None:
    wrong = tmp_path / f"b{CONTROL}.tflite"
    wrong.write_bytes(b"no model")
    for arguments in (["--debug", "arena", wrong], [CONTROL], [f"--{CONTROL}"]):
        answer = run(*arguments)
        assert answer.returncode != 0
        assert "x1b" in answer.stderr
        require_printable(answer.stderr)
    assert "Traceback" in run("--debug", "arena", wrong).stderr


def test_no_command_prints_by_itself() -> None:
    """All output passes through `output` and `plain_text`, where it is escaped."""
    folder = Path(tflm.__file__).with_name("cli")
    for path in folder.glob("*.py"):
        if path.name in ("output.py", "plain_text.py"):
            continue
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        names = {call.id if isinstance(call, ast.Name) else getattr(call, "attr", "") for call in calls}
        assert not names & {"print", "echo", "secho"}, path.name


def test_reports_escape_every_text_that_they_hold() -> None:
    table = Table(CONTROL, {CONTROL: NAME}, [[CONTROL]])
    report = Report(CONTROL, [(CONTROL, CONTROL)], [table], [CONTROL])
    for text in (report.html(), "\n".join(table_lines(table, 200)), table.markdown()):
        require_printable(text)
    element = "<script>"
    report = Report(element, [(element, element)], [Table(element, {element: NAME}, [[element]])], [element])
    assert element not in report.html()
    assert printable("größe, 日本: fine") == "größe, 日本: fine"


class Parsed(HTMLParser):
    """The elements of a page, and the text in each."""

    def __init__(self, page: str):
        super().__init__()
        self.elements: list[str] = []
        self.texts: dict[str, str] = {}
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        """Keep an element."""
        self.elements.append(tag)

    def handle_data(self, data: str) -> None:
        """Keep a text."""
        self.texts.setdefault(self.elements[-1] if self.elements else "", data)


def drawn(name: str) -> dict[str, Any]:
    """A plan as pictures take it, of a model whose tensors are called so."""
    from tflm.runtime.micro_measurement_report import drawn_figures

    return drawn_figures(tflm.measure_arena(tflm.Model(model_of(name)), tflm.AllOpsResolver()))


@pytest.mark.parametrize("name", ["plain", MARKUP, "PLANS", "TITLE", CONTROL, "\\u003c"])
def test_a_page_has_the_same_elements_whatever_names_are(name: str) -> None:
    page = Parsed(arena_page(name, {"greedy": drawn(name)}))
    usual = Parsed(arena_page("a", {"greedy": drawn("a")}))
    assert page.elements == usual.elements
    assert page.texts["title"] == page.texts["h1"] == printable(name)
    source = arena_page(name, {"greedy": drawn(name)})
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', source, re.DOTALL)
    assert not set("<>&") & set(data)  # "<!--" and "<script" would change how a browser reads what follows
    buffers = json.loads(data)[0]["buffers"]
    assert [buffer["name"] for buffer in buffers] == [f"x{name}", f"y{name}"]


def test_a_page_names_its_only_script_and_loads_nothing() -> None:
    page = arena_page("a", {"greedy": drawn("a")})
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    directives = dict(each.strip().split(" ", 1) for each in policy.split(";"))
    assert directives["default-src"] == "'none'"
    assert directives["script-src"].startswith("'sha256-")
    assert "unsafe" not in directives["script-src"]
    assert 'sandbox="allow-scripts"' in arena_frame("a", {"greedy": drawn("a")})


def test_every_buffer_of_a_plan_is_of_a_kind_that_has_a_colour() -> None:
    plan = drawn("a")
    assert [block_kind(plan, buffer) for buffer in plan["buffers"]] == ["input", "output"]
    assert len({kind.colour for kind in BLOCK_KINDS.values()}) == len(BLOCK_KINDS)


def test_the_origin_of_sources_stays_in_its_comment() -> None:
    files = sources(
        Firmware(tflm.Model(model_of("a")), "a", MachineOptions().machine(), "tflm export x\n#error\u2028\\")
    )
    first = files["main.cc"].splitlines()[0]
    assert first == f"// Made by: {in_one_line('tflm export x' + chr(10) + '#error' + chr(0x2028) + chr(92))}"
    assert "#error" not in files["main.cc"].splitlines()[1]


def test_numbers_of_json_are_read_as_they_were(hostile: Path) -> None:
    (measured,) = figures("arena", hostile)["models"]
    assert measured["buffers"][0]["name"] == f"x{CONTROL}"
