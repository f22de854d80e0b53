"""`tflm compress`: store weights compressed, without loss, to take less flash."""

from __future__ import annotations

from typing import Annotated

import tflm
from tflm.application.compression_report import (
    compression_figures,
    compression_report,
    decoding,
    firmware_flash_change,
    limits_missed,
)
from tflm.application.errors import CheckFailed
from tflm.application.machine import MachineOptions
from tflm.application.models import bytes_from, load_model, title_of
from tflm.application.rewriting_report import VERIFIED_INPUTS, placed
from tflm.cli.output import answer, status_line
from tflm.cli.parameters import NAMED, AsJson, ModelPath, Output, option


def compress(
    model: ModelPath,
    output: Output = None,
    on: MachineOptions = NAMED,
    ram: Annotated[str | None, option("SIZE", "Largest arena, such as 64K; the smallest file that runs in it.")] = None,
    flash: Annotated[str | None, option("SIZE", "Largest file, such as 200K; the smallest arena for it.")] = None,
    decompression_memory: Annotated[
        str | None, option("SIZE", "Memory for decoded tensors outside the arena, such as 8K; none by default.")
    ] = None,
    verify: Annotated[int, option("COUNT", "Number of random inputs to compare results on.", min=1)] = VERIFIED_INPUTS,
    as_json: AsJson = False,
) -> None:
    """Make a model smaller in flash by compressing its weights.

    Each constant is stored as a look-up table, as a bitmap with its nonzero values, or in Huffman codes, whichever is
    smallest. The operator TFLM_DECODE expands it into the arena before use. Without a limit, the file becomes as small
    as possible and the arena grows. A model that cannot be made smaller is left unchanged.

    \b
    Examples:
      tflm compress model.tflite -o smaller.tflite
      tflm compress model.tflite -o smaller.tflite --board esp32-s3-eye --ram 100K
      tflm compress model.tflite -o smaller.tflite --flash 200K
    """
    machine = on.machine()
    ram_bytes, flash_bytes, decompression_bytes = (
        None if size is None else bytes_from(size) for size in (ram, flash, decompression_memory)
    )
    loaded = load_model(model)
    with status_line("encoding tensors") as tell:
        found = tflm.compress(
            loaded,
            target=machine.target,
            kernels=machine.kernels,
            ram=ram_bytes,
            flash=flash_bytes,
            decompression_memory=decompression_bytes or 0,
            verify=verify,
            progress=tell,
        )
    missed = limits_missed(found, ram_bytes, flash_bytes)
    written = None if missed else output
    if written is not None:
        found.write(written)
    where = placed(model, loaded, found, machine, None)
    change, cost = firmware_flash_change(loaded, found, machine), decoding(loaded, found, machine)
    report = compression_report(found, title_of(model), change, cost, is_limited=bool(ram or flash))
    where.add_to(report)
    answer(as_json, compression_figures(model, found, change, cost, where), report, files=[written])
    if missed:
        kept = "" if output is None else f"; {output} is not written"
        raise CheckFailed(f"{model}: {'; '.join(missed)}{kept}")
