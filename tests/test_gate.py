"""Models held to a budget in CI: the action as its file says it, in a repository with a base and a change."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from example_models import FLOAT_MODEL, INT8_MODEL
from test_cli import run
from typer.testing import CliRunner

import tflm
from tflm.application.checkout import Checkout
from tflm.application.gate import models_from
from tflm.cli.app import app
from tflm.report import NUMBER, TEXT, Table
from tflm.schema import BuiltinOperator, TensorType

ROOT = Path(__file__).parents[1]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())


def git(folder: Path, *arguments: str) -> str:
    """Return the output of git."""
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
    return subprocess.check_output(["git", *identity, "-C", str(folder), *arguments], text=True).strip()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three models on main; on the branch one is larger, one is new, one is broken, and one is as it was."""
    folder = tmp_path_factory.mktemp("gate") / "origin"
    models = folder / "models"
    models.mkdir(parents=True)
    for name, data in (("same", INT8_MODEL), ("changed", INT8_MODEL), ("broken", INT8_MODEL)):
        (models / f"{name}.tflite").write_bytes(data.read_bytes())
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "base")
    git(folder, "switch", "--quiet", "-c", "branch")
    (models / "changed.tflite").write_bytes(_larger_model())
    (models / "a_new one.tflite").write_bytes(INT8_MODEL.read_bytes())
    (models / "broken.tflite").write_bytes(INT8_MODEL.read_bytes()[:100])
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "change")
    return folder


def _larger_model() -> bytes:
    """RELU over 1000 floats: two tensors of 4000 bytes."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x, y = main.input("x", (1000,), TensorType.FLOAT32), main.tensor("y", (1000,), TensorType.FLOAT32)
    main.operator(BuiltinOperator.RELU, [x], [y])
    main.output(y)
    return builder.build()


def gated(model: Path, *options: str) -> Any:
    """Return the command's report on a model."""
    limit = [] if {"--board", "--base", "--budget"} & {*options} else ["--budget", "1M"]
    answer = CliRunner().invoke(app, ["gate", str(model), *options, *limit, "--json"])
    assert answer.exit_code == 0, answer.output
    (found,) = json.loads(answer.stdout)["models"]
    return found


class Job(NamedTuple):
    """The results of a run of the action: status, log, summary, outputs."""

    status: int
    log: str
    summary: str
    outputs: dict[str, Any]


