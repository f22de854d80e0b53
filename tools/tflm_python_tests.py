"""Run TFLM's own tests in Python against this package: `python tools/tflm_python_tests.py TREE [TEST ...]`.

TREE is a checkout of the tflite-micro repository. Its tests import each other, and the runtime, from a package called
`tflite_micro`: here that is the tree itself, but for its runtime, which is `tflm.compat.tflite_micro.runtime`, or with
`--runtime wheel` that of the tflite-micro package from PyPI. That package is needed in any case: the tree's helper that
aligns flatbuffers is C++, and is taken from there. So are `bitarray` and `absl-py`, and for some of the tests
TensorFlow; where it is not installed, those are left out, and named.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import types
import unittest
from pathlib import Path

TESTS = {
    "python.tflite_micro.runtime_test": True,
    "tensorflow.lite.micro.compression.compression_integration_test": False,
    "tensorflow.lite.micro.compression.compress_test": False,
    "tensorflow.lite.micro.compression.decode_insert_runtime_test": False,
    "tensorflow.lite.micro.compression.decode_insert_test": False,
    "tensorflow.lite.micro.compression.verify_test": False,
    "tensorflow.lite.micro.examples.recipes.resource_variables_test": True,
    "tensorflow.lite.micro.tools.requantize_flatbuffer_test": True,
    "tensorflow.lite.micro.tools.tflm_model_transforms_test": True,
}
"""The tests that run models, or make what others run; and whether they need TensorFlow."""

RUNTIME = "tflite_micro.python.tflite_micro.runtime"
ALIGNER = "tflite_micro.tensorflow.lite.micro.tools.tflite_flatbuffer_align_wrapper"


def main() -> None:
    """Put the package together, and run the tests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path, help="a checkout of tflite-micro")
    parser.add_argument("tests", nargs="*", help="parts of the names of tests; all unless told")
    parser.add_argument("--runtime", choices=["tflm", "wheel"], default="tflm")
    arguments = parser.parse_args()
    wheel = importlib.util.find_spec("tflite_micro")
    if wheel is None or wheel.origin is None:
        sys.exit("needs the tflite-micro package: pip install -e '.[oracle]'")
    make_package(arguments.tree.resolve(), Path(wheel.origin).parent, arguments.runtime == "wheel")
    has_tensorflow = importlib.util.find_spec("tensorflow") is not None
    chosen = [name for name in TESTS if not arguments.tests or any(part in name for part in arguments.tests)]
    left_out = [name for name in chosen if TESTS[name] and not has_tensorflow]
    suite = unittest.TestSuite(
        unittest.defaultTestLoader.loadTestsFromName(f"tflite_micro.{name}") for name in chosen if name not in left_out
    )
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    for name in left_out:
        print(f"left out, it needs TensorFlow: {name}")
    sys.exit(not result.wasSuccessful())


def make_package(tree: Path, wheel: Path, whose_runtime_is_the_wheels: bool) -> None:
    """Make `tflite_micro` stand for the tree, with the C++ modules of the package from PyPI and a runtime."""
    package = package_over("tflite_micro", tree)
    parent = package_over("tflite_micro.python.tflite_micro", tree / "python" / "tflite_micro")
    package_over("tflite_micro.tensorflow.lite.micro.compression", tree / "tensorflow/lite/micro/compression")
    load(ALIGNER, next(wheel.glob("**/tflite_flatbuffer_align_wrapper*.so")))
    if whose_runtime_is_the_wheels:
        load("tflite_micro.python.tflite_micro._runtime", next(wheel.glob("**/_runtime*.so")))
        runtime = importlib.import_module(RUNTIME)
    else:
        runtime = importlib.import_module("tflm.compat.tflite_micro.runtime")
        sys.modules[RUNTIME] = runtime
    parent.runtime = package.runtime = runtime  # type: ignore[attr-defined]


def package_over(name: str, folder: Path) -> types.ModuleType:
    """A package of that name over a folder, whose own `__init__` does not run."""
    package = types.ModuleType(name)
    package.__path__ = [str(folder)]
    sys.modules[name] = package
    parent, _, own = name.rpartition(".")
    if parent:
        setattr(importlib.import_module(parent), own, package)
    return package


def load(name: str, path: Path) -> None:
    """Import a file as a module of another name."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    parent, _, own = name.rpartition(".")
    setattr(importlib.import_module(parent), own, module)


if __name__ == "__main__":
    main()
