"""What commands write: whole files or none, never over an input, and not over what tflm did not write."""

from __future__ import annotations

import ast
import contextlib
import errno
import inspect
import itertools
import os
import re
import resource
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest
from example_models import INT8_MODEL
from test_cli import run

import tflm
from tflm.application import output_files
from tflm.application.errors import OptionError
from tflm.application.output_files import OutputRules, Written, obsolete_files
from tflm.atomic_write import append, approval, write_atomically, write_files
from tflm.cli.app import NAMES, function_of
from tflm.cli.parameters import written_parameters
from tflm.compiler import cached_files

PACKAGE = Path(tflm.__file__).parent

WRITERS = {
    "atomic_write.py": "every file that is replaced or appended to",
    "evaluation/metrics.py": "results that an interrupted run continues",
    "compiler/cached_files.py": "the cache's folder and locks",
    "cli/group.py": "the null device in place of a closed output",
}
"""The modules that change files, and which."""

WRITING = {"write_text", "write_bytes", "mkdir", "unlink", "rename", "touch", "tofile", "rmtree", "mkstemp"}
SAVING = {"savefig", "imsave", "save", "savez"}
ANY_WRITING = re.compile(rf"\b({'|'.join(['open', *WRITING, *SAVING])})\(")
BUFFERS = {"file", "picture"}
"""Names of buffers in memory."""


def is_writing(call: ast.Call) -> bool:
    """Whether a call changes a file, as far as the source shows."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name == "open":
        texts = [
            each.value for each in ast.walk(call) if isinstance(each, ast.Constant) and isinstance(each.value, str)
        ]
        return any(len(text) < 4 and set(text) & set("wxa+") for text in texts)
    if name in SAVING:
        return not any(isinstance(each, ast.Name) and each.id in BUFFERS for each in call.args)
    return name in WRITING


def test_one_module_writes_files() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if ANY_WRITING.search(source := path.read_text())
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and is_writing(node)
    }
    assert found == set(WRITERS)


READ = {
    *("model", "models", "path", "inputs", "labels", "reference", "folder", "log", "flash_data", "other", "initial"),
    *("linked", "calibration", "frontend"),
}
"""Parameters with paths that commands read."""


def test_every_path_of_a_command_is_an_input_or_an_output() -> None:
    for command in map(function_of, NAMES):
        parameters = inspect.signature(command, eval_str=True).parameters
        paths = {name for name, each in parameters.items() if "Path" in str(get_args(each.annotation)[:1])}
        assert paths - READ <= set(written_parameters(command)) <= paths, command.__name__


def rejection(*arguments: object) -> str:
    """The message of a command that rejects its options."""
    answer = run(*arguments)
    assert answer.returncode == 2, answer.stdout + answer.stderr
    return " ".join(answer.stderr.split())


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model that a command could overwrite."""
    return Path(shutil.copy(INT8_MODEL, tmp_path / "m.c"))


ONTO_THE_MODEL: dict[str, list[object]] = {
    "arena --html": ["arena", "MODEL", "--html", "OUT"],
    "arena --plot": ["arena", "MODEL", "--plot", "OUT"],
    "arena --badge": ["arena", "MODEL", "--badge", "OUT"],
    "arena --node-data": ["arena", "MODEL", "--node-data", "OUT"],
    "plan --csv": ["plan", "MODEL", "--csv", "OUT"],
    "profile --node-data": ["profile", "MODEL", "--runs", 1, "--node-data", "OUT"],
    "run --outputs": ["run", "MODEL", "--random", "--outputs", "OUT"],
    "gate --summary": ["gate", "MODEL", "--budget", "64K", "--summary", "OUT"],
}


