"""`tflm tile`, `fold` and `strip`: models rewritten to take less memory or less flash."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

import tflm
from tflm.atomic_write import write_atomically
from tflm.cli.arena_plot import arena_plot
from tflm.cli.command_line import (
    AsJson,
    BoardName,
    CheckFailed,
    KernelsName,
    ModelPath,
    ReleaseName,
    TargetName,
    bytes_from,
    load_model,
    machine_from,
    print_json,
    show,
    status_line,
    title_of,
    wrote,
)
from tflm.cli.plan import Overlap, require_output
from tflm.report import Report, with_thousands
from tflm.rewriting.candidates import Progress
from tflm.rewriting.tiling_report import shown
from tflm.runtime.micro_measurement_report import drawn_figures

Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where the rewritten model goes.")]
Force = Annotated[bool, typer.Option("--force", help="Let FILE be the model itself, which is replaced.")]

VERIFIED_INPUTS = 5
"""Random inputs whose answers must be the same, if nothing else is said."""


def share_from(text: str) -> float:
    """A share such as 10%, or 0.1.

    Raises:
        typer.BadParameter: it is none.
    """
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < float("inf"):
        raise typer.BadParameter(f"{text!r} is no share; write it as 10% or 0.1")
    return share


def figures(path: Path, tiled: tflm.TiledModel) -> Any:
    """A rewritten model for other programs; sizes in bytes."""
    return {
        "model": str(path),
        "target": tiled.after.target.name,
        "release": tiled.after.kernels.release.name,
        "gains": tiled.gains,
        "minimum_arena_bytes_before": tiled.minimum_arena_bytes_before,
        "minimum_arena_bytes": tiled.minimum_arena_bytes,
        "head_bytes_before": tiled.before.head_bytes,
        "head_bytes": tiled.after.head_bytes,
        "tail_bytes_before": tiled.before.tail_bytes,
        "tail_bytes": tiled.after.tail_bytes,
        "file_bytes_before": tiled.file_bytes_before,
        "file_bytes": len(tiled.data),
        "extra_macs": tiled.extra_macs,
        "rewrites": tiled.rewrites,
        "stages": [
            {"first": stage.first, "last": stage.last, "operators": stage.operators, "bands": stage.bands}
            for stage in tiled.stages
        ],
        "needed_operators": list(tiled.needed_operators),
        "verified_inputs": tiled.proved.inputs,
    }


def tile(
    model: ModelPath,
    output: Output = None,
    target: TargetName = None,
    kernels: KernelsName = None,
    release: ReleaseName = None,
    board: BoardName = None,
    macs: Annotated[str, typer.Option(metavar="SHARE", help="Work that may be added: 10%, or 0.1.")] = "10%",
    ram: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="An arena that is small enough, such as 64K: least work decides then."),
    ] = None,
    verify: Annotated[
        int, typer.Option(metavar="COUNT", min=1, help="Random inputs whose answers must be the same.")
    ] = VERIFIED_INPUTS,
    alias: Annotated[
        bool, typer.Option("--alias/--no-alias", help="Let CONCATENATION copy bytes onto themselves.")
    ] = True,
    overlap: Overlap = None,
    time_limit: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0, help="How long the search may take.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw both arenas side by side: .png, .svg, .pdf.")
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Rewrite a model so that it runs in a smaller arena.

    The answers stay the same, on any TFLM.

    Operators that need most memory run band by band. The model is checked before it is written: on tags, and on random
    inputs beside the model as it was. What nothing makes smaller stays as it is.

    \b
    Examples:
      tflm tile model.tflite -o tiled.tflite
      tflm tile model.tflite -o tiled.tflite --ram 64K --macs 25% --verify 20
    """
    machine, share = machine_from(target, kernels, board, release=release), share_from(macs)
    enough = None if ram is None else bytes_from(ram)
    require_output(model, output, force)
    loaded = load_model(model)
    with status_line("looking for stages") as tell:
        found = tflm.tile(
            loaded,
            target=machine.target,
            kernels=machine.kernels,
            max_extra_macs=share,
            time_limit=time_limit,
            ram=enough,
            alias=alias,
            overlap=overlap,
            verify=verify,
            progress=lambda at: tell(how_far(at)),
        )
    missing = 0 if enough is None else max(found.minimum_arena_bytes - enough, 0)
    if output is not None and not missing:
        found.write(output)
    if plot is not None:
        both = {"before": drawn_figures(found.before), "after": drawn_figures(found.after)}
        arena_plot(plot, title_of(model), both)
    if as_json:
        print_json(figures(model, found))
    else:
        show(tile_report(found, title_of(model), enough))
        wrote(*(path for path in (None if missing else output, plot) if path is not None))
    if missing:
        kept = "" if output is None else f"; {output} is not written, without --ram it gets the smallest"
        raise CheckFailed(
            f"{model}: the smallest arena that was found has {found.minimum_arena_bytes:,} bytes, "
            f"{missing:,} more than the {enough:,} of --ram{kept}"
        )


def tile_report(found: tflm.TiledModel, name: str, enough: int | None) -> Report:
    """What became of a model, and whether it fits into the bytes that are enough, where these were said."""
    report = shown(found, name)
    if enough is None:
        return report
    left = enough - found.minimum_arena_bytes
    if found.gains or left < 0:
        fits = "it fits" if left >= 0 else f"it does not fit: {with_thousands(-left)} are missing"
        report.notes.append(f"{fits} {'into' if left >= 0 else 'in'} {with_thousands(enough)}")
        return report
    already = f"it already fits into {with_thousands(enough)}, {with_thousands(left)} are left: nothing was changed"
    return replace(report, notes=[already])


def fold(model: ModelPath, output: Output = None, force: Force = False, as_json: AsJson = False) -> None:
    """Fold PADs into convolutions, and remove no-ops.

    The answers stay the same.

    \b
    Example:
      tflm fold model.tflite -o folded.tflite
    """
    _rewrite(tflm.fold, model, output, force, as_json)


def strip(model: ModelPath, output: Output = None, force: Force = False, as_json: AsJson = False) -> None:
    """Remove what no device reads from the file.

    That is names, minima and maxima, and what converters leave for tools.

    \b
    Example:
      tflm strip model.tflite -o stripped.tflite
    """
    _rewrite(tflm.strip, model, output, force, as_json)


def _rewrite(
    rewrite: Callable[[tflm.Model], bytes], path: Path, output: Path | None, force: bool, as_json: bool
) -> None:
    require_output(path, output, force)
    before = load_model(path)
    size, count = len(before.data), len(before.subgraphs[0].operators or ())
    data = rewrite(before)
    after = tflm.Model(data)
    if output is not None:
        write_atomically(output, data)
    operators = len(after.subgraphs[0].operators or ())
    if as_json:
        document = {"model": str(path), "file_bytes_before": size, "file_bytes": len(data)}
        print_json(document | {"operators_before": count, "operators": operators})
        return
    facts = [
        ("file", f"{with_thousands(size)}, now {with_thousands(len(data))} ({len(data) / size - 1:+.1%})"),
        ("operators", f"{count:,}, now {operators:,}"),
    ]
    show(Report(title_of(path), facts))
    if output is not None:
        wrote(output)


def how_far(at: Progress) -> str:
    """How far a search is, for people."""
    if at.checking:
        return f"checking the rewritten model, {at.checking}, {at.seconds:.0f} s"
    return f"{at.tried} rewrites tried, {at.seconds:.0f} s: the smallest arena so far has {at.arena:,} bytes"
