"""Facts about a firmware in build files: flags and versions of components, line by line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tflm.firmware.firmware_tree import LARGEST_BUILD_FILE, Dependency, Flag, build_facts


def facts(folder: Path, **files: str) -> tuple[list[Flag], list[Dependency]]:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return build_facts(folder)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('esp-nn: "1.2.1"\n', ["1.2.1"]),
        ("espressif/esp-nn: ~1.2\n", ["~1.2"]),
        ("esp-nn:\n  version: '>=1.1.1'  # newest\n", [">=1.1.1"]),
        ('esp-nn:\n  git: x\n  version: "1.1.0"\nversion: "5.0"\n', ["1.1.0"]),
        ("esp-nn: {version: 1.2}\nversion: 1.3\n", ["1.3"]),
        ("esp-nn: # below\n  version: 1.4.0\n", ["1.4.0"]),
        ("esp-nn: 1.2.1\nversion: 2\n", ["1.2.1"]),
        ("esp-nn:\nother: 1\n", []),
        ("version: 1.2.1\n", []),
        ("esp-nn-more: 1.2.1\n", []),
    ],
)
def test_versions_of_components(text: str, found: list[str], tmp_path: Path) -> None:
    (tmp_path / "idf_component.yml").write_text(text)
    (tmp_path / "dependencies.lock").write_text(text)
    (tmp_path / "Makefile").write_text(text)
    assert build_facts(tmp_path) == (
        [],
        [
            *(Dependency("esp-nn", version, True, "dependencies.lock") for version in found),
            *(Dependency("esp-nn", version, False, "idf_component.yml") for version in found),
        ],
    )


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("add_definitions(-DTF_LITE_STATIC_MEMORY)", "TF_LITE_STATIC_MEMORY", "1"),
        ("-DKERNELS_OPTIMIZED_FOR_SIZE=1", "KERNELS_OPTIMIZED_FOR_SIZE", "1"),
        ("-DESP_NN", "ESP_NN", "1"),
        ("-D ESP_NN", "ESP_NN", "1"),
        ("-DCMSIS_NN", "CMSIS_NN", "1"),
        ("OPTIMIZED_KERNEL_DIR := cmsis_nn", "CMSIS_NN", "1"),
        ("a\nCONFIG_NN_ANSI_C=y\nb", "CONFIG_NN_ANSI_C", "y"),
        (
            "CONFIG_TENSORFLOW_LITE_MICRO_CMSIS_NN_KERNELS=n",
            "CONFIG_TENSORFLOW_LITE_MICRO_CMSIS_NN_KERNELS",
            "n",
        ),
    ],
)
def test_flags(text: str, name: str, value: str, tmp_path: Path) -> None:
    assert facts(tmp_path, sdkconfig=text) == ([Flag(name, value, "sdkconfig")], [])


@pytest.mark.parametrize("text", ["-DESP_NN_MORE", "# CONFIG_NN_ANSI_C=y", "CONFIG_NN_ANSI_C=n", "ESP_NN"])
def test_what_is_no_flag(text: str, tmp_path: Path) -> None:
    assert facts(tmp_path, sdkconfig=text) == ([], [])


def test_files_in_the_order_of_their_paths_but_for_what_is_built(tmp_path: Path) -> None:
    said = "-DESP_NN"
    found, _ = facts(
        tmp_path,
        **dict.fromkeys(("b__Makefile", "a__Makefile", "Makefile", "build__Makefile", "a__build__Makefile"), said),
        **{"notes.txt": said, "a__examples__Makefile": said, ".git__Makefile": said},
    )
    assert [flag.path for flag in found] == ["Makefile", "a/Makefile", "b/Makefile"]


def test_what_lies_behind_the_first_mebibyte_is_not_read(tmp_path: Path) -> None:
    assert LARGEST_BUILD_FILE == 1024 * 1024
    for before, found in ((0, 1), (1, 0)):
        text = " " * (1024 * 1024 - len("-DESP_NN") + before) + "-DESP_NN"
        assert len(facts(tmp_path, Makefile=text)[0]) == found
    (tmp_path / "Makefile").unlink()
    (tmp_path / "Makefile").mkdir()
    assert build_facts(tmp_path) == ([], [])