@pytest.mark.parametrize("link", [None, os.symlink, os.link], ids=["itself", "a symbolic link", "a hard link"])
@pytest.mark.parametrize("command", ONTO_THE_MODEL)
def test_an_output_is_never_an_input(command: str, link: Any, model: Path) -> None:
    before, output = model.read_bytes(), model
    if link is not None:
        output = model.with_name("linked.png")
        link(model, output)
    arguments = [{"MODEL": model, "OUT": output}.get(str(each), each) for each in ONTO_THE_MODEL[command]]
    for force in ([], ["--force"]) if "--summary" not in command else ([],):
        answer = run(*arguments, *force)
        assert answer.returncode == 2, answer.stderr
        assert f"{output} is an input of this command" in " ".join(answer.stderr.split())
        assert model.read_bytes() == before
    assert {each.name for each in model.parent.iterdir()} <= {"m.c", "linked.png"}


def test_a_data_file_that_is_an_input_is_not_replaced(tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", np.zeros((1, 1), np.int8))
    for given in (tmp_path / "in.npy", f"x={tmp_path}/in.npy"):
        error = rejection("run", INT8_MODEL, "--inputs", given, "--outputs", tmp_path / "in.npy", "--force")
        assert "is an input" in error


def test_compile_does_not_replace_a_model_of_that_name(model: Path) -> None:
    before = model.read_bytes()
    assert "is an input" in rejection("compile", model, model.parent, "--force")
    assert model.read_bytes() == before
    assert [each.name for each in model.parent.iterdir()] == ["m.c"]


def test_two_outputs_are_two_files(tmp_path: Path) -> None:
    error = rejection("arena", INT8_MODEL, "--html", tmp_path / "a", "--badge", tmp_path / "." / "a")
    assert "two outputs" in error


REPLACING: dict[str, tuple[list[object], str]] = {
    "export": (["export", INT8_MODEL, "DIR", "--board", "pico"], "README.md"),
    "compile --self-test": (["compile", INT8_MODEL, "DIR", "--self-test", 1], "Makefile"),
    "strip": (["strip", INT8_MODEL, "-o", "DIR/out"], "out"),
    "arena": (["arena", INT8_MODEL, "--html", "DIR/out"], "out"),
    "run": (["run", INT8_MODEL, "--random", "--outputs", "DIR/out"], "out"),
}


@pytest.mark.parametrize("command", REPLACING)
def test_only_what_tflm_wrote_is_replaced_without_force(command: str, tmp_path: Path) -> None:
    words, name = REPLACING[command]
    arguments = [str(each).replace("DIR", str(tmp_path)) for each in words]
    mine = tmp_path / name
    mine.write_text("by hand")
    error = rejection(*arguments)
    assert str(mine) in error
    assert "--force" in error
    assert [each.name for each in tmp_path.iterdir()] == [name]
    assert mine.read_text() == "by hand"
    assert run(*arguments, "--force").returncode == 0
    written = mine.read_bytes()
    assert written != b"by hand"
    assert run(*arguments).returncode == 0  # what tflm wrote is replaced
    mine.write_bytes(written + b"\n")
    assert str(mine) in rejection(*arguments)
    copy = tmp_path / "copy"
    copy.write_bytes(written)
    if "DIR/out" in words:
        assert str(copy) in rejection(*(each.replace("/out", "/copy") for each in arguments))


def test_the_same_contents_need_no_permission(tmp_path: Path) -> None:
    assert run("export", INT8_MODEL, tmp_path / "a", "--target", "cortex-m").returncode == 0
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    (tmp_path / "a").rename(tmp_path / "c")
    (tmp_path / "b").rename(tmp_path / "a")
    assert run("export", INT8_MODEL, tmp_path / "a", "--target", "cortex-m").returncode == 0


def test_a_model_keeps_its_permissions(tmp_path: Path) -> None:
    path = Path(shutil.copy(INT8_MODEL, tmp_path / "m.tflite"))
    path.chmod(0o640)
    assert run("strip", path, "-o", path, "--force").returncode == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    mask = os.umask(0o027)
    try:
        write_atomically(tmp_path / "new", b"")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write protected files")
def test_a_protected_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "a").chmod(0o400)
    with pytest.raises(PermissionError):
        write_atomically(tmp_path / "a", b"2")


