"""Parameters of an operator that are inputs of it, such as an axis: constants, or anew with each run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tflm.kernels.registration import Run
from tflm.memory.tensor import TfLiteEvalTensor


def bind_by_parameters(parameters: Sequence[TfLiteEvalTensor], bind: Callable[[], Run]) -> Run:
    """What runs an operator for the elements that `parameters` have.

    Args:
        bind: gives what runs the operator for their present elements. Where all are constants it is called here, else
            in the first run and in each that finds other elements than the one before; what it refuses is refused then.
    """
    varying = [parameter.elements for parameter in parameters if not parameter.is_constant]
    if not varying:
        return bind()
    bound: tuple[list[bytes], Run] | None = None

    def run() -> None:
        nonlocal bound
        present = [elements.tobytes() for elements in varying]
        if bound is None or bound[0] != present:
            bound = present, bind()
        bound[1]()

    return run
