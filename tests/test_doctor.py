"""`tflm doctor`: the problems that it finds in an installation, and its advice."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import re
import sysconfig
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
from oracle import Oracle
from test_cli import run

from tflm import cli
from tflm.application import doctor
from tflm.compiler.calls import is_available
from tflm.release import project_url


def problems() -> dict[str, doctor.Check]:
    """Return what must be fixed, by the name of the part."""
    return {check.name: check for check in doctor.diagnose() if check.status == "problem"}


def test_an_installation_that_works_is_healthy() -> None:
    answer = run("doctor")
    assert answer.returncode == 0, answer.stdout
    assert "nothing to fix" in answer.stdout
    checks = {check["name"]: check for check in json.loads(run("doctor", "--json").stdout)["checks"]}
    assert {"Python", "numpy", "compiled engine", "TFLM followed", "extra fast", "extra cli"} <= set(checks)
    assert {check["status"] for check in checks.values()} <= {"ok", "absent"}


@pytest.mark.parametrize(("is_free_threaded", "expected"), [(0, " on "), (1, ", free-threaded, on ")])
def test_a_python_without_a_lock_is_named(
    monkeypatch: pytest.MonkeyPatch, is_free_threaded: int, expected: str
) -> None:
    monkeypatch.setattr(sysconfig, "get_config_var", lambda _: is_free_threaded)
    found = {check.name: check.found for check in doctor.diagnose()}
    assert found["Python"].startswith(platform.python_version() + expected)


def test_the_recorded_answer_is_that_of_tflm(oracle: Oracle) -> None:
    ((answer,),) = oracle.run(doctor.recorded_model(), [[doctor.recorded_input()]])
    assert answer.ravel().tolist() == doctor.RECORDED


def test_a_wrong_answer_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "RECORDED", [0, 0, 0, 0])
    found = problems()
    assert set(found) >= {"model without the engine"}
    assert project_url("Repository") in found["model without the engine"].fix


@pytest.mark.skipif(not is_available(), reason="needs the extra `fast`")
@pytest.mark.parametrize(
    ("variable", "value", "name", "fix"),
    [
        ("TFLM_CPU", "abacus", "compiled engine", "unset TFLM_CPU"),
        ("TFLM_CACHE_DIR", "/proc/none", "cache of the engine", "set TFLM_CACHE_DIR"),
    ],
)
def test_wrong_settings_of_the_engine_are_problems(variable: str, value: str, name: str, fix: str) -> None:
    answer = run("doctor", "--json", **{variable: value})
    assert answer.returncode == 1
    (check,) = (each for each in json.loads(answer.stdout)["checks"] if each["name"] == name)
    assert check["status"] == "problem"
    assert fix in check["fix"]


@pytest.mark.parametrize(
    ("version", "found"), [("1.26.4", "1.26.4, too old"), (None, "not installed")], ids=["too old", "missing"]
)
def test_packages_that_are_missing_or_too_old_are_named(
    monkeypatch: pytest.MonkeyPatch, version: str | None, found: str
) -> None:
    read = importlib.metadata.version

    def changed(name: str) -> str:
        if name != "numpy":
            return read(name)
        if version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(importlib.metadata, "version", changed)
    assert problems()["numpy"] == doctor.Check("numpy", "problem", found, "pip install 'numpy>=2.0'")


def test_an_extra_that_is_not_installed_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    read = importlib.metadata.version

    def without_matplotlib(name: str) -> str:
        if name == "matplotlib":
            raise importlib.metadata.PackageNotFoundError(name)
        return read(name)

    monkeypatch.setattr(importlib.metadata, "version", without_matplotlib)
    checks = {check.name: check for check in doctor.diagnose()}
    assert checks["extra plot"].status == "absent"
    assert "pip install 'matplotlib" in checks["extra plot"].fix
    assert doctor.is_healthy(list(checks.values()))


def test_every_extra_is_listed_with_the_versions_that_it_allows() -> None:
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    section = text.partition("[project.optional-dependencies]")[2].partition("\n[tool")[0]
    declared = re.findall(r"^([a-z]+) = \[", section, re.MULTILINE)
    checks = {check.name: check for check in doctor.diagnose()}
    assert {"quantize", "testing", "oracle"} < set(declared)
    for extra in declared:
        check = checks[f"extra {extra}"]
        assert check.found
        assert check.status == "ok" or check.fix
    for requirement in doctor.requirements():
        assert f'"{requirement.name}' in text
        assert requirement.lowest in requirement.specifier or requirement.lowest == "0"


def test_it_runs_without_the_packages_of_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "REQUIRED", ("a_package_that_is_missing",))
    monkeypatch.setattr("sys.argv", ["tflm", "doctor"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    assert "nothing to fix" in capsys.readouterr().out


FOUND = [
    doctor.Check("Python", "ok", "3.12"),
    doctor.Check("a package", "problem", "1.0, too old", "install it"),
    doctor.Check("extra x", "absent", "none", "install that"),
]


@pytest.mark.parametrize(
    ("checks", "notes"),
    [(FOUND, "a package: install it"), (FOUND[::2], "nothing to fix"), (FOUND[:1], "nothing to fix")],
)
def test_a_report_without_the_packages_of_the_command_has_columns(checks: list[doctor.Check], notes: str) -> None:
    width = max(len(each.name) for each in checks)
    status = max(len(each.status) for each in checks)
    rows = [f"{each.name.ljust(width)}  {each.status.ljust(status)}  {each.found}" for each in checks]
    assert doctor.plain_text(checks).splitlines() == [*rows, "", notes]
    figures = doctor.doctor_figures(checks)
    assert figures["healthy"] is doctor.is_healthy(checks) is (notes == "nothing to fix")
    assert figures["checks"][0] == {"name": "Python", "status": "ok", "found": "3.12", "fix": ""}


@pytest.mark.parametrize(
    ("versions", "status", "fix"),
    [
        ({"a": "2.0", "b": "3"}, "ok", ""),
        ({"a": "2.0"}, "absent", "pip install 'b'"),
        ({"a": "1.9.9", "b": "0"}, "problem", "pip install 'a>=2.0'"),
        ({"a": "1.9"}, "absent", "pip install 'a>=2.0'; pip install 'b'"),
        ({"a": "10.1", "b": "1"}, "ok", ""),
        ({}, "absent", "pip install 'a>=2.0'; pip install 'b'"),
    ],
)
def test_an_extra_has_the_status_of_its_packages(
    versions: dict[str, str], status: str, fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    needs = [
        "other>=9; extra == 'other'",
        "a>=2.0; extra == 'some'",
        'b; extra == "some"',
        "c",
        "pytflm[x]; extra == 'some'",
    ]
    monkeypatch.setattr(doctor, "requires", lambda name: needs)
    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(importlib.metadata, "files", lambda name: None)
    assert [(each.name, each.extra) for each in doctor.requirements()] == [
        ("other", "other"),
        ("a", "some"),
        ("b", "some"),
        ("c", ""),
    ]
    found = doctor._extra("some")
    assert (found.name, found.status, found.fix) == ("extra some", status, fix)


@pytest.mark.parametrize(("is_there", "status"), [(True, "ok"), (False, "problem")])
def test_a_package_without_its_modules_is_a_problem(
    is_there: bool, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [Path("a-1.0.dist-info/METADATA"), Path("a.py"), Path("lost.so")]
    located = {"a.py": is_there, "lost.so": False, "METADATA": True}
    files = [
        SimpleNamespace(
            suffix=path.suffix, locate=lambda path=path: Path(__file__ if located[path.name] else "nowhere")
        )
        for path in paths
    ]
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.0")
    monkeypatch.setattr(importlib.metadata, "files", lambda name: files)
    found = doctor._package(doctor.Requirement("a", ">=1.0", "1.0", ""))
    assert (found.status, "--force-reinstall" in found.fix) == (status, not is_there)


def test_an_engine_that_is_absent_is_said_to_be_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "obstacle", lambda: "no numba")
    (check,) = doctor._engine_checks()
    assert check == doctor.Check("compiled engine", "absent", "no numba; numpy runs the kernels")


@pytest.mark.skipif(not is_available(), reason="needs the extra `fast`")
@pytest.mark.parametrize("variable", ["0", "1"])
def test_an_engine_has_its_processor_its_cache_and_a_model(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFLM_COMPILED", variable)
    monkeypatch.setattr(doctor, "_run", lambda name, delegates: doctor.Check(name, "ok", f"{len(delegates)} delegates"))
    checks = [*doctor._engine_checks()]
    names = ["compiled engine", "cache of the engine", "model with the engine"]
    assert [(check.name, check.status) for check in checks] == [(name, "ok") for name in names]
    assert checks[0].found.endswith("switched off by TFLM_COMPILED=0") is (variable == "0")
    assert checks[2].found == "1 delegates"


def test_a_model_that_fails_or_warns_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(delegates: object) -> list[int]:
        raise OSError("a fault")

    def warn(delegates: object) -> list[int]:
        warnings.warn("no compiler", stacklevel=1)
        return doctor.RECORDED

    for answer, found, fix in ((fail, "OSError: a fault", "report it"), (warn, "no compiler", "reinstall numba")):
        monkeypatch.setattr(doctor, "_answer", answer)
        check = doctor._run("a model", ())
        assert (check.name, check.status, check.found) == ("a model", "problem", found)
        assert check.fix.startswith(fix)


def test_the_address_of_the_project_is_in_one_place() -> None:
    root = Path(__file__).parents[1]
    owner = project_url("Repository").split("/")[-2]
    kinds = {".py", ".md", ".yml", ".yaml", ".cff", ".toml", ".html", ".js", ".ipynb"}
    folders = (".github", "conda", "docs", "examples", "tflm", "tools", "web")
    places = [path for folder in folders for path in (root / folder).rglob("*")]
    texts = {path: path.read_text(encoding="utf-8") for path in (*places, *root.iterdir()) if path.suffix in kinds}
    assert [path.name for path, text in texts.items() if f"{owner}/" in text] == ["pyproject.toml"]
