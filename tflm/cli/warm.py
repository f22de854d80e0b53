"""`tflm warm`: compile the kernels of models before they are used."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

from tflm.application.common_layers import common_models
from tflm.application.models import load_model
from tflm.application.warming import warm_cache
from tflm.cli.output import progress
from tflm.cli.parameters import argument
from tflm.cli.plain_text import print_plain
from tflm.report import short_size


def warm(
    models: Annotated[
        list[Path] | None, argument("[MODEL]", "One or more .tflite files; default: common layers.")
    ] = None,
) -> None:
    """Compile the kernels of models into the cache.

    Later processes of this user on the same kind of CPU load them without a compiler. Use it when you build a container
    image or fill a CI cache. Without a model, the kernels of common layers are compiled, with int8, int16 and float32
    activations: convolutions, dense layers, pooling, activations, sums, products and copies. Other layers, such as
    LSTMs and signal processing, need a model.

    \b
    Examples:
      tflm warm model.tflite
      TFLM_CACHE_DIR=/opt/tflm tflm warm *.tflite
      tflm warm
    """
    start = time.perf_counter()
    given = (load_model(model) for model in models) if models else common_models()
    warmed = warm_cache(given, progress)
    kernels = "1 kernel" if warmed.kernels == 1 else f"{warmed.kernels} kernels"
    print_plain(f"{kernels}, {short_size(warmed.size)}, in {warmed.folder}")
    if warmed.compiled:
        print_plain(f"compiled {warmed.compiled} of them in {time.perf_counter() - start:.1f} s")