def act(checkout: Path, runner: Path, **inputs: str) -> Job:
    """Run the last step of the action, as GitHub's runner does, with the package that is tested here.

    Args:
        runner: a folder for the files that the runner reads afterwards.
    """
    step = ACTION["runs"]["steps"][-1]
    given = {name: inputs.get(name, "") for name in ACTION["inputs"]}
    values = {f"inputs.{name}": text for name, text in given.items()}
    values |= {"github.action_path": str(ROOT), "steps.python.outputs.python-path": sys.executable}
    stated = {name: re.sub(r"\$\{\{ (.*?) \}\}", lambda m: values[m[1]], text) for name, text in step["env"].items()}
    places = {name: str(runner / name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    environment = {**os.environ, **stated, **places, "RUNNER_TEMP": str(ROOT.parent)}
    script = step["run"].replace('PYTHONPATH="$RUNNER_TEMP/tflm-gate"', f'PYTHONPATH="{ROOT}"')
    assert script != step["run"]
    done = subprocess.run(
        ["bash", "-e", "-c", script], cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )
    written = {name: Path(path).read_text() if Path(path).exists() else "" for name, path in places.items()}
    outputs = dict(line.split("=", 1) for line in written["GITHUB_OUTPUT"].splitlines())
    parsed = {name: json.loads(text) for name, text in outputs.items()}
    assert set(parsed) <= set(ACTION["outputs"])
    return Job(done.returncode, done.stdout + done.stderr, written["GITHUB_STEP_SUMMARY"], parsed)


def test_the_summary_shows_each_model_beside_the_base(repository: Path, tmp_path: Path) -> None:
    job = act(repository, tmp_path, models="models/*.tflite", target="cortex-m", budget="4K", base="main")
    before, after = (gated(repository / "models" / f"{name}.tflite")["size"] for name in ("same", "changed"))
    arena, file = (after[key] - before[key] for key in ("minimum_arena_bytes", "file_bytes"))
    shares = f"{arena / before['minimum_arena_bytes']:+.1%}", f"{file / before['file_bytes']:+.1%}"
    over = after["minimum_arena_bytes"] - 4096
    base = git(repository, "rev-parse", "--short", "main")
    head, broken = "32 | 644", job.summary.splitlines()[7]
    assert job.summary.splitlines() == [
        "### Tensor arena on cortex-m with reference kernels",
        "",
        "2 of 4 models pass",
        "",
        f"| model | smallest arena | change since {base} | head | tail | file | change of the file | fits |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
        rf"| models/a\_new one.tflite | 1,072 | new | {head} | 2,048 | new | yes: 3,024 bytes left of 4,096 |",
        broken,
        f"| models/changed.tflite | {after['minimum_arena_bytes']:,} | {arena:+,} ({shares[0]}) | 8,000 | "
        f"{after['tail_bytes']:,} | {after['file_bytes']:,} | {file:+,} ({shares[1]}) | "
        f"no: {over:,} bytes more than the budget of 4,096 |",
        f"| models/same.tflite | 1,072 | 0 | {head} | 2,048 | 0 | yes: 3,024 bytes left of 4,096 |",
        "",
        "sizes in bytes",
        "",
        "models/changed.tflite: continue with: tflm tile models/changed.tflite --target cortex-m --ram 4096",
    ]
    assert broken.startswith("| models/broken.tflite |  |  |  |  |  |  | no: ")
    assert job.status == 1
    assert f"::error file=models/changed.tflite::no: {over:,} bytes more than the budget of 4,096" in job.log
    assert "::error file=models/broken.tflite::no: " in job.log
    assert job.outputs["fits"] is False
    assert [each["fits"] for each in job.outputs["report"]["models"]] == [True, False, False, True]


@pytest.mark.parametrize(("budget", "status"), [("9K", 0), ("much", 2)])
def test_the_status_is_that_of_the_budget(repository: Path, tmp_path: Path, budget: str, status: int) -> None:
    job = act(
        repository, tmp_path, models="models/same.tflite\nmodels/changed.tflite\n", target="cortex-m", budget=budget
    )
    assert job.status == status
    assert job.outputs.get("fits") == {0: True, 2: None}[status]


@pytest.mark.parametrize("left", [0, 1, -1])
def test_a_budget_is_kept_to_the_byte(left: int) -> None:
    measured = tflm.measure_arena(
        tflm.Model.from_file(INT8_MODEL), tflm.AllOpsResolver(), target=tflm.targets.by_name("cortex-m4")
    )
    budget = str(measured.minimum_arena_bytes + left)
    answer = CliRunner().invoke(app, ["gate", str(INT8_MODEL), "--target", "cortex-m4", "--budget", budget, "--json"])
    assert answer.exit_code == (0 if left >= 0 else 1)
    printed = json.loads(answer.stdout)
    assert printed["fits"] is printed["models"][0]["fits"] is (left >= 0)
    assert printed["budget_bytes"] == int(budget)
    assert f" {abs(left)} bytes" in printed["models"][0]["verdict"]
    assert bool(printed["models"][0]["advice"]) is (left < 0)


def test_all_models_must_pass(tmp_path: Path) -> None:
    larger = tmp_path / "larger.tflite"
    larger.write_bytes(_larger_model())
    sizes = [(gated(model)["size"]["minimum_arena_bytes"], str(model)) for model in (INT8_MODEL, larger)]
    for budget, fit in ((sizes[0][0] - 1, 0), (sizes[0][0], 1), (sizes[1][0], 2)):
        paths = [path for _, path in sizes]
        for order in (paths, paths[::-1]):
            answer = CliRunner().invoke(app, ["gate", *order, "--budget", str(budget), "--json"])
            printed = json.loads(answer.stdout)
            assert sum(model["fits"] for model in printed["models"]) == fit
            assert printed["fits"] == (fit == 2)
            assert answer.exit_code == (0 if fit == 2 else 1)


def test_the_base_is_measured_on_the_same_machine(repository: Path) -> None:
    path = repository / "models" / "changed.tflite"
    for options in (["--target", "cortex-m4", "--kernels", "cmsis-nn"], ["--target", "esp32s3", "--kernels", "esp-nn"]):
        here = gated(path, *options, "--base", "main")
        target, kernels = tflm.targets.by_name(options[1]), options[3]
        for size, data in ((here["base"], INT8_MODEL.read_bytes()), (here["size"], path.read_bytes())):
            found = tflm.measure_arena(tflm.Model(data), tflm.AllOpsResolver(), target=target, kernels=kernels)
            assert size == {
                "minimum_arena_bytes": found.minimum_arena_bytes,
                "arena_used_bytes": found.arena_used_bytes,
                "head_bytes": found.head_bytes,
                "tail_bytes": found.tail_bytes,
                "file_bytes": len(data),
            }
    assert gated(repository / "models" / "a_new one.tflite", *options, "--base", "main")["base"] is None
    assert gated(path, *options)["base"] is None


def test_a_board_and_a_budget_both_count() -> None:
    measured = gated(INT8_MODEL, "--board", "nano33ble")["size"]["minimum_arena_bytes"]
    for budget, status in ((measured, 0), (measured - 1, 1), (1 << 20, 0)):
        arguments = ["gate", str(INT8_MODEL), "--board", "nano33ble", "--budget", str(budget), "--json"]
        answer = CliRunner().invoke(app, arguments)
        assert answer.exit_code == status
        assert bool(json.loads(answer.stdout)["models"][0]["advice"]) is bool(status)


def test_a_board_is_a_budget(repository: Path, tmp_path: Path) -> None:
    job = act(repository, tmp_path, models="models/same.tflite", board="nano33ble")
    assert job.status == 0
    assert "on nano33ble (cortex-m4) with arduino kernels" in job.summary
    assert "B RAM, " in job.outputs["report"]["models"][0]["verdict"]


@pytest.mark.parametrize("name", ["main", "hash"])
def test_the_base_is_fetched_where_the_checkout_is_shallow(repository: Path, tmp_path: Path, name: str) -> None:
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "--quiet", "--depth=1", "--branch=branch", repository.as_uri(), str(shallow))
    base = "main" if name == "main" else git(repository, "rev-parse", "main")
    job = act(shallow, tmp_path, models="models/changed.tflite", target="cortex-m", base=base)
    assert job.status == 0, job.log
    assert job.outputs["report"]["models"][0]["base"]["file_bytes"] == INT8_MODEL.stat().st_size


def test_a_base_that_is_nowhere_is_named(repository: Path, tmp_path: Path) -> None:
    job = act(repository, tmp_path, models="models/same.tflite", base="nowhere")
    assert job.status == 1
    assert "::error::no base revision nowhere" in job.log
    answer = CliRunner().invoke(app, ["gate", str(repository / "models" / "same.tflite"), "--base", "nowhere"])
    assert "run git fetch" in answer.stderr


@pytest.mark.parametrize(
    "base", ["--upload-pack=touch ran;false", "-o", "main:refs/heads/written", "+main:written", "a b"]
)
def test_a_base_is_no_option_and_writes_nothing(repository: Path, tmp_path: Path, base: str) -> None:
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "--quiet", "--depth=1", "--branch=branch", repository.as_uri(), str(shallow))
    files, refs = sorted(shallow.iterdir()), git(shallow, "for-each-ref")
    job = act(shallow, tmp_path, models="models/same.tflite", base=base)
    assert job.status == 1
    assert f"::error::no base revision {base}: " in job.log
    assert " a branch, a tag or a hash" in job.log
    assert (sorted(shallow.iterdir()), git(shallow, "for-each-ref")) == (files, refs)


