"""Other formats that are mistaken for models: recognized by their first bytes, each with the way to a `.tflite` file.

The page of `web/` uses the same table, so patterns are those that Python and JavaScript share.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from tflm.errors import ArgumentError

HEAD_BYTES = 4096
"""Only this many bytes are looked at."""

C_SUFFIXES = (".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".inc")
"""Names of C source, from which models are read, end with one of these."""


class Format(NamedTuple):
    """A format that is not `.tflite`.

    Attributes:
        name: what the file is, for "this is not a .tflite model but ...".
        pattern: a regular expression for its first `HEAD_BYTES` bytes, a character each.
        advice: how to get a model, a sentence.
    """

    name: str
    pattern: str
    advice: str


_KERAS = "tf.lite.TFLiteConverter.from_keras_model(tf.keras.models.load_model(path)).convert() converts it"
_SAVED_MODEL = "tf.lite.TFLiteConverter.from_saved_model(folder).convert() converts its folder"
_TORCH = "litert_torch.convert(module, sample_inputs).export('model.tflite') converts the module"
_ORIGIN = "convert the Keras, TensorFlow or PyTorch model that it was made from"
_UNPACK = "unpack it and name the .tflite file that is inside"
_LENGTH = r"[\x80-\xff]{0,4}[\x00-\x7f]"
"""A length in a protobuf message."""

TEXT = Format(
    "text",
    r"^[\t\n\f\r\x1b -~\x80-\xff]+$",
    "name a .tflite file, or C source with the bytes of one in an array",
)
"""Text that is no other format; C source with a model is read as that model."""

FORMATS = (
    Format("an empty file", "^$", "its download or copy failed: repeat it"),
    Format(
        "a Git LFS pointer",
        r"^version https://git-lfs\.github\.com/",
        "run git lfs pull in its repository to download the model",
    ),
    Format(
        "a web page",
        r"^(?:\xef\xbb\xbf)?\s*<(?:![dD][oO][cC][tT][yY][pP][eE]|html|HTML|head|HEAD|body|BODY|!--|\?xml)",
        "download the file itself; on GitHub that is the link Raw, not the page about the file",
    ),
    Format(
        "a TensorFlow.js model",
        r'^\s*\{[^\x00]*"(?:modelTopology|weightsManifest)"',
        _ORIGIN,
    ),
    Format("an HDF5 file, such as a Keras model", r"^\x89HDF\r\n\x1a\n", _KERAS),
    Format(
        "a Keras model (.keras)",
        r"^PK\x03\x04[\s\S]{26}(?:metadata\.json|config\.json|model\.weights\.h5)",
        _KERAS,
    ),
    Format(
        "a PyTorch model",
        r"^PK\x03\x04[\s\S]{26}[^/\x00]{1,255}/(?:data\.pkl|constants\.pkl|version|byteorder|\.|archive_|models/|code/)",
        _TORCH,
    ),
    Format("a PyTorch model", r"^\x80[\x02-\x05]\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19", _TORCH),
    Format("a Python pickle, such as a PyTorch model", r"^\x80[\x02-\x05][\x95\x8a}\]c(Xq\x8c]", _TORCH),
    Format("an ExecuTorch program (.pte)", r"^[\s\S]{4}ET[0-9][0-9]", _TORCH),
    Format("a Core ML model", rf"^\x08[\x01-\x1f]\x12{_LENGTH}\n{_LENGTH}\n", _ORIGIN),
    Format("a SavedModel (saved_model.pb)", rf"^\x08\x01\x12{_LENGTH}\n{_LENGTH}[\x12\x1a\x22*2:]", _SAVED_MODEL),
    Format(
        "an ONNX model",
        r"^\x08[\x01-\x1f](?:\x12[\x01-\x7f][ -~]|\x12\x00|[\x1a\x22*2:B])",
        "onnx2tf -i model.onnx converts it",
    ),
    Format(
        "a frozen TensorFlow graph (.pb)",
        rf"^\n{_LENGTH}\n{_LENGTH}[ -~]{{1,1000}}\x12[\x01-\x7f][A-Z_]",
        "tf.compat.v1.lite.TFLiteConverter.from_frozen_graph(path, inputs, outputs).convert() converts it",
    ),
    Format("a NumPy array", r"^\x93NUMPY", "name the .tflite file; arrays are what it takes as inputs"),
    Format(
        "NumPy arrays (.npz)",
        r"^PK\x03\x04[\s\S]{26}[^\x00]{1,255}\.npy",
        "name the .tflite file; arrays are what it takes as inputs",
    ),
    Format("a zip archive", r"^PK(?:\x03\x04|\x05\x06)", _UNPACK),
    Format("a gzip archive", r"^\x1f\x8b", _UNPACK),
    Format("a tar archive", r"^[\s\S]{257}ustar", _UNPACK),
    TEXT,
)
"""All formats; the first that matches counts."""

_PATTERNS = [(each, re.compile(each.pattern.encode())) for each in FORMATS]


def format_of(data: memoryview | bytes) -> Format | None:
    """The format of a file that is not a model, by its first bytes; None if it is unknown."""
    head = bytes(data[:HEAD_BYTES])
    return next((each for each, pattern in _PATTERNS if pattern.search(head)), None)


def require_no_folder(path: str | os.PathLike[str]) -> None:
    """Check that the path of a model is not a folder.

    Raises:
        ArgumentError: it is; the message says of which format, or names models in it.
    """
    folder = Path(path)
    if not folder.is_dir():
        return
    if (folder / "saved_model.pb").is_file():
        reason = f"a folder with a SavedModel, not a .tflite model; {_SAVED_MODEL}"
    elif (folder / "Manifest.json").is_file():
        reason = f"a folder with a Core ML model, not a .tflite model; {_ORIGIN}"
    else:
        models = sorted(file.name for file in folder.glob("*.tflite"))[:3]
        reason = f"a folder, not a .tflite model; name a file in it{', such as ' if models else ''}{', '.join(models)}"
    raise ArgumentError(f"{folder}: Is a directory: {reason}")
