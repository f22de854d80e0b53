"""Record TensorFlow's results for the nodes of tests/flex_cases.py, if TensorFlow is installed.

The file is stored next to the cases, so that the tests do not need TensorFlow.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

"""Outputs that are not computed in these cases and stay unchanged."""

TESTS = Path(__file__).parents[1] / "tests"


def answer(case: Any) -> list[np.ndarray[Any, Any]]:
    """TensorFlow's outputs of a node."""
    import tensorflow as tf

    definition = tf.raw_ops.__dict__[case.operator]
    names = list(definition.__signature__.parameters)
    attributes = {
        key: tf.as_dtype(value) if isinstance(value, np.dtype) else value for key, value in case.attributes.items()
    }
    if "squeeze_dims" in attributes:  # its name in the NodeDef
        attributes["axis"] = attributes.pop("squeeze_dims")
    attributes = {key: value.decode() if isinstance(value, bytes) else value for key, value in attributes.items()}
    tensors = [
        [tf.constant(x) for x in given] if isinstance(given, list) else tf.constant(given) for given in case.inputs
    ]
    inputs = dict(zip((name for name in names if name not in attributes), tensors))
    result = definition(**inputs, **attributes)
    outputs = result if isinstance(result, (tuple, list)) else [result]
    return [np.asarray(output) for output in outputs]


def main() -> None:
    """Record all answers."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.path.insert(0, str(TESTS))
    from flex_cases import ONE_OUTPUT, cases  # type: ignore[import-not-found, unused-ignore]

    recorded: dict[str, Any] = {}
    for i, case in enumerate(cases()):
        outputs = answer(case)
        for j, output in enumerate(outputs[:1] if case.operator in ONE_OUTPUT else outputs):
            recorded[f"{i}_{j}"] = output
    np.savez_compressed(TESTS / "flex_answers.npz", **recorded)


if __name__ == "__main__":
    main()
