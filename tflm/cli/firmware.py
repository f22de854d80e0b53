"""`tflm firmware`: find the TFLM and the kernels in a firmware's source tree."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tflm.application.firmware_report import TREE_FIGURES, tree_report
from tflm.cli.output import answer
from tflm.cli.parameters import AsJson, argument
from tflm.firmware.firmware_tree import firmware_tree
from tflm.report import document_of


def firmware(
    folder: Annotated[Path, argument("DIR", "Root of the firmware's sources.")], as_json: AsJson = False
) -> None:
    """Find the TFLM and the kernels in a firmware's sources.

    Recognizes ESP-IDF projects with their components, Zephyr workspaces, Arduino sketchbooks and SDKs by hashes of
    their files. Other commands accept the folder as --source.

    \b
    Examples:
      tflm firmware ~/esp/doorbell
      tflm arena model.tflite --target esp32s3 --source ~/esp/doorbell
    """
    found = firmware_tree(folder)
    answer(as_json, document_of(found, TREE_FIGURES), tree_report(found))
