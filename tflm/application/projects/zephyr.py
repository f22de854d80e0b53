"""Projects for Zephyr: an application and its settings."""

from __future__ import annotations

from tflm.application.projects.build import Build


def zephyr_values(build: Build) -> dict[str, str]:
    """Values for the templates of Zephyr."""
    settings = ["CONFIG_MAIN_STACK_SIZE=8192"]
    if build.kernels != "reference":
        settings.insert(0, "CONFIG_TENSORFLOW_LITE_MICRO_CMSIS_NN_KERNELS=y")
    contained = build.machine.kernels.release.distribution
    return {
        "configuration": "\n".join(settings),
        "zephyr_board": build.ids.zephyr or "BOARD",
        "zephyr_version": "4.4" if contained is None else contained.version,
    }
