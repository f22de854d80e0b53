"""Operator parameters that are inputs, such as an axis, and may be constant or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tflm.kernels.registration import Run
from tflm.memory.tensor import TfLiteEvalTensor

Result = TypeVar("Result")


def bind_by_parameters(
    parameters: Sequence[TfLiteEvalTensor], prepare: Callable[[], Result], run: Callable[[Result], None]
) -> Run:
    """Bind `run`, which takes the result of `prepare` for the values of the inputs `parameters`.

    If all of them are constant, `prepare` is called, and rejects bad values, only once, here; otherwise in each run.
    """
    if not all(parameter.is_constant for parameter in parameters):
        return lambda: run(prepare())
    prepared = prepare()
    return lambda: run(prepared)
