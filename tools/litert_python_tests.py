"""Run LiteRT's own test of its interpreter against this package: `python tools/litert_python_tests.py TREE [TEST ...]`.

TREE is a checkout of the LiteRT repository, whose `tflite/python/interpreter_test.py` is run. Its imports from
TensorFlow and LiteRT's build are replaced by stand-ins: the helpers of its test cases, a registerer of operators in
Python, and the models that the build converts. With `--runtime litert` it runs against the ai-edge-litert package
instead.

Tests that can't pass have a reason in docs/litert.md.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
import tempfile
import types
import unittest
from pathlib import Path
from typing import Any

import numpy as np

from tflm.schema import (
    AddOptions,
    BuiltinOperator,
    FullyConnectedOptions,
    GatherOptions,
    ModelBuilder,
    MulOptions,
    TensorType,
    quantized,
)

RUNTIMES = {"tflm": "tflm.compat.litert.interpreter", "litert": "ai_edge_litert.interpreter"}


class TestCase(unittest.TestCase):
    """The methods of TensorFlow's TestCase that LiteRT's tests use."""

    def assertAllEqual(self, expected: Any, found: Any) -> None:  # noqa: N802
        """Arrays or dictionaries are equal."""
        if isinstance(expected, dict):
            assert expected == found
        else:
            np.testing.assert_array_equal(np.asarray(expected), np.asarray(found))

    def assertLen(self, items: Any, length: int) -> None:  # noqa: N802
        """The length is as expected."""
        assert len(items) == length


class Registerer(types.ModuleType):
    """A module with a function that would add an operator, and counts how often it is called."""

    calls = 0

    def TF_TestRegisterer(self, resolver: Any) -> None:  # noqa: N802
        """Count a call."""
        self.calls += 1

    def get_num_test_registerer_calls(self) -> int:
        """Number of calls since the last query."""
        calls, self.calls = self.calls, 0
        return calls


def main() -> None:
    """Install the stand-ins, and run the tests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path, help="a checkout of LiteRT")
    parser.add_argument("tests", nargs="*", help="parts of the names of tests; all unless told")
    parser.add_argument("--runtime", choices=RUNTIMES, default="tflm")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, data in models().items():
            (Path(folder) / name).write_bytes(data)
        stand_in(
            arguments.tree / "tflite" / "python", Path(folder), importlib.import_module(RUNTIMES[arguments.runtime])
        )
        suite = unittest.defaultTestLoader.loadTestsFromName("interpreter_test")
        chosen = unittest.TestSuite(
            test for test in each(suite) if not arguments.tests or any(part in test.id() for part in arguments.tests)
        )
        result = unittest.TextTestRunner(verbosity=2).run(chosen)
    failed = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - failed - len(result.skipped)} of {result.testsRun} pass")
    sys.exit(not result.wasSuccessful())


def each(suite: unittest.TestSuite) -> list[Any]:
    """The tests of a suite, one by one."""
    return [test for part in suite for test in (each(part) if isinstance(part, unittest.TestSuite) else [part])]


def stand_in(folder: Path, made: Path, interpreter: types.ModuleType) -> None:
    """Provide the test's imports: the interpreter, and stand-ins for everything else."""

    def path_of(name: str) -> str:
        own = made / Path(name).name
        return str(own if own.exists() else folder / name)

    metrics = types.SimpleNamespace(
        TFLiteMetrics=type("TFLiteMetrics", (), {"increase_counter_interpreter_creation": 0})
    )
    own_metrics = getattr(interpreter, "metrics", metrics)
    modules: dict[str, Any] = {
        "tensorflow": {},
        "tensorflow.python.framework": {"test_util": types.SimpleNamespace(TensorFlowTestCase=TestCase)},
        "tensorflow.python.platform": {
            "resource_loader": types.SimpleNamespace(get_path_to_datafile=path_of),
            "test": types.SimpleNamespace(main=unittest.main),
        },
        "tflite.python": {"interpreter": interpreter, "lite": types.SimpleNamespace()},
        "tflite.python.metrics": {"metrics": own_metrics},
        "tflite.python.testdata": {"_pywrap_test_registerer": Registerer("_pywrap_test_registerer")},
    }
    for name, contents in modules.items():
        parts = name.split(".")
        for i in range(1, len(parts) + 1):
            sys.modules.setdefault(".".join(parts[:i]), types.ModuleType(".".join(parts[:i])))
        vars(sys.modules[name]).update(contents)
    spec = importlib.util.spec_from_file_location("interpreter_test", folder / "interpreter_test.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["interpreter_test"] = module
    spec.loader.exec_module(module)


def models() -> dict[str, bytes]:
    """The models that LiteRT's build generates, by file name."""
    return {
        "permute_float.tflite": permutation(TensorType.FLOAT32),
        "permute_uint8.tflite": permutation(TensorType.UINT8),
        "gather_string.tflite": gathering((10,)),
        "gather_string_0d.tflite": gathering(()),
        "two_signatures.tflite": two_signatures(),
    }


def permutation(type: TensorType) -> bytes:
    """Four elements the other way round, by a matrix."""
    builder = ModelBuilder()
    main = builder.subgraph()
    quantization = quantized(1.0) if type is TensorType.UINT8 else None
    x = main.input("input", (1, 4), type, quantization)
    weights = np.eye(4)[::-1].astype(np.uint8 if quantization else np.float32)
    w = main.constant("weights", weights, quantization)
    y = main.tensor("output", (1, 4), type, quantization)
    main.operator(BuiltinOperator.FULLY_CONNECTED, [x, w, -1], [y], FullyConnectedOptions())
    main.output(y)
    return builder.build()


def gathering(shape: tuple[int, ...]) -> bytes:
    """Some of several strings."""
    builder = ModelBuilder()
    main = builder.subgraph()
    x, indices = main.input("input", shape, TensorType.STRING), main.input("indices", (3,), TensorType.INT64)
    y = main.tensor("output", (3,), TensorType.STRING)
    main.operator(BuiltinOperator.GATHER, [x, indices], [y], GatherOptions())
    main.output(y)
    return builder.build()


def two_signatures() -> bytes:
    """A sum and a product, a subgraph and a signature each."""
    builder = ModelBuilder()
    operators: dict[str, Any] = {"add": AddOptions(), "multiply": MulOptions()}
    for index, (name, options) in enumerate(operators.items()):
        part = builder.subgraph(name)
        x = part.input(f"{name}_x:0", (1,), TensorType.FLOAT32)
        constant = part.constant(f"{name}/y", np.array([2], np.float32))
        y = part.tensor("PartitionedCall:0", (1,), TensorType.FLOAT32)
        code = BuiltinOperator.MUL if name == "multiply" else BuiltinOperator.ADD
        part.operator(code, [x, constant], [y], options)
        part.output(y)
        builder.signature(name, {"x": x}, {"output_0": y}, index)
    return builder.build()


if __name__ == "__main__":
    main()
