"""`tflm warm`: compile the kernels of models before they are used."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tflm.application.models import load_model
from tflm.application.warming import warm_cache
from tflm.cli.output import print_plain


def warm(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL", help="One or more .tflite files.")],
) -> None:
    """Compile the kernels of models into the cache.

    Later processes of this user on the same kind of CPU load them without a compiler. Use it when you build a container
    image or fill a CI cache.

    \b
    Examples:
      tflm warm model.tflite
      TFLM_CACHE_DIR=/opt/tflm tflm warm *.tflite
    """
    warmed = warm_cache(load_model(model) for model in models)
    kernels = "1 kernel" if warmed.kernels == 1 else f"{warmed.kernels} kernels"
    print_plain(f"{kernels} in {warmed.folder}")
