"""`tflm resize`: change the shapes of a model's inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tflm.application.models import load_model, with_shapes
from tflm.application.output_files import Written
from tflm.atomic_write import write_atomically
from tflm.cli.output import print_json, print_line, wrote
from tflm.cli.parameters import AsJson, ModelPath, Shapes, option
from tflm.schema.model import Model


def resize(
    model: ModelPath,
    output: Annotated[Path, option("FILE", "File for the resized model.", "--output", "-o"), Written.MODEL],
    shape: Shapes = None,
    as_json: AsJson = False,
) -> None:
    """Change the input shapes of a model.

    All other shapes are computed from these. Shapes that the model leaves unknown can be set this way.

    \b
    Example:
      tflm resize model.tflite -o resized.tflite --shape input=1,96,96,1
    """
    loaded = load_model(model)
    resized = with_shapes(loaded, shape)
    write_atomically(output, resized.data)
    sides = {side: _shapes(resized, side) for side in ("inputs", "outputs")}
    if as_json:
        print_json({"model": model, **sides})
    else:
        for side, shapes in sides.items():
            for each in shapes:
                print_line(f"{side[:-1]} {each['name']}: {each['shape']}")
        wrote(output)


def _shapes(model: Model, side: str) -> list[dict[str, object]]:
    main = model.subgraphs[0]
    tensors = ((main.tensors or [])[index] for index in getattr(main, side) or ())
    return [{"name": tensor.name or "", "shape": list(tensor.shape or ())} for tensor in tensors]
