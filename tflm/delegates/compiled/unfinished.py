"""Programs that run while their kernels are compiled in the background."""

from __future__ import annotations

from collections.abc import Sequence

from tflm.compiler import background
from tflm.compiler.machine_code import addresses, known_addresses, known_count, unknown
from tflm.delegates.compiled.program import Operator, bind_available, can_run
from tflm.kernels.registration import Run


def bind_unfinished(operators: Sequence[Operator]) -> Run:
    """Returns a function that runs operators in order; waits only for kernels of those that aren't interchangeable."""
    addresses(kernel for operator in operators if not operator.is_interchangeable for kernel in operator.kernels)
    kernels = [kernel for operator in operators for kernel in operator.kernels]
    available = addresses(kernels, compiles=False)
    return UnfinishedProgram(operators).run if unknown(kernels) else bind_available(operators, available)


class UnfinishedProgram:
    """Operators in order. Each runs with numpy until all of its kernels are compiled, and with these from then on.

    Args:
        operators: the operators. Those that lack kernels must be interchangeable.

    Attributes:
        final: what runs the operators once nothing is left to compile; None until then.
    """

    def __init__(self, operators: Sequence[Operator]):
        self.final: Run | None = None
        self._operators = operators
        self._kernels = [kernel for operator in operators for kernel in operator.kernels]
        self._renew()

    def run(self) -> None:
        """Run all operators with the kernels that are compiled by now."""
        if self.final is None and (self._known_count != known_count() or not background.is_at_work()):
            self._renew()
        self._run()

    def _renew(self) -> None:
        self._known_count = known_count()
        missing = unknown(self._kernels)
        background.request(missing)  # again: a fork has to
        available = known_addresses(self._kernels)
        self._run = bind_available(self._operators, available)
        for operator in self._operators:
            if can_run(available, operator):
                operator.forget_numpy()
        if not missing:
            self.final = self._run
