"""`tflm tile`, `fold` and `strip`: rewrite models to take less memory or flash."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import tflm
from tflm.application.arena_plot import arena_plot
from tflm.application.errors import CheckFailed, OptionError
from tflm.application.hand_over import continue_with
from tflm.application.machine import MachineOptions
from tflm.application.memories import head_limit, memories_from
from tflm.application.models import bytes_from, load_model, share_from, title_of
from tflm.application.output_files import Written
from tflm.application.rewriting_report import (
    TILE_FIGURES,
    VERIFIED_INPUTS,
    placed,
    smaller_figures,
    tile_progress,
    tile_report,
)
from tflm.atomic_write import write_atomically
from tflm.cli.output import answer, status_line
from tflm.cli.parameters import NAMED, AsJson, HeadRam, ModelPath, Output, Overlap, TailRam, flag, option
from tflm.report import Report, with_thousands
from tflm.runtime.micro_measurement_report import drawn_figures


def tile(
    model: ModelPath,
    output: Output = None,
    on: MachineOptions = NAMED,
    macs: Annotated[str, option("SHARE", "Maximum extra work, as a share, such as 10% or 0.1.")] = "10%",
    ram: Annotated[
        str | None, option("SIZE", "Target arena size, such as 64K; the least extra work that fits.")
    ] = None,
    head_ram: HeadRam = None,
    tail_ram: TailRam = None,
    verify: Annotated[int, option("COUNT", "Number of random inputs to compare results on.", min=1)] = VERIFIED_INPUTS,
    alias: Annotated[bool, flag("--alias/--no-alias", "Let inputs of CONCATENATION alias its output.")] = True,
    overlap: Overlap = None,
    time_limit: Annotated[float | None, option("SECONDS", "Time limit of the search.", min=0)] = None,
    plot: Annotated[
        Path | None, option("FILE", "Draw both arenas side by side: .png, .svg or .pdf."), Written.FILE
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Rewrite a model to run in a smaller arena.

    The operators that need the most memory run in row bands. The results stay the same, on any TFLM; the plan and the
    results on random inputs are checked before the model is written. A model that cannot be made smaller is left
    unchanged.

    \b
    Examples:
      tflm tile model.tflite -o tiled.tflite
      tflm tile model.tflite -o tiled.tflite --ram 64K --macs 25% --verify 20
      tflm tile model.tflite -o tiled.tflite --board esp32-s3-eye --head-ram SRAM --tail-ram PSRAM
    """
    machine, share = on.machine(), share_from(macs)
    memories = memories_from(head_ram, tail_ram, machine.board)
    if ram is not None and memories is not None:
        raise OptionError("--ram is for one arena; use either --ram, or --head-ram and --tail-ram")
    enough = None if ram is None else bytes_from(ram)
    loaded = load_model(model)
    with status_line("looking for stages") as tell:
        found = tflm.tile(
            loaded,
            target=machine.target,
            kernels=machine.kernels,
            max_extra_macs=share,
            time_limit=time_limit,
            ram=enough,
            head_ram=head_limit(loaded, machine, memories),
            tail_ram=None if memories is None else memories.tail.bytes,
            alias=alias,
            overlap=overlap,
            verify=verify,
            progress=lambda at: tell(tile_progress(at)),
        )
    where = placed(model, loaded, found, machine, memories)
    missing = 0 if enough is None else max(found.minimum_arena_bytes - enough, 0)
    is_kept = bool(missing) or (memories is not None and where.fits is False)
    if output is not None and not is_kept:
        found.write(output)
    if plot is not None:
        both = {"before": drawn_figures(found.before), "after": drawn_figures(found.after)}
        arena_plot(plot, title_of(model), both)
    report = tile_report(found, title_of(model), enough)
    where.add_to(report)
    answer(
        as_json, smaller_figures(model, found, TILE_FIGURES, where), report, files=[None if is_kept else output, plot]
    )
    if missing:
        kept = "" if output is None else f"; {output} is not written (omit --ram to write the smallest model found)"
        raise CheckFailed(
            f"{model}: the smallest arena found has {found.minimum_arena_bytes:,} bytes, "
            f"{missing:,} more than --ram {enough:,}{kept}; {continue_with(model, machine, ram)}"
        )
    if is_kept:
        kept = "" if output is None else f"; {output} is not written"
        raise CheckFailed(
            f"{model}: head and tail do not fit their memories{kept}{where.advice and '; '}{where.advice}"
        )


def fold(model: ModelPath, output: Output = None, as_json: AsJson = False) -> None:
    """Fold PADs into convolutions and remove no-ops.

    The results stay the same.

    \b
    Example:
      tflm fold model.tflite -o folded.tflite
    """
    _rewrite(tflm.fold, model, output, as_json)


def strip(model: ModelPath, output: Output = None, as_json: AsJson = False) -> None:
    """Remove data that no device reads.

    Removes names, minima and maxima, and converter metadata.

    \b
    Example:
      tflm strip model.tflite -o stripped.tflite
    """
    _rewrite(tflm.strip, model, output, as_json)


def _rewrite(rewrite: Callable[[tflm.Model], bytes], path: Path, output: Path | None, as_json: bool) -> None:
    before = load_model(path)
    size, count = len(before.data), len(before.subgraphs[0].operators or ())
    data = rewrite(before)
    after = tflm.Model(data)
    if output is not None:
        write_atomically(output, data)
    operators = len(after.subgraphs[0].operators or ())
    document = {"model": path, "file_bytes_before": size, "file_bytes": len(data)}
    document |= {"operators_before": count, "operators": operators}
    facts = [
        ("file", f"{with_thousands(size)}, now {with_thousands(len(data))} ({len(data) / size - 1:+.1%})"),
        ("operators", f"{count:,}, now {operators:,}"),
    ]
    answer(as_json, document, Report(title_of(path), facts), files=[output])