@pytest.mark.parametrize("base", ["--format=%(path)", "-z"])
def test_the_command_takes_no_option_of_git_for_a_revision(repository: Path, base: str) -> None:
    answer = CliRunner().invoke(app, ["gate", str(repository / "models" / "same.tflite"), f"--base={base}"])
    assert answer.exit_code != 0
    assert "invalid revision" in answer.stderr


def test_a_model_is_no_option(repository: Path, tmp_path: Path) -> None:
    job = act(repository, tmp_path, models="--help\nmodels/same.tflite")
    assert job.status != 0
    assert "--help" in job.log


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the action runs Python 3.12; PYTHONSAFEPATH came with 3.11")
def test_the_checkout_is_not_imported(repository: Path, tmp_path: Path) -> None:
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "--quiet", "--depth=1", "--branch=branch", repository.as_uri(), str(shallow))
    for name in ("numpy", "typer", "tflm"):
        (shallow / f"{name}.py").write_text("import os\nos._exit(0)\n")
    job = act(shallow, tmp_path, models="models/same.tflite", budget="1M")
    assert job.outputs["fits"] is True, job.log


def bare_repository(folder: Path, marker: Path) -> None:
    """Add to a folder what makes it a bare repository, all of it files that can be committed.

    Its commit "base" has the file same.tflite, which a filter puts out: it also creates the marker.
    """
    git(folder, "init", "--quiet", "--bare", ".")
    (folder / "info" / "attributes").write_text("*.tflite filter=evil\n")
    with (folder / "config").open("a") as file:
        file.write(f'[core]\n\tbare = false\n\tworktree = .\n[filter "evil"]\n\tsmudge = "touch \'{marker}\'; cat"\n')
    (folder / "same.tflite").write_bytes(INT8_MODEL.read_bytes())
    inner = "--git-dir", str(folder)
    git(folder, *inner, "add", "same.tflite")
    git(folder, *inner, "commit", "--quiet", "--message", "inner")
    git(folder, *inner, "branch", "--force", "base")


