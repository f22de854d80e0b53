"""Output of commands on a narrow terminal and into pipes, and the sources of models."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from example_models import INT8_MODEL
from test_cli import figures, refusal, run

import tflm
from tflm.application import timing
from tflm.arena_page import BLOCK_KINDS
from tflm.cli import output
from tflm.cli.output import table_lines
from tflm.report import Column, Figure, Report, Table, shortened, with_thousands
from tflm.schema import (
    BuiltinOperator,
    CallOnceOptions,
    FullyConnectedOptions,
    TensorType,
)

NAME = "a_network/with_a/very_long_name/of_a_layer/and_its/Relu6"


@pytest.fixture
def long_names(tmp_path: Path) -> Path:
    """A model with names longer than a terminal, that differ at their ends."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    tensor = main.input(f"{NAME}/input", (1, 64, 64, 12), TensorType.INT8, tflm.quantized(0.0123456))
    for i in range(4):
        output = main.tensor(f"{NAME}/{i}", (1, 64, 64, 12), TensorType.INT8, tflm.quantized(0.0123456))
        main.operator(BuiltinOperator.RELU6, [tensor], [output])
        tensor = output
    main.output(tensor)
    path = tmp_path / "a model whose file has quite a long name itself.tflite"
    path.write_bytes(builder.build())
    return path


COMMANDS: dict[str, list[object]] = {
    "arena": [],
    "inspect": [],
    "plan": [],
    "profile": ["--runs", 1],
    "run": ["--random"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_tables_fit_a_terminal_and_have_no_blanks_at_their_ends(command: str, long_names: Path) -> None:
    answer = run(command, long_names, *COMMANDS[command], COLUMNS="80")
    assert answer.returncode == 0, answer.stderr
    assert max(map(len, answer.stdout.splitlines())) <= 80
    assert not re.search(r"[ \t]$", answer.stdout, re.MULTILINE)


def test_numbers_are_never_broken(long_names: Path) -> None:
    shown = run("arena", long_names, COLUMNS="60").stdout.split()
    (measured,) = figures("arena", long_names)["models"]
    assert measured["buffers"]
    for buffer in measured["buffers"]:
        assert f"{buffer['bytes']:,}" in shown
        assert f"{buffer['offset']:,}" in shown


def test_names_are_shortened_in_the_middle() -> None:
    assert shortened("abcdefgh", 8) == "abcdefgh"
    assert shortened("abcdefghi", 5) == "ab\N{HORIZONTAL ELLIPSIS}hi"
    table = Table("", {"bytes": Column.NUMBER, "name": Column.NAME}, [(123456789, NAME), (1, "x")])
    assert table_lines(table, 30) == [
        "      bytes  name",
        "123,456,789  a_networ\N{HORIZONTAL ELLIPSIS}ts/Relu6",
        "          1  x",
    ]
    assert max(map(len, table_lines(table, 200))) == 13 + len(NAME)


def test_figures_are_of_attributes_of_records_of_a_kind() -> None:
    records = [SimpleNamespace(size=None), SimpleNamespace(size=12), "none"]
    figures = Figure("size", Column.NUMBER, "size", kind=SimpleNamespace), Figure("", Column.TEXT, "__class__.__name__")
    assert Table.of("", records, *figures).rows == [["", "SimpleNamespace"], ["12", "SimpleNamespace"], ["", "str"]]


def test_wide_characters_take_two_places_and_headings_end_together() -> None:
    rows = [("日本 e\u0301 x", 1), ("word by word", 23)]
    table = Table("", {"a b c d": Column.TEXT, "bytes": Column.NUMBER}, rows)
    assert table_lines(table, 13) == [
        "a b c",
        "d       bytes",
        "日本 e\u0301      1",
        "x",
        "word       23",
        "by",
        "word",
    ]


def test_names_are_shortened_in_a_pipe_and_whole_in_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)  # pytest-xdist sets it
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x, y = main.input("x", (1, 8), TensorType.FLOAT32), main.tensor(5 * NAME, (1, 8), TensorType.FLOAT32)
    main.operator(BuiltinOperator.RELU, [x], [y])
    main.output(y)
    path = tmp_path / "long.tflite"
    path.write_bytes(builder.build())
    shown = run("inspect", path).stdout
    assert 5 * NAME not in shown
    assert max(map(len, shown.splitlines())) <= 160 + len(str(path))
    assert 5 * NAME in run("inspect", path, "--json").stdout


def test_profile_shows_what_call_once_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = tflm.ModelBuilder()
    main, once = builder.subgraph(), builder.subgraph("once")
    x, y = main.input("x", (1, 8), TensorType.FLOAT32), main.tensor("y", (1, 8), TensorType.FLOAT32)
    main.operator(BuiltinOperator.CALL_ONCE, [], [], CallOnceOptions(init_subgraph_index=1))
    _fully_connected(main, x, y)
    main.output(y)
    first, result = once.constant("c", np.ones((1, 8), np.float32)), once.tensor("r", (1, 8), TensorType.FLOAT32)
    _fully_connected(once, first, result)
    ticks = itertools.count(0, 1_500)
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter_ns=lambda: next(ticks)))
    whole, operators = timing.timings(tflm.Model(builder.build()), runs=3, seed=0, delegate="none")
    rows = {(op.subgraph_index, op.index): (op.operator, op.runs, op.multiply_accumulates) for op in operators}
    assert rows == {
        (0, 0): ("CALL_ONCE", 1, 0),
        (0, 1): ("FULLY_CONNECTED", 1, 64),
        (1, 0): ("FULLY_CONNECTED", 0, 64),
    }
    assert whole == 1.5
    assert sum(op.share for op in operators if op.subgraph_index == 0) == pytest.approx(1)


