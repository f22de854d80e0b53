"""TFLM's own compression tool, run as a script in a child process: requests on standard input, models on output.

A request is a model and its tensors to compress with look-up tables: each a tensor of the first subgraph, the bits of
an index, and the dimension of which each slice gets a table, or None for one table.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings

Request = tuple[bytes, list[tuple[int, int, int | None]]]


def compressed_by_tflm(python: str, requests: list[Request]) -> list[bytes]:
    """The compressed models, of the tool that is installed for the interpreter `python`."""
    child = subprocess.run([python, "-I", __file__], input=pickle.dumps(requests), capture_output=True, check=True)
    models: list[bytes] = pickle.loads(child.stdout)
    return models


def _serve() -> None:
    from tflite_micro.tensorflow.lite.micro.compression import SpecBuilder, compress, spec

    warnings.simplefilter("ignore")
    models = []
    for model, tensors in pickle.load(sys.stdin.buffer):
        builder = SpecBuilder()
        for tensor, bits, axis in tensors:
            mode = spec.PerTensor() if axis is None else spec.PerChannel(axis=axis)
            builder.add_tensor(0, tensor).with_lut(bits, mode)
        models.append(bytes(compress(model, builder.build())))
    pickle.dump(models, sys.stdout.buffer)


if __name__ == "__main__":
    _serve()