def test_threads_and_processes_write_one_file(tmp_path: Path) -> None:
    path, errors = tmp_path / "file", []
    contents = [bytes([i]) * 10_000 for i in range(4)]

    def write(data: bytes) -> None:
        try:
            for _ in range(50):
                write_atomically(path, data)
                write_files(tmp_path / "folder", {"a": data, "b": data})
        except OSError as error:
            errors.append(error)

    code = f"from tflm.atomic_write import write_atomically as w\nfor i in range(50): w({str(path)!r}, b'p' * 10_000)"
    children = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    threads = [threading.Thread(target=write, args=(data,)) for data in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [child.wait() for child in children] == [0, 0]
    assert not errors
    assert path.read_bytes() in (*contents, b"p" * 10_000)
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["a", "b", "file", "folder"]


def test_a_folder_gets_all_files_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = {"a": b"old a", "b": b"old b", "gone": b"old"}
    for failing in ("replace", "chmod", "unlink"):
        for step in range(4):
            shutil.rmtree(tmp_path)
            write_files(tmp_path, old)
            real, calls = getattr(os, failing), itertools.count()

            def fail(*arguments: Any, real: Any = real, calls: Any = calls, step: int = step) -> None:
                if next(calls) == step:
                    raise OSError(errno.EIO, "failed")
                real(*arguments)

            with monkeypatch.context() as patch:
                patch.setattr(os, failing, fail)
                try:
                    write_files(tmp_path, {"b": b"new", "new/c": b"new", "a": b"new"}, [tmp_path / "gone"])
                except OSError:
                    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == old


def limited(size: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    """What a command does if no file may be larger than some size, as on a full disk."""
    return subprocess.run(
        [sys.executable, "-m", "tflm", *map(str, arguments)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
        capture_output=True,
        text=True,
        check=False,
    )


def test_compile_on_a_full_disk_leaves_the_old_files(tmp_path: Path) -> None:
    assert run("compile", INT8_MODEL, tmp_path, "--name", "m").returncode == 0
    old = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    sizes = sorted(len(each) for each in old.values())
    answer = limited(sizes[-1] - 1, "compile", INT8_MODEL, tmp_path, "--name", "m", "--ram", "1M", "--self-test", 1)
    assert answer.returncode == 1
    assert "File too large" in answer.stderr
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == old


def test_a_device_that_is_full_and_a_file_in_place_of_a_folder(tmp_path: Path) -> None:
    answer = run("strip", INT8_MODEL, "-o", "/dev/full")
    assert (answer.returncode, "/dev/full: No space left" in answer.stderr) == (1, True)
    for words in (["export", INT8_MODEL, "/dev/full"], ["compile", INT8_MODEL, "/dev/full"]):
        answer = run(*words)
        assert answer.returncode == 1
        assert "/dev/full: is not a folder" in answer.stderr
    (tmp_path / "file").touch()
    answer = run("export", INT8_MODEL, tmp_path / "file" / "sub")
    assert answer.returncode == 1
    assert "is not a folder" in answer.stderr


def test_what_is_appended_is_whole_or_missing(tmp_path: Path) -> None:
    append(tmp_path / "file", b"one\n")
    append(tmp_path / "file", b"two\n")
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))\n"
        "from tflm.atomic_write import append\nappend(sys.argv[1], b'three\\n')"
    )
    found = subprocess.run([sys.executable, "-c", code, tmp_path / "file"], capture_output=True, text=True, check=False)
    assert "File too large" in found.stderr
    assert (tmp_path / "file").read_bytes() == b"one\ntwo\n"


@pytest.mark.parametrize(
    "write", [write_atomically, append, lambda path, data: write_files(path.parent, {path.name: data})]
)
def test_every_way_to_write_asks_for_approval(write: Callable[[Path, bytes], object], tmp_path: Path) -> None:
    asked: list[Path] = []
    token = approval.set(lambda contents: asked.extend(contents))
    try:
        write(tmp_path / "file", b"data")
    finally:
        approval.reset(token)
    assert asked == [tmp_path / "file"]


