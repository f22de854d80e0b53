"""Source trees of firmware: which TFLM and which kernel libraries they contain, and how they are built."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
from example_models import INT8_MODEL
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import tflm
from tflm.cli.app import app
from tflm.firmware import source_tree
from tflm.firmware.firmware_tree import firmware_tree
from tflm.firmware.source_tree import KnownFile, VersionRange, source_copies, text_hash, versions_of

SOURCE = b"""/* Licence */
#ifndef MICRO_A_H_
#define MICRO_A_H_
#include "tensorflow/lite/a.h"
#pragma once
int add(int a, int b) { return a + b; }  // adds
#endif
"""


@pytest.mark.parametrize(
    "copy",
    [
        SOURCE.replace(b"Licence", b"Another licence"),
        SOURCE.replace(b'"tensorflow/lite/a.h"', b"<a.h>"),
        SOURCE.replace(b"MICRO_A_H_", b"LITE_A_H_"),
        SOURCE.replace(b"\n", b"\r\n"),
        SOURCE.replace(b" + ", b"\n  +\t"),
        SOURCE.replace(b"// adds", b""),
    ],
)
def test_what_copies_change_leaves_the_hash(copy: bytes) -> None:
    assert text_hash(copy) == text_hash(SOURCE)


@pytest.mark.parametrize("change", [(b"a + b", b"a - b"), (b"int add", b"long add"), (b"#endif", b"#else")])
def test_what_is_computed_changes_the_hash(change: tuple[bytes, bytes]) -> None:
    assert text_hash(SOURCE.replace(*change)) != text_hash(SOURCE)


@given(st.binary(max_size=200))
def test_every_file_has_a_hash(data: bytes) -> None:
    assert len(text_hash(data)) == 10


HOSTILE_TEXTS = ("\n", "/*", "//", "# ", "#\n", " \t", "/*/", "\n#define a_H", "#define a_H\n ", "_H")


@pytest.mark.parametrize("text", HOSTILE_TEXTS, ids=repr)
def test_a_hash_takes_time_in_proportion_to_the_text(text: str) -> None:
    """A million characters take a moment; by backtracking they would take hours."""
    assert len(text_hash(b"#define " + text.encode() * 500_000 + b"!")) == 10


@given(st.lists(st.sampled_from([*HOSTILE_TEXTS, "*/", "/", "*", "x", "\f", "include", "if defined("])).map("".join))
def test_a_hash_leaves_out_what_it_says(text: str) -> None:
    """The same by regular expressions, which backtrack."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
    left_out = r"^\s*#\s*(include|pragma|if defined\(|(ifndef|define)\s+\w+_H_?\s*$).*$"
    rest = re.sub(r"\s", "", re.sub(left_out, "", text, flags=re.MULTILINE))
    assert text_hash(text.encode()) == hashlib.sha1(rest.encode()).hexdigest()[:10]


# --- Copies: of a project with three files whose texts are known in some of its versions -------------------------

TEXTS = {
    name: {version: f"int {name}_{version};".encode() for version in range(3)} for name in ("a", "b", "c", "d", "e")
}
"""Files a and e have another text in each version, b since the second, c since the third; d is always the same."""
SINCE = {"a": (0, 1, 2), "b": (0, 1), "c": (0, 2), "d": (0,), "e": (0, 1, 2)}


def known_files() -> dict[str, list[tuple[str, KnownFile]]]:
    """The project's files, by name."""
    files = {}
    for name, starts in SINCE.items():
        ends = [*(start - 1 for start in starts[1:]), 2]
        spans = tuple(VersionRange(text_hash(TEXTS[name][start]), start, end) for start, end in zip(starts, ends))
        files[f"{name}.cc"] = [("tflm", KnownFile(("tensorflow", "lite", "micro", f"{name}.cc"), spans))]
    return files


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_tree, "_known_files", known_files)