def _fully_connected(subgraph: Any, x: int, y: int) -> None:
    weights = subgraph.constant("w", np.eye(8, dtype=np.float32))
    subgraph.operator(BuiltinOperator.FULLY_CONNECTED, [x, weights, -1], [y], FullyConnectedOptions())


def test_a_model_may_come_through_a_pipe(tmp_path: Path) -> None:
    expected = figures("arena", INT8_MODEL)["models"][0]["minimum_arena_bytes"]
    for name in ("-", "/dev/stdin"):
        command = [sys.executable, "-m", "tflm", "arena", name, "--json"]
        with INT8_MODEL.open("rb") as model, subprocess.Popen(["cat"], stdin=model, stdout=subprocess.PIPE) as cat:
            answer = subprocess.run(command, stdin=cat.stdout, capture_output=True, text=True, check=True)
        assert f'"minimum_arena_bytes": {expected}' in answer.stdout
    if not hasattr(os, "mkfifo"):
        return
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    writer = threading.Thread(target=lambda: fifo.write_bytes(INT8_MODEL.read_bytes()), daemon=True)
    writer.start()
    assert tflm.Model.from_file(fifo).description == tflm.Model.from_file(INT8_MODEL).description
    writer.join(30)
    assert not writer.is_alive()


def test_standard_input_that_is_no_model_is_named() -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "tflm", "inspect", "-"], input=b"nothing", capture_output=True, check=False
    )
    assert answer.returncode == 1
    assert answer.stderr.startswith(b"tflm: -: ")


def test_the_page_is_written_even_if_nobody_reads_the_output(tmp_path: Path) -> None:
    page = tmp_path / "arena.html"
    command = f"{sys.executable} -m tflm arena {INT8_MODEL} --html {page} | true"
    subprocess.run(["bash", "-c", command], check=False)
    assert page.read_text().endswith("</html>\n")


def test_the_command_names_the_file_that_can_not_be_read(tmp_path: Path) -> None:
    assert "Is a directory" in refusal("inspect", tmp_path)


