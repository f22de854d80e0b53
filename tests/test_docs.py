"""The documentation agrees with the code."""

from __future__ import annotations

import collections
import importlib.util
import inspect
import pkgutil
import re
import shlex
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import reference
from large_operators import LARGE
from test_cli import run

import tflm
from tflm import memory
from tflm.cli.app import COMMANDS, NAMES, function_of
from tflm.kernels import REGISTRATIONS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


@pytest.mark.parametrize("name", reference.PAGES)
def test_reference_pages_are_up_to_date(name: str) -> None:
    written = (DOCS / name).read_text(encoding="utf-8")
    assert written == reference.PAGES[name](), "run `make reference`"


def test_the_stub_of_the_resolver_s_methods_is_up_to_date() -> None:
    assert reference.STUB.read_text(encoding="utf-8") == reference.resolver_methods(), "run `make reference`"


@pytest.mark.parametrize("name", reference.PAGES)
def test_reference_pages_show_no_objects_of_python(name: str) -> None:
    page = reference.PAGES[name]()
    assert re.findall(r"<class|ForwardRef|inspect\.|<function| at 0x", page) == []


def test_every_public_name_is_on_one_page_of_the_api() -> None:
    listed = [name for names in reference.TOPICS.values() for name in names]
    assert len(listed) == len(set(listed))
    public = {name for name in tflm.__all__ if not name.startswith("_") and not inspect.ismodule(getattr(tflm, name))}
    planners: tuple[Any, ...] = (*memory.PLANNERS.values(), *memory.MODEL_PLANNERS.values(), memory.MemoryPlanner)
    assert set(listed) >= {"schema.SubgraphBuilder", *public, *(f"memory.{planner.__name__}" for planner in planners)}


@pytest.mark.parametrize("topic", reference.TOPICS)
def test_the_api_names_objects_where_they_are_defined(topic: str) -> None:
    """A path such as `tflm.rewriting.fold` is also a module, which the site would show instead."""
    paths = re.findall(r"^<!-- ::: (.*) -->$", reference.api_topic(topic), re.MULTILINE)
    assert len(paths) == len(reference.TOPICS[topic])
    for path, name in zip(paths, reference.TOPICS[topic]):
        assert importlib.util.find_spec(path.rpartition(".")[0]) is not None
        assert pkgutil.resolve_name(path) is attrgetter(name)(tflm)


@pytest.mark.parametrize("command", NAMES)
def test_a_summary_is_a_short_line_that_begins_with_a_verb(command: str) -> None:
    (summary,) = (commands[command] for commands in COMMANDS.values() if command in commands)
    assert summary == (function_of(command).__doc__ or "").partition("\n")[0]
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


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: str(page.name))
def test_a_page_with_names_of_tflm_in_cpp_says_that_they_moved(page: Path) -> None:
    if any(re.search(r"tflite::(?!micro)", block) for block in blocks(page, "cpp")):
        assert "releases.md#names-that-moved" in page.read_text(encoding="utf-8")


def without_code(page: Path) -> str:
    """The text of a page, without its code blocks and comments."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page on GitHub: its headings, with numbers for equal ones."""
    found: collections.Counter[str] = collections.Counter()
    names = set()
    for heading in re.findall(r"^#+ +(.*?)[ #]*$", without_code(page), re.MULTILINE):
        shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
        names.add(f"{name}-{found[name]}" if found[name] else name)
        found[name] += 1
    return names


def test_anchors_are_those_of_github(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `b_c` [d](e.md), f-g\n## Twice\n## Twice\n```sh\n# no heading\n```\n::: tflm.fit\n")
    assert anchors(page) == {"a-b_c-d-f-g", "twice", "twice-1"}


PAGES = [page for folder in (".", ".github", "docs", "examples/*") for page in sorted(ROOT.glob(f"{folder}/*.md"))]
"""Every page of the repository."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", without_code(page)):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_is_in_the_index() -> None:
    linked = set(re.findall(r"\]\((\w+\.md)\)", (DOCS / "README.md").read_text(encoding="utf-8")))
    assert linked == {page.name for page in DOCS.glob("*.md")} - {"README.md"}