def write(folder: Path, version: int, root: str = "lib/tensorflow/lite/micro", ending: str = "cc") -> None:
    for name, starts in SINCE.items():
        text = TEXTS[name][max(start for start in starts if start <= version)]
        path = folder / root / f"{name}.{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"// Copied.\n" + text)


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(("root", "ending"), [("lib/tensorflow/lite/micro", "cc"), ("src/lite/micro", "cpp")])
def test_a_copy_is_of_the_versions_that_all_files_agree_with(
    tmp_path: Path, version: int, root: str, ending: str
) -> None:
    write(tmp_path, version, root, ending)
    (copy,) = source_copies(tmp_path)
    commit = versions_of("tflm")[version]
    assert (copy.first, copy.last, copy.contiguous) == (commit, commit, True)
    assert (copy.files, copy.matching, copy.modified, copy.folder) == (5, 5, (), root)


@pytest.mark.usefixtures("known")
def test_a_changed_file_is_named_and_the_version_stays(tmp_path: Path) -> None:
    write(tmp_path, 1)
    (tmp_path / "lib/tensorflow/lite/micro/d.cc").write_text("int d; // mine")
    (copy,) = source_copies(tmp_path)
    assert (copy.last, copy.matching) == (versions_of("tflm")[1], 4)
    assert [(change.path, change.first) for change in copy.modified] == [("lib/tensorflow/lite/micro/d.cc", None)]


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(("path", "root"), [("x/lite/micro/a.cc", "x"), ("x/micro/a.cc", "x"), ("x/a.cc", None)])
def test_a_file_of_the_firmware_with_the_name_of_one_of_tflm_is_none(path: str, root: str | None) -> None:
    found = source_tree._recognized(path)
    assert (None if found is None else found[1]) == root


@pytest.mark.usefixtures("known")
def test_a_file_of_another_version_is_named_with_it(tmp_path: Path) -> None:
    write(tmp_path, 1)
    (tmp_path / "lib/tensorflow/lite/micro/c.cc").write_bytes(TEXTS["c"][2])
    (copy,) = source_copies(tmp_path)
    (change,) = copy.modified
    assert (copy.last, change.first, change.last) == (*versions_of("tflm")[1:3], versions_of("tflm")[2])
    (tmp_path / "lib/tensorflow/lite/micro/e.cc").unlink()  # as many files are of either version now
    (copy,) = source_copies(tmp_path)
    assert (copy.first, copy.last, copy.matching) == (*versions_of("tflm")[1:3], 3)
    assert [Path(change.path).name for change in copy.modified] == ["a.cc"]  # differs from the last version


@pytest.mark.usefixtures("known")
def test_where_no_file_tells_them_apart_all_versions_are_given(tmp_path: Path) -> None:
    write(tmp_path, 1)
    for name in ("a", "b", "e"):
        (tmp_path / f"lib/tensorflow/lite/micro/{name}.cc").unlink()
    (tmp_path / "lib/tensorflow/lite/micro/kernels").mkdir()
    assert source_copies(tmp_path) == []  # two files may be there by chance
    (tmp_path / "lib/tensorflow/lite/micro/b.cc").write_bytes(TEXTS["b"][1])
    (copy,) = source_copies(tmp_path)
    assert (copy.first, copy.last) == (versions_of("tflm")[1], versions_of("tflm")[1])


def test_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(tflm.ArgumentError, match="is not a folder; name the root of the firmware's sources"):
        firmware_tree(tmp_path / "none")


# --- How it is built ---------------------------------------------------------------------------------------------

LOCK = """dependencies:
  espressif/esp-nn:
    component_hash: abc
    dependencies: []
    source:
      type: service
    version: 1.2.1
  espressif/esp-tflite-micro:
    version: 1.3.3~1
"""