def test_what_is_written_beside_the_figures_is_named(tmp_path: Path) -> None:
    page, badge, outputs = tmp_path / "page.html", tmp_path / "badge.svg", tmp_path / "out.npz"
    answer = run("arena", INT8_MODEL, "--html", page, "--badge", badge)
    assert answer.stdout.splitlines()[-2:] == [
        f"wrote {path}: {with_thousands(path.stat().st_size)}" for path in (page, badge)
    ]
    assert run("run", INT8_MODEL, "--random", "--outputs", outputs).stdout.startswith(f"wrote {outputs}: ")
    assert "wrote" not in run("arena", INT8_MODEL, "--html", page, "--json").stdout


@pytest.mark.long
def test_a_plot_cuts_nothing_off_and_has_the_colours_of_the_page(tmp_path: Path) -> None:
    image = pytest.importorskip("matplotlib.image", reason="needs matplotlib")
    model = tmp_path / "a $x^$ name.tflite"
    model.write_bytes(INT8_MODEL.read_bytes())
    for second in ([], ["--second-planner", "linear"]):
        answer = run("arena", model, "--plot", tmp_path / "plan.png", *second)
        assert answer.returncode == 0, answer.stderr
        pixels = np.round(image.imread(tmp_path / "plan.png")[..., :3] * 255).astype(np.int64)
        edges = (pixels[:2], pixels[-2:], pixels[:, :2], pixels[:, -2:])
        assert all((edge == 255).all() for edge in edges)
        shown = {tuple(pixel) for pixel in pixels.reshape(-1, 3).tolist()}
        for kind in ("input", "output", "product"):
            assert tuple(bytes.fromhex(BLOCK_KINDS[kind].colour[1:])) in shown


def test_a_table_of_records_has_a_column_for_each_figure() -> None:
    class Record(NamedTuple):
        name: str
        bytes: int | None
        share: float

    table = Table.of(
        "sizes",
        [Record("a", 1234, 0.5), Record("b", None, 0.25)],
        Figure("model", Column.NAME, "name"),
        None,
        Figure("size", Column.NUMBER, "bytes"),
        Figure("of it", Column.NUMBER, "share", ".1%"),
        Figure("half", Column.NUMBER, lambda record: record.bytes // 2 if record.bytes else None),
    )
    assert list(table.columns.items()) == [
        ("model", Column.NAME),
        ("size", Column.NUMBER),
        ("of it", Column.NUMBER),
        ("half", Column.NUMBER),
    ]
    assert table.rows == [["a", "1,234", "50.0%", "617"], ["b", "", "25.0%", ""]]


@pytest.mark.parametrize("shown", [*itertools.product([False, True], repeat=5)])
def test_parts_of_a_report_have_a_blank_line_between_them(
    shown: tuple[bool, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """The verdict and the title have none after them."""
    has_title, has_facts, has_table, has_second, has_notes = shown
    tables = [
        Table(name, {"n": Column.NUMBER}, [("1",)]) for name, each in (("a", has_table), ("b", has_second)) if each
    ]
    facts, notes = [("fact", "1")] * has_facts, ["note", "other"] * has_notes
    output.show(Report("title" * has_title, facts, tables, notes, "fits"))
    parts = ["fact  1"] * has_facts + [f"{table.title}\nn\n1" for table in tables] + ["note\nother"] * has_notes
    expected = "\n".join(["fits", *["title"] * has_title, "\n\n".join(parts)])
    assert capsys.readouterr().out.rstrip("\n") == expected.rstrip("\n")


def test_numbers_with_two_parts_are_lists_in_json() -> None:
    assert output.plain({"z": np.array([1 + 2j], np.complex64)}) == {"z": [[1.0, 2.0]]}


@pytest.mark.parametrize(
    ("width", "widths"), [(52, (30, 20)), (51, (29, 20)), (42, (20, 20)), (40, (19, 19)), (10, (9, 9))]
)
def test_the_widest_columns_are_shortened_first(width: int, widths: tuple[int, int]) -> None:
    names = "a" * 30, "b" * 20
    _, line = table_lines(Table("", {"x": Column.NAME, "y": Column.NAME}, [names]), width)
    assert line == "  ".join(shortened(name, room).ljust(room) for name, room in zip(names, widths)).rstrip()