def test_fit_removes_the_firmware_of_an_earlier_model(tmp_path: Path) -> None:
    firmware = tmp_path / "firmware"
    rules = OutputRules()
    outer = approval.set(rules)
    try:
        write_files(tmp_path, {"m.tflite": b"1", "firmware/main.cc": b"1", "firmware/old.cc": b"1"})
        (firmware / "mine.cc").write_text("by hand")
        append(tmp_path / "log", b"1")
        kept = {firmware / "main.cc"}
        assert obsolete_files(firmware, kept) == [firmware / "old.cc"]
        assert obsolete_files(firmware, set()) == [firmware / "main.cc", firmware / "old.cc"]
        (firmware / "old.cc").write_text("edited")
        with pytest.raises(tflm.TflmError, match=r"old\.cc would be removed"):
            obsolete_files(firmware, kept)
        rules.force = True
        assert obsolete_files(firmware, kept) == [firmware / "old.cc"]
    finally:
        approval.reset(outer)
    assert obsolete_files(firmware, set()) == []


def test_a_refit_that_fits_nothing_leaves_no_firmware(tmp_path: Path) -> None:
    assert run("fit", INT8_MODEL, "--board", "nrf52dk", "-o", tmp_path).returncode == 0
    assert (tmp_path / "firmware").is_dir()
    answer = run("fit", INT8_MODEL, "--board", "nrf52dk", "--reserve", "60M", "-o", tmp_path)
    assert answer.returncode == 1
    assert [each.name for each in tmp_path.rglob("*") if each.is_file() and each.parent != tmp_path] == []


def test_the_latest_files_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record: dict[str, bytes] = {}
    monkeypatch.setattr(
        output_files,
        "cached_files",
        SimpleNamespace(
            read=record.get,
            write=record.__setitem__,
            locked=contextlib.nullcontext,
            sha256=cached_files.sha256,
        ),
    )
    monkeypatch.setattr(output_files, "MAX_RECORDED", 3)
    files = {tmp_path / name: name.encode() for name in "abcdefgh"}
    OutputRules()({path: data for path, data in files.items() if path.name in "abcd"})
    OutputRules()({path: data for path, data in files.items() if path.name in "bce"})
    assert len(output_files._recorded()) == 3
    for path, data in files.items():
        path.write_bytes(data)
    for path in files:
        if path.name in "bce":
            OutputRules().require(path, Written.FILE)
        else:
            with pytest.raises(OptionError, match="--force replaces it"):
                OutputRules().require(path, Written.FILE)
    for names, said in (("f", "/f exists"), ("fgh", "/h exists"), ("adfg", "/f and 1 more exists")):
        with pytest.raises(OptionError, match=said):
            OutputRules()({tmp_path / name: b"other" for name in names})


def test_outputs_are_checked_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules, mine = OutputRules(), tmp_path / "mine"
    mine.write_text("not from tflm")
    with pytest.raises(FileNotFoundError, match="no folder"):
        rules.require(tmp_path / "nowhere" / "file", Written.FILE)
    with pytest.raises(NotADirectoryError):
        rules.require(Path(INT8_MODEL), Written.FOLDER)
    with pytest.raises(IsADirectoryError, match="name a file"):
        rules.require(tmp_path, Written.FILE)
    with pytest.raises(OptionError, match="--force"):
        rules.require(mine, Written.FILE)
    OutputRules(force=True).require(mine, Written.FILE)
    OutputRules().require(mine, Written.UPDATED)
    rules.require(tmp_path / "new", Written.FILE)
    with pytest.raises(OptionError, match="named for two outputs"):
        rules.require(tmp_path / "here" / ".." / "new", Written.FILE)
    monkeypatch.setattr(os, "access", lambda folder, mode: mode != os.W_OK)
    with pytest.raises(PermissionError, match="is not writable"):
        rules.require(tmp_path / "other", Written.FILE)
