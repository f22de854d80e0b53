"""Projects for Zephyr: an application and its settings."""

from __future__ import annotations

from tflm.application.projects.build import Build
from tflm.schema.enums import TensorType


def zephyr_values(build: Build) -> dict[str, str]:
    """Values for the templates of Zephyr."""
    settings = ["CONFIG_MAIN_STACK_SIZE=8192"]
    if build.kernels != "reference":
        settings.insert(0, "CONFIG_TENSORFLOW_LITE_MICRO_CMSIS_NN_KERNELS=y")
    if build.uses(TensorType.FLOAT32):
        settings.append("CONFIG_REQUIRES_FLOAT_PRINTF=y")
    return {"configuration": "\n".join(settings), "zephyr_board": build.ids.zephyr or "BOARD"}
