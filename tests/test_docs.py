"""The documentation says what the code says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from strategies import LARGE
from test_cli import FLOAT_MODEL, INT8_MODEL, figures, run

import tflm
from tflm.kernels import REGISTRATIONS
from tflm.schema import TensorType

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


@pytest.mark.parametrize("name", reference.PAGES)
def test_reference_pages_are_up_to_date(name: str) -> None:
    written = (DOCS / name).read_text(encoding="utf-8")
    assert written == reference.PAGES[name](), "run `make reference`"


@pytest.mark.parametrize("operator", REGISTRATIONS)
def test_an_operator_declares_its_types_unless_it_takes_any(operator: str) -> None:
    assert bool(REGISTRATIONS[operator].types) != (operator in reference.ANY_TYPE)


@pytest.mark.parametrize("name", LARGE)
def test_the_types_that_tests_use_are_declared(name: str) -> None:
    data, _ = LARGE[name]()
    model = tflm.Model(data)
    for subgraph in model.subgraphs:
        for operator in subgraph.operators or ():
            declared = REGISTRATIONS[model.operator_name(operator)].types
            places = [i for i in (*(operator.inputs or ()), *(operator.outputs or ())) if i >= 0]
            used = {subgraph.tensors[i].type for i in places}
            assert not declared or used & set(declared)


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of a page."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/getting_started.md",
        "docs/sizing_an_arena.md",
        "docs/delegates.md",
        "docs/kernel_libraries.md",
        "docs/litert.md",
    ],
)
def test_the_python_of_a_page_runs_and_prints_what_its_comments_say(
    page: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    code = "\n".join(blocks(ROOT / page, "python"))
    exec(compile(code, page, "exec"), {})
    promised = re.findall(r"print\(.*\)  # (.*)", code)
    assert capsys.readouterr().out.splitlines() == promised


def anchors(page: Path) -> set[str]:
    """What links may lead to inside a page: its headings, as GitHub names them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "page", [*ROOT.glob("*.md"), *DOCS.glob("*.md"), *ROOT.glob("examples/*/*.md")], ids=lambda page: page.stem
)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", text):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_is_in_the_index() -> None:
    linked = set(re.findall(r"\]\((\w+\.md)\)", (DOCS / "README.md").read_text(encoding="utf-8")))
    assert linked == {page.name for page in DOCS.glob("*.md")} - {"README.md"}


def key_paths(value: Any, path: str = "") -> set[str]:
    """Where the values of a document are: `models[].peak.bytes`."""
    if isinstance(value, dict) and value:
        return {found for key, each in value.items() for found in key_paths(each, f"{path}.{key}".lstrip("."))}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return set().union(*(key_paths(each, f"{path}[]") for each in value))
    return {path}


def test_the_keys_of_json_are_the_documented_ones(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", in_0_0=np.zeros((1, 1), np.int8))
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    main.operator(
        "FlexErf", [main.input("x", (2,), TensorType.FLOAT32)], [y := main.tensor("y", (2,), TensorType.FLOAT32)]
    )
    main.output(y)
    of_tensorflow = tmp_path / "flex.tflite"
    of_tensorflow.write_bytes(builder.build())
    printed = {
        "arena": figures("arena", INT8_MODEL, FLOAT_MODEL, "--board", "esp32-s3-eye"),
        "check": json.loads(run("check", of_tensorflow, "--board", "nano33ble", "--json").stdout),
        "compare": figures("compare", FLOAT_MODEL, INT8_MODEL, "--tolerance", 0),
        "flash": figures("flash", INT8_MODEL, "--target", "cortex-m4", "--kernels", "cmsis-nn"),
        "inspect": figures("inspect", INT8_MODEL),
        "plan": figures("plan", INT8_MODEL),
        "profile": figures("profile", INT8_MODEL, "--runs", 1),
        "run": figures("run", INT8_MODEL, "--inputs", tmp_path / "in.npz"),
        "resize": figures("resize", INT8_MODEL, "-o", tmp_path / "resized.tflite"),
        "versions": figures("versions", INT8_MODEL),
    }
    sections = re.split(r"^## tflm ", (DOCS / "json.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    documented = {
        section.split()[0]: set(re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)) for section in sections
    }
    varying = re.compile(r"(metadata|records)\..*?(?=\.|$)")  # names that the model or the runtime gives
    for command, document in printed.items():
        json.dumps(document)
        assert {varying.sub(r"\1.*", path) for path in key_paths(document)} == documented[command]
