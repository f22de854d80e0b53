"""Parameters of an operator that are an input of it, such as an axis: a constant, or anew with each run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy.typing as npt

from tflm.kernels.registration import Run
from tflm.memory.tensor import TfLiteEvalTensor


def bind_parameter(tensor: TfLiteEvalTensor, bind: Callable[[npt.NDArray[Any]], Run]) -> Run:
    """What runs an operator for the elements that `tensor` has.

    Args:
        bind: from the elements to what runs the operator for them. For a constant it is called here, for another
            tensor in the first run and in each that finds other elements than the one before.
    """
    if tensor.is_constant:
        return bind(tensor.elements)
    elements = tensor.elements
    bound: tuple[bytes, Run] | None = None

    def run() -> None:
        nonlocal bound
        present = elements.tobytes()
        if bound is None or bound[0] != present:
            bound = present, bind(elements)
        bound[1]()

    return run
