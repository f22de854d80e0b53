"""Requirements of a release: its changes, its API, its packages, and the files of a published repository."""

from __future__ import annotations

import re
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
import release
import yaml

from tflm.application.doctor import requirements

ROOT = Path(__file__).parents[1]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a package that had a release, in place of this one."""
    monkeypatch.setattr(release, "ROOT", tmp_path)
    (tmp_path / "tflm").mkdir()
    write_package(tmp_path, "def plan(model, steps=1): ...\ndef tile(model): ...\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "--quiet", "-m", "first")
    git(tmp_path, "tag", "v0.1.0")
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
    """Run git in a folder."""
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True)


def write_package(folder: Path, source: str) -> None:
    """Write the package of a repository."""
    (folder / "tflm" / "__init__.py").write_text(f'__all__ = ["plan", "tile"]\n{source}')


# --- Changes ---------------------------------------------------------------------------------------------------------

CHANGELOG = "# Changes\n\n## Unreleased\n\n## 0.2.0\n\n### Removed\n\n- `tile`\n\n## 0.1.0\n\nThe first.\n"


def test_a_version_needs_an_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "ROOT", tmp_path)
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    assert release.changes("v0.1.0") == "The first.\n"
    assert release.changes("v0.2.0") == "### Removed\n\n- `tile`\n"
    for tag in ("v0.3.0", "v0.1", None):
        with pytest.raises(release.ReleaseError, match="has no entry"):
            release.changes(tag)


def test_the_next_version_has_an_entry() -> None:
    assert "### Added" in release.changes(None)


# --- API -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "entry", "named"),
    [
        ("def plan(model, steps=1): ...\ndef tile(model): ...\ndef fold(model): ...\n", "", None),
        ("def plan(model, steps=1, order=None): ...\ndef tile(model): ...\n", "", None),
        ("def plan(model, steps=1): ...\n", "", "tile"),
        ("def plan(model, steps=1): ...\ndef tile(model): ...\n__all__ = ['plan']\n", "", "tile"),
        ("def plan(model, steps=1): ...\n", "### Removed\n\n- `tile`: use `fit`\n", None),
        ("def plan(model): ...\ndef tile(model): ...\n", "### Removed\n\n- `steps` of `plan`\n", "plan"),
        ("def plan(model): ...\ndef tile(model): ...\n", "### Changed\n\n- `plan` has no `steps`\n", None),
    ],
    ids=["added", "option added", "removed", "not exported", "removed and said", "changed", "changed and said"],
)
def test_what_breaks_callers_must_be_in_the_changes(
    repository: Path, source: str, entry: str, named: str | None
) -> None:
    pytest.importorskip("griffe", reason="needs the extra `release`: make release-check")
    write_package(repository, source)
    if named is None:
        assert release.compare_api(None, entry) == "compared with v0.1.0"
    else:
        with pytest.raises(release.ReleaseError, match=named):
            release.compare_api(None, entry)


def test_a_clone_without_a_release_has_nothing_to_compare_with(repository: Path) -> None:
    pytest.importorskip("griffe", reason="needs the extra `release`: make release-check")
    git(repository, "tag", "--delete", "v0.1.0")
    assert release.compare_api(None, "") == "no earlier release to compare with"


# --- Packages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "size", "said"),
    [
        ("tflm/__init__.py", 10, None),
        ("tests/conftest.py", 10, "not the package's: tests/conftest.py"),
        ("tflm/data.bin", release.LARGEST_WHEEL_BYTES, "more than"),
    ],
)
def test_a_wheel_has_a_limit_and_nothing_foreign(tmp_path: Path, name: str, size: int, said: str | None) -> None:
    wheel = tmp_path / "pytflm-0.2.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(name, bytes(size))
        archive.writestr("pytflm-0.2.0.dist-info/METADATA", "")
    if said is None:
        release.check_wheel(wheel)
        return
    with pytest.raises(release.ReleaseError, match=said):
        release.check_wheel(wheel)


def test_the_version_is_that_of_the_tag() -> None:
    wheel = Path("pytflm-0.2.0-py3-none-any.whl")
    release.check_version(wheel, "v0.2.0")
    release.check_version(wheel, None)
    with pytest.raises(release.ReleaseError, match=r"not v0\.3\.0"):
        release.check_version(wheel, "v0.3.0")


# --- Files of the repository -----------------------------------------------------------------------------------------


def loaded(path: str) -> Any:
    """A YAML file of the repository."""
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def test_the_conda_recipe_needs_what_the_package_needs() -> None:
    run = loaded("conda/recipe.yaml")["requirements"]["run"]
    in_recipe = dict(each.split(" ", 1) for each in run)
    names = {"flatbuffers": "python-flatbuffers"}
    needed = {names.get(each.name, each.name): each.specifier for each in requirements() if each.extra in ("", "cli")}
    assert in_recipe.pop("python") == ">=3.10"
    assert in_recipe == needed


def test_the_files_of_a_publication_are_complete() -> None:
    workflow = loaded(".github/workflows/release.yml")
    assert set(workflow["jobs"]["publish"]["needs"]) == {"try", "test", "conda"}
    assert workflow["jobs"]["publish"]["permissions"]["id-token"] == "write"
    assert len(workflow["jobs"]["try"]["strategy"]["matrix"]["system"]) == 3
    citation = loaded("CITATION.cff")
    assert {"cff-version", "title", "message", "authors"} <= set(citation)


@pytest.mark.parametrize("form", ["wrong_arena", "wrong_answer", "crash"])
def test_issue_forms_ask_for_the_output_of_doctor(form: str) -> None:
    fields = {field.get("id"): field for field in loaded(f".github/ISSUE_TEMPLATE/{form}.yml")["body"]}
    assert "tflm doctor" in fields["doctor"]["attributes"]["label"]
    assert fields["doctor"]["validations"]["required"] is True


def test_lowest_versions_that_are_tested_are_those_that_are_allowed() -> None:
    lowest = re.search(r"^LOWEST := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert lowest is not None
    tested = dict(re.findall(r"'(\w+)==([\d.]+?)(?:\.\*)?'", lowest[1]))
    allowed = {each.name: each.lowest for each in requirements() if each.name in tested}
    assert tested == allowed
