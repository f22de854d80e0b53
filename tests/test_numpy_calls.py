"""Functions that come from numpy's private modules: there in the newest numpy, and not needed."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from example_models import INT8_MODEL

import tflm
from tflm.kernels.arithmetic.requantization import clip, einsum, private

MODEL = str(INT8_MODEL)

WITHOUT_PRIVATE_MODULES = """
import importlib.abc, sys
import numpy as np

class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in ("numpy._core.umath", "numpy._core.multiarray"):
            raise ImportError(name)

for name in ("numpy._core.umath", "numpy._core.multiarray"):
    del sys.modules[name]
sys.meta_path.insert(0, Hidden())
from tflm.kernels.arithmetic import requantization
assert requantization.clip is np.clip and requantization.einsum is np.einsum
import tflm
model = tflm.Model.from_file(sys.argv[1])
interpreter = tflm.MicroInterpreter(model, tflm.AllOpsResolver(), bytearray(4096), delegates=())
interpreter.allocate_tensors()
interpreter.input(0).data[:] = 42
interpreter.invoke()
print(interpreter.output(0).data.tolist())
"""


@pytest.mark.parametrize(("public", "ours"), [(np.clip, clip), (np.einsum, einsum)], ids=["clip", "einsum"])
def test_this_numpy_has_its_private_functions_where_they_are_looked_for(public: object, ours: object) -> None:
    assert ours is not public


def test_a_function_that_is_not_there_is_numpys_public_one() -> None:
    assert private("numpy._core.umath", "no_such_function", np.clip) is np.clip
    assert private("numpy._core.no_such_module", "clip", np.clip) is np.clip


def test_a_numpy_without_its_private_modules_gives_the_same_answer() -> None:
    command = [sys.executable, "-c", WITHOUT_PRIVATE_MODULES, MODEL]
    hidden = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    interpreter = tflm.MicroInterpreter(tflm.Model.from_file(MODEL), tflm.AllOpsResolver(), bytearray(4096))
    interpreter.allocate_tensors()
    interpreter.input(0).data[:] = 42
    interpreter.invoke()
    assert hidden.strip() == str(interpreter.output(0).data.tolist())