def test_a_lock_file_tells_what_is_not_downloaded_yet(tmp_path: Path) -> None:
    (tmp_path / "dependencies.lock").write_text(LOCK)
    found = firmware_tree(tmp_path)
    assert found.kernels == "esp-nn@1.2.1"
    assert found.release == tflm.releases.by_name("esp-tflite-micro 1.3.3~1")
    assert [dependency[:3] for dependency in found.dependencies] == [
        ("esp-nn", "1.2.1", True),
        ("esp-tflite-micro", "1.3.3~1", True),
    ]
    assert any("dependencies.lock" in reason for reason in found.reasons)


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    ("files", "static_memory", "kernels"),
    [
        ({}, False, "reference"),
        ({"CMakeLists.txt": "target_compile_definitions(x PUBLIC TF_LITE_STATIC_MEMORY)"}, True, "reference"),
        ({"component.mk": "CFLAGS += -DTF_LITE_STATIC_MEMORY -DESP_NN"}, True, "esp-nn"),
        (
            {"CMakeLists.txt": "add_compile_options(-DESP_NN)", "sdkconfig": "CONFIG_NN_ANSI_C=y\n"},
            False,
            "esp-nn:ansi",
        ),
        ({"CMakeLists.txt": "-DESP_NN", "sdkconfig": "# CONFIG_NN_ANSI_C is not set\n"}, False, "esp-nn"),
        ({"CMakeLists.txt": "add_definitions(-DCMSIS_NN=1)"}, False, "cmsis-nn"),
    ],
)
def test_build_files_tell_how_it_is_built(
    tmp_path: Path, files: dict[str, str], static_memory: bool, kernels: str
) -> None:
    write(tmp_path, 2)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    found = firmware_tree(tmp_path)
    assert found.kernels == kernels
    assert found.release is not None
    assert (found.release.commit, found.release.static_memory) == (versions_of("tflm")[2], static_memory)


@pytest.mark.usefixtures("known")
def test_files_that_cannot_be_read_are_changed_files(tmp_path: Path) -> None:
    write(tmp_path, 2)
    path = tmp_path / "lib/tensorflow/lite/micro/d.cc"
    path.unlink()
    path.symlink_to("/nowhere")
    (copy,) = source_copies(tmp_path)
    assert [change.path for change in copy.modified] == ["lib/tensorflow/lite/micro/d.cc"]


# --- The command -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("known")
def test_the_command_names_versions_changed_files_and_options(tmp_path: Path) -> None:
    write(tmp_path, 1)
    (tmp_path / "lib/tensorflow/lite/micro/d.cc").write_text("int d; // mine")
    shown = CliRunner().invoke(app, ["firmware", str(tmp_path)]).stdout
    commit = versions_of("tflm")[1]
    assert f"--tflm {commit} --kernels reference" in shown
    assert re.search(r"lib/tensorflow/lite/micro/d\.cc +of no known version: changed locally", shown)
    assert "no build file defines TF_LITE_STATIC_MEMORY" in shown


@pytest.mark.usefixtures("known")
def test_other_commands_take_the_tflm_and_the_kernels_of_a_source_tree(tmp_path: Path) -> None:
    write(tmp_path, 2)
    (tmp_path / "CMakeLists.txt").write_text("-DTF_LITE_STATIC_MEMORY -DESP_NN")
    (tmp_path / "dependencies.lock").write_text(LOCK.split("  espressif/esp-tflite-micro")[0])
    options = "arena", str(INT8_MODEL), "--target", "esp32s3", "--json"
    found = json.loads(CliRunner().invoke(app, [*options, "--source", str(tmp_path)]).stdout)
    named = "--kernels", "esp-nn@1.2.1", "--tflm", versions_of("tflm")[2]
    assert found == json.loads(CliRunner().invoke(app, [*options, *named]).stdout)
    for named_too in (named[:2], named[2:], named):
        both = CliRunner().invoke(app, [*options, "--source", str(tmp_path), *named_too])
        assert both.exit_code == 2
        assert "use either --source or --tflm and --kernels" in " ".join(both.stderr.split())
    empty = tmp_path / "empty"
    empty.mkdir()
    none = CliRunner().invoke(app, [*options, "--source", str(empty)])
    assert "TFLM was not found" in " ".join(none.stderr.split())
