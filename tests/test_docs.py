"""The documentation says what the code says."""

from __future__ import annotations

import inspect
import re
import shlex
from pathlib import Path

import pytest
import reference
from test_cli import run

import tflm
from tflm import memory
from tflm.cli.app import app
from tflm.kernels import REGISTRATIONS
from tflm.testing.operators import LARGE

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


@pytest.mark.parametrize("name", reference.PAGES)
def test_reference_pages_are_up_to_date(name: str) -> None:
    written = (DOCS / name).read_text(encoding="utf-8")
    assert written == reference.PAGES[name](), "run `make reference`"


@pytest.mark.parametrize("name", reference.PAGES)
def test_reference_pages_show_no_objects_of_python(name: str) -> None:
    page = reference.PAGES[name]()
    assert re.findall(r"<class|ForwardRef|inspect\.|<function| at 0x", page) == []


@pytest.mark.parametrize("name", ["SubgraphBuilder", "BufferRequirements", "MemoryPlanner", *tflm.__all__])
def test_the_api_page_has_every_public_name(name: str) -> None:
    value = getattr(tflm, name, None)
    if not inspect.ismodule(value) and not name.startswith("_"):
        assert re.search(rf"^::: tflm\.(\w+\.)?{name}$", reference.api(), re.MULTILINE)


def test_every_planner_is_on_the_api_page() -> None:
    page = reference.api()
    for planner in (*memory.PLANNERS.values(), *memory.MODEL_PLANNERS.values()):
        assert f"::: tflm.memory.{planner.__name__}\n" in page


@pytest.mark.parametrize("command", [command.callback.__name__ for command in app.registered_commands])
def test_a_summary_is_a_short_line_that_begins_with_a_verb(command: str) -> None:
    callbacks = {each.callback.__name__: each.callback for each in app.registered_commands}
    summary = (callbacks[command].__doc__ or "").partition("\n")[0]
    assert len(summary) <= 60
    verbs = (
        "Change|Check|Compare|Compile|Evaluate|Explain|Find|Fold|"
        "List|Make|Print|Read|Remove|Rewrite|Run|Show|Time|Write"
    )
    assert re.match(rf"({verbs}) ", summary)
    assert summary.endswith(".")


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
        "docs/building_models.md",
        "docs/custom_operator.md",
        "docs/getting_started.md",
        "docs/sizing_an_arena.md",
        "docs/delegates.md",
        "docs/kernel_libraries.md",
        "docs/litert.md",
        "docs/testing.md",
    ],
)
def test_the_python_of_a_page_runs_and_prints_what_its_comments_say(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    code = "\n".join(blocks(ROOT / page, "python"))
    exec(compile(code, page, "exec"), {})
    promised = re.findall(r"print\(.*\)  # (.*)", code)
    assert capsys.readouterr().out.splitlines() == promised


def test_the_readme_installs_what_its_commands_use_and_they_succeed(tmp_path: Path) -> None:
    commands = "".join(blocks(ROOT / "README.md", "sh")).splitlines()
    (extras,) = {found for line in commands for found in re.findall(r"pip install .*\[([\w,]+)\]", line)}
    assert f"USED := {extras}\n" in (ROOT / "Makefile").read_text(encoding="utf-8")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    lines = [shlex.split(line, comments=True) for line in commands if line.startswith("tflm ")]
    assert [words[1] for words in lines] == ["arena", "fit"]
    for words in lines:
        ran = run(*words[1:], cwd=tmp_path)
        assert ran.returncode == 0, ran.stdout + ran.stderr


def anchors(page: Path) -> set[str]:
    """What links may lead to inside a page: its headings, as GitHub names them, and the names of the API."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    names = re.findall(r"^::: (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings} | {*names}


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