def test_a_bare_repository_in_the_checkout_runs_nothing(repository: Path, tmp_path: Path) -> None:
    copy, ran = tmp_path / "copy", tmp_path / "ran"
    git(tmp_path, "clone", "--quiet", str(repository), str(copy))
    git(copy, "branch", "base")
    bare_repository(copy / "models", ran)
    git(copy, "add", "--force", ".")
    git(copy, "commit", "--quiet", "--message", "attack")
    victim = tmp_path / "victim"  # git keeps no empty folders: those that it needs hold files
    git(tmp_path, "clone", "--quiet", "--branch=branch", str(copy), str(victim))
    git(victim, "branch", "base", "HEAD~1")
    read = ["git", "-C", str(victim / "models"), "cat-file", "--filters", "base:./same.tflite"]
    assert subprocess.run(read, capture_output=True, check=False).stdout
    assert ran.exists()  # git by itself runs it
    ran.unlink()
    model = gated(victim / "models/same.tflite", "--base", "base")
    job = act(victim, tmp_path, models="models/same.tflite", base="base")
    assert model["base"] == model["size"]
    assert (job.status, job.outputs["fits"]) == (0, True), job.log
    assert not ran.exists()


def test_without_a_git_folder_a_bare_repository_is_not_used(tmp_path: Path) -> None:
    """This happens if a checkout is downloaded as an archive."""
    bare_repository(tmp_path, tmp_path / "ran")
    answer = CliRunner().invoke(app, ["gate", str(tmp_path / "same.tflite"), "--base", "base"])
    job = act(tmp_path, tmp_path, models="same.tflite", base="base")
    assert answer.exit_code == job.status == 1
    assert "not a git repository" in answer.stderr
    assert "not a git repository" in job.log
    assert not (tmp_path / "ran").exists()


def test_no_filter_runs_that_a_committed_attribute_names(repository: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    git(tmp_path, "clone", "--quiet", str(repository), str(copy))
    git(copy, "config", "filter.own.smudge", f"touch {tmp_path}/ran; cat")
    (copy / ".gitattributes").write_text("*.tflite filter=own\n")
    model = gated(copy / "models" / "same.tflite", "--base", "HEAD")
    assert model["base"] == model["size"]
    assert not (tmp_path / "ran").exists()


def test_hooks_do_not_run_when_the_base_is_fetched(repository: Path, tmp_path: Path) -> None:
    """A checkout's configuration may take hooks from a committed folder."""
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "--quiet", "--depth=1", "--branch=branch", repository.as_uri(), str(shallow))
    git(shallow, "config", "core.hooksPath", "hooks")
    (shallow / "hooks").mkdir()
    hook = shallow / "hooks" / "reference-transaction"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    assert act(shallow, tmp_path, models="models/same.tflite", base="main").status == 0
    assert not (tmp_path / "ran").exists()
    git(shallow, "tag", "x")
    assert (tmp_path / "ran").exists()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="PYTHONSAFEPATH came with 3.11")
