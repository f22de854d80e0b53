"""Projects for PlatformIO, with ESP-IDF or Arduino's framework."""

from __future__ import annotations

import json
from string import Template

from tflm.application.errors import RequestError
from tflm.application.projects.build import Build, is_esp
from tflm.application.projects.esp_idf import esp_values
from tflm.application.projects.parts import pinned

MONITOR = "monitor_speed = 115200"
"""The setting of the serial monitor, which all projects have."""

TFLM_TREE = Template("""
TFLM's sources go to `lib/tflm`, by TFLM's own script. In this folder:

```sh
git clone https://github.com/tensorflow/tflite-micro
cd tflite-micro
git checkout $commit
python3 tensorflow/lite/micro/tools/project_generation/create_tflm_tree.py \\
    --makefile_options "$options" ../lib/tflm
cd ..
```
""")

TREE_INCLUDES = (
    "-Ilib/tflm",
    *(
        f"-Ilib/tflm/third_party/{folder}"
        for folder in (
            "flatbuffers/include",
            "gemmlowp",
            "kissfft",
            "ruy",
            "cmsis/CMSIS/Core/Include",
            "cmsis_nn",
            "cmsis_nn/Include",
        )
    ),
)


def platformio_board(build: Build) -> dict[str, str]:
    """Return PlatformIO's names of a board and its framework.

    Raises:
        RequestError: PlatformIO lacks the board.
    """
    ids = build.ids
    if not ids.platformio:
        raise RequestError(f"PlatformIO has no known board for {build.machine.place}; use another --project")
    framework = "espidf" if is_esp(build) else "arduino"
    return {"platform": pinned(ids.platform), "platformio_board": ids.platformio, "framework": framework}


def esp_platformio_values(build: Build) -> dict[str, str]:
    """Values of ESP-IDF, and its settings in PlatformIO; errors as of `esp_values`."""
    values = esp_values(build)
    partitions = "\nboard_build.partitions = partitions.csv" if values["partitions"] else ""
    return {**values, "settings": f"{MONITOR}{partitions}"}


def platformio_values(build: Build) -> dict[str, str]:
    """Values for the templates of PlatformIO; errors as of `platformio_board`."""
    values = {**platformio_board(build), "before_build": "", "main_file": "`src/main.cpp`", "library": ""}
    if is_esp(build):
        return {**values, **esp_platformio_values(build)}
    if build.kernels == "arduino":
        library = "https://github.com/spaziochirale/Chirale_TensorFlowLite.git#2.0.0"
        return {**values, "settings": f"{MONITOR}\nlib_deps = {library}"}
    speed = "SIZE" if build.kernels.endswith(":size") else "SPEED"
    defined = ["-DTF_LITE_STATIC_MEMORY", "-DNDEBUG"]
    if build.kernels != "reference":
        defined += ["-DCMSIS_NN", f"-DKERNELS_OPTIMIZED_FOR_{speed}"]
    flags = "\n  ".join([*defined, *TREE_INCLUDES])
    return {
        **values,
        "settings": f"{MONITOR}\nbuild_unflags = -std=gnu++11 -std=gnu++14\nbuild_flags =\n  -std=gnu++17\n  {flags}",
        "before_build": TFLM_TREE.substitute(options=_make_options(build), commit=build.machine.kernels.release.commit),
        "library": json.dumps({"name": "tflm", "version": "0.0.0", "build": {"srcDir": "."}}, indent=2),
    }


def _make_options(build: Build) -> str:
    """The options of TFLM's Makefile for the processor and its kernels."""
    optimized = " OPTIMIZED_KERNEL_DIR=cmsis_nn" if build.kernels != "reference" else ""
    return f"TARGET=cortex_m_generic TARGET_ARCH={build.machine.target.name}{optimized}"
