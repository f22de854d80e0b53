"""Compute the answers of models to recorded inputs. This needs only numpy and the package, on any machine."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

import tflm

ARENA_BYTES = 1 << 20


def answers(folder: Path) -> bytes:
    """An .npz of the outputs of all models of a corpus, by `<model>/out_<step>_<i>`, given its recorded inputs."""
    outputs = {}
    for path in sorted((folder / "models").glob("*.tflite")):
        recorded = np.load(folder / "golden" / f"{path.stem}.npz")
        interpreter = tflm.MicroInterpreter(tflm.Model.from_file(path), tflm.AllOpsResolver(), bytearray(ARENA_BYTES))
        interpreter.allocate_tensors()
        for step in range(len({key.split("_")[1] for key in recorded})):
            for i in range(interpreter.inputs_size()):
                interpreter.input(i).data[...] = recorded[f"in_{step}_{i}"]
            interpreter.invoke()
            for i in range(interpreter.outputs_size()):
                outputs[f"{path.stem}/out_{step}_{i}"] = np.array(interpreter.output(i).data)
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, **outputs)
    return packed.getvalue()
