"""Parameters of an operator that are inputs of it, such as an axis: constants, or values that change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tflm.kernels.registration import Run
from tflm.memory.tensor import TfLiteEvalTensor

Result = TypeVar("Result")


def bind_by_parameters(
    parameters: Sequence[TfLiteEvalTensor], prepare: Callable[[], Result], run: Callable[[Result], None]
) -> Run:
    """Bind `run`, which takes what `prepare` makes of the values of `parameters`.

    If all of them are constant, `prepare` is called here and refuses bad values here; otherwise in each run.
    """
    if not all(parameter.is_constant for parameter in parameters):
        return lambda: run(prepare())
    prepared = prepare()
    return lambda: run(prepared)
