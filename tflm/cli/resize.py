"""`tflm resize`: a model for inputs of other shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tflm.atomic_write import write_atomically
from tflm.cli.command_line import (
    AsJson,
    CommandError,
    ModelPath,
    Shapes,
    load_model,
    print_json,
    print_line,
    with_shapes,
    wrote,
)
from tflm.cli.plan import same_file
from tflm.schema.model import Model


def resize(
    model: ModelPath,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where the resized model goes.")],
    shape: Shapes = None,
    force: Annotated[bool, typer.Option("--force", help="Let FILE be the model itself, which is replaced.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a model for inputs of other shapes.

    Give those that the model leaves unknown, for example; all other shapes follow from them.

    \b
    Example:
      tflm resize model.tflite -o resized.tflite --shape input=1,96,96,1
    """
    loaded = load_model(model)
    if same_file(model, output) and not force:
        raise CommandError(f"{output} is the model itself; --force replaces it")
    resized = with_shapes(loaded, shape)
    write_atomically(output, resized.data)
    sides = {side: _shapes(resized, side) for side in ("inputs", "outputs")}
    if as_json:
        print_json({"model": str(model), **sides})
    else:
        for side, shapes in sides.items():
            for each in shapes:
                print_line(f"{side[:-1]} {each['name']}: {each['shape']}")
        wrote(output)


def _shapes(model: Model, side: str) -> list[dict[str, object]]:
    main = model.subgraphs[0]
    tensors = ((main.tensors or [])[index] for index in getattr(main, side) or ())
    return [{"name": tensor.name or "", "shape": list(tensor.shape or ())} for tensor in tensors]