def test_the_checkout_is_not_imported_by_the_installation(tmp_path: Path) -> None:
    for name in ("pip", "logging", "build"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    install = next(step for step in ACTION["runs"]["steps"] if "pip install" in step.get("run", ""))
    places = {"PYTHON": sys.executable, "ACTION": str(tmp_path / "nowhere"), "RUNNER_TEMP": str(tmp_path)}
    done = subprocess.run(
        ["bash", "-e", "-c", install["run"]], cwd=tmp_path, env=os.environ | places, capture_output=True, check=False
    )
    assert b"nowhere" in done.stderr  # pip itself has answered
    assert not (tmp_path / "ran").exists()


def test_variables_of_a_hook_do_not_lead_to_another_repository(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    git(tmp_path, "init", "--quiet", str(other))
    for name in ("GIT_DIR", "GIT_COMMON_DIR"):
        monkeypatch.setenv(name, str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    model = gated(repository / "models" / "same.tflite", "--base", "main")
    assert model["base"] == model["size"]


def test_a_ref_is_not_taken_for_a_hash(repository: Path, tmp_path: Path) -> None:
    """A branch with the name of the base's short hash points to another commit."""
    copy = tmp_path / "copy"
    git(tmp_path, "clone", "--quiet", str(repository), str(copy))
    full = git(repository, "rev-parse", "main")
    path = copy / "models" / "changed.tflite"
    before = gated(path, "--base", full)["base"]
    assert gated(path, "--base", full[:9])["base"] == before
    names = (full[:7], full[:9], "cafe12", full)
    for name in names:
        git(copy, "update-ref", f"refs/heads/{name}", "HEAD")
    for revision in (full[:7], full[:9], f"{full[:7]}~1", "cafe12", f"v1-3-g{full[:7]}"):
        if "-g" in revision:
            git(copy, "tag", revision)
        answer = CliRunner().invoke(app, ["gate", str(path), "--base", revision])
        assert answer.exit_code == 1
        assert "ambiguous" in answer.stderr or "~1" in revision, answer.stderr
    assert gated(path, "--base", full)["base"] == before
    assert gated(path, "--base", "refs/heads/cafe12")["base"] != before
    job = act(copy, tmp_path, models="models/changed.tflite", base=full)
    assert job.outputs["report"]["base"] == full
    assert job.outputs["report"]["models"][0]["base"] == before
    git(copy, "tag", "branch", full)
    assert "ambiguous" in CliRunner().invoke(app, ["gate", str(path), "--base", "branch"]).stderr
    assert gated(path, "--base", "refs/tags/branch")["base"] == before


def test_a_short_hash_is_not_fetched(repository: Path, tmp_path: Path) -> None:
    """A remote has no short hashes, only refs."""
    shallow, origin, base = tmp_path / "shallow", tmp_path / "origin", git(repository, "rev-parse", "--short", "main")
    git(tmp_path, "clone", "--quiet", str(repository), str(origin))
    git(origin, "update-ref", f"refs/heads/{base}", "HEAD")
    git(tmp_path, "clone", "--quiet", "--depth=1", "--branch=branch", origin.as_uri(), str(shallow))
    git(shallow, "update-ref", "-d", f"refs/remotes/origin/{base}")
    assert "all digits of a hash" in act(shallow, tmp_path, models="models/same.tflite", base=base).log


def test_a_base_in_git_lfs_is_read_from_the_clone(repository: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    git(tmp_path, "clone", "--quiet", str(repository), str(copy))
    path, data = copy / "models" / "same.tflite", INT8_MODEL.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    path.write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize {len(data)}\n")
    git(copy, "commit", "--quiet", "--all", "--message", "pointer")
    path.write_bytes(data)
    answer = CliRunner().invoke(app, ["gate", str(path), "--base", "HEAD"])
    assert answer.exit_code == 1
    assert f"git lfs fetch origin {git(copy, 'rev-parse', 'HEAD')}" in answer.stderr
    stored = copy / ".git/lfs/objects" / digest[:2] / digest[2:4] / digest
    stored.parent.mkdir(parents=True)
    stored.write_bytes(data[:-1])
    assert CliRunner().invoke(app, ["gate", str(path), "--base", "HEAD"]).exit_code == 1
    stored.write_bytes(data)
    model = gated(path, "--base", "HEAD")
    assert model["base"] == model["size"]
    git(copy, "config", "lfs.storage", "elsewhere")
    (copy / ".git/lfs").rename(copy / ".git/elsewhere")
    assert gated(path, "--base", "HEAD")["base"] == model["size"]


def test_names_of_files_command_neither_the_summary_nor_the_runner(tmp_path: Path) -> None:
    names = [
        "# a\n\n[x](www.x)<b>|$y$.tflite",
        "::set-output name=fits::true.tflite",
        "##[set-output name=fits]x.tflite",
    ]
    for name in names:
        (tmp_path / name).write_bytes(_larger_model())
    log = run("gate", *names, "--budget", "1K", cwd=tmp_path, GITHUB_ACTIONS="true")
    assert [line for line in (log.stdout + log.stderr).splitlines() if line.startswith("::") or "##[" in line] == []
    document = run("gate", *names, "--budget", "1K", "--json", cwd=tmp_path, GITHUB_ACTIONS="true").stdout
    assert "##[" not in document
    assert [each["model"] for each in json.loads(document)["models"]] == names
    job = act(tmp_path, tmp_path, models="*.tflite", budget="1K")
    assert r"\# a \[x\](www\.x)&lt;b&gt;\|\$y\$.tflite: continue" in job.summary
    assert [line for line in job.summary.splitlines() if line.startswith(("#", "[", "<", "$"))][1:] == []
    inside, token = "", ""
    for line in job.log.splitlines():
        if line.startswith("::stop-commands::"):
            token = line.removeprefix("::stop-commands::")
        elif line == f"::{token}::":
            token = ""
        elif not token:
            inside += f"{line}\n"
    assert all(line.startswith("::error file=") for line in inside.splitlines() if "::" in line or "##[" in line)
    assert job.outputs["fits"] is False


def test_the_hook_takes_the_files_that_it_is_given() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    program, *command = hook["entry"].split()
    assert program == "tflm"
    assert re.search(hook["files"], INT8_MODEL.name)
    for budget, status in (("64K", 0), ("1K", 1)):
        files = [str(INT8_MODEL), str(FLOAT_MODEL)]
        assert CliRunner().invoke(app, [*command, f"--budget={budget}", *files]).exit_code == status


def test_a_pattern_without_files_is_an_error(tmp_path: Path) -> None:
    assert "*.tflite: no files match" in CliRunner().invoke(app, ["gate", str(tmp_path / "*.tflite")]).stderr


def test_two_asterisks_stand_for_all_folders(tmp_path: Path) -> None:
    files = [tmp_path / "a.tflite", tmp_path / "b" / "c" / "d.tflite"]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    assert models_from([str(tmp_path / "**" / "*.tflite"), str(files[0])]) == files


def test_a_checkout_within_another_is_the_inner_one(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "inner"):
        (folder / ".git").mkdir(parents=True)
    assert Checkout(tmp_path / "inner" / "models" / "m.tflite").top == (tmp_path / "inner").resolve()
    assert Checkout(tmp_path / "models" / "m.tflite").top == tmp_path.resolve()


def test_names_stay_text_in_markdown() -> None:
    table = Table("", {"a": TEXT, "b": NUMBER}, [["<b>|*x*_y_`z`", 1000]])
    assert table.markdown() == "| a | b |\n| --- | ---: |\n| &lt;b&gt;\\|\\*x\\*\\_y\\_\\`z\\` | 1,000 |\n"


@pytest.mark.parametrize(("budget", "colour"), [("64K", "#2c7a3f"), ("1K", "#b3261e")])
def test_a_badge_shows_what_is_needed(tmp_path: Path, budget: str, colour: str) -> None:
    options = ["--target", "cortex-m4", "--budget", budget, "--badge", str(tmp_path / "a.svg")]
    CliRunner().invoke(app, ["arena", str(INT8_MODEL), *options])
    picture = xml.etree.ElementTree.parse(tmp_path / "a.svg").getroot()
    texts = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == ["tensor arena on cortex-m4", "1.0 KiB"]
    assert colour in (tmp_path / "a.svg").read_text()


@pytest.mark.parametrize("options", [[], ["--target", "cortex-m4"], ["--json"]], ids=" ".join)
def test_a_gate_that_nothing_limits_is_refused(tmp_path: Path, options: list[str]) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.tflite").write_bytes(INT8_MODEL.read_bytes())
    answer = run("gate", "*.tflite", *options, cwd=tmp_path, COLUMNS="400")
    assert (answer.returncode, answer.stdout) == (2, "")
    for named in ("nothing limits a.tflite and 1 more", "--board NAME", "--budget SIZE", "tflm.toml", "--base"):
        assert named in answer.stderr


def test_a_model_that_no_budget_of_the_settings_matches_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.tflite").write_bytes(INT8_MODEL.read_bytes())
    (tmp_path / "tflm.toml").write_text('[budgets]\n"a.tflite" = "64K"\n')
    assert run("gate", "a.tflite", cwd=tmp_path).returncode == 0
    answer = run("gate", "a.tflite", "b.tflite", cwd=tmp_path, COLUMNS="400")
    assert (answer.returncode, "nothing limits b.tflite;" in answer.stderr) == (2, True)
    (tmp_path / "tflm.toml").write_text('board = "nano33ble"\n')
    assert run("gate", "a.tflite", "b.tflite", cwd=tmp_path).returncode == 0
