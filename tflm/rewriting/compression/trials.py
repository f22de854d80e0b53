"""Compresses the constants of a model one by one, and measures what each saves and costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from tflm.boards.device_check import operator_findings
from tflm.errors import RewriteError, TflmError
from tflm.kernels.reference.decode import SCHEMES, TFLM_DECODE, Scheme
from tflm.libraries import KernelLibrary
from tflm.memory.tensor import TfLiteEvalTensor, TfLiteTensor
from tflm.rewriting.compression.decode_operators import with_decoded
from tflm.rewriting.compression.encodings import Encoding, smallest_encoding
from tflm.rewriting.graph import Graph
from tflm.runtime.micro_measurement import measure_arena
from tflm.runtime.micro_measurement_report import ArenaMeasurement
from tflm.runtime.micro_op_resolver import MicroMutableOpResolver
from tflm.schema.enums import BuiltinOperator
from tflm.schema.model import Model
from tflm.targets import Target


def decoded_schemes(library: KernelLibrary) -> tuple[Scheme, ...]:
    """The schemes that a library's release of TFLM decodes.

    Raises:
        RewriteError: it has none.
    """
    release = library.release
    schemes = tuple(scheme for scheme in SCHEMES.values() if release.answers_hold(scheme.since))
    if not schemes:
        reason = f"{release.name} lacks {TFLM_DECODE.name}, which decodes compressed tensors; use a newer TFLM"
        raise RewriteError(reason)
    return schemes


class Trial(NamedTuple):
    """A model in which one constant is compressed.

    Attributes:
        encoding: the encoding of the constant.
        file_bytes: bytes of the model.
        measured: its arena.
    """

    encoding: Encoding
    file_bytes: int
    measured: ArenaMeasurement


@dataclass
class Trials:
    """A model, and trials of its constants.

    Attributes:
        model, resolver, target, library: the model, and the firmware that runs it.
        tell: called with a description of each step.
        before: the model's arena.
        graph: the model's graph.
        readers: the operators that read each tensor.
        sizes: the size of the file without compressed constants, and of operators.
        found: a trial for each constant whose encoding is smaller and that its operators accept from TFLM_DECODE.
    """

    model: Model
    resolver: MicroMutableOpResolver
    target: Target
    library: KernelLibrary
    tell: Callable[[str], None]

    def __post_init__(self) -> None:
        self.before = self.measure(self.model)
        self._schemes = decoded_schemes(self.library)
        self.graph = Graph(self.model)
        self.readers = self.graph.readers()
        self._known = self._concerns(self.model)
        self.sizes = _file_sizes(self.model)
        self.found = self._trials()

    def saved_bytes(self, tensor: int) -> int:
        """Decrease of the file if a tensor is compressed, without the increase for TFLM_DECODE operators."""
        operators = self.sizes.code + len(self.readers[tensor]) * self.sizes.operator
        return self.sizes.plain + operators - self.found[tensor].file_bytes

    def measure(self, model: Model) -> ArenaMeasurement:
        """The arena that a model needs."""
        return measure_arena(model, self.resolver, target=self.target, kernels=self.library)

    def _trials(self) -> dict[int, Trial]:
        """A trial for each constant whose encoding is smaller and that its operators accept from TFLM_DECODE."""
        if TFLM_DECODE.name not in self.resolver or "ethos-u" in self._operator_names():
            return {}
        trials: dict[int, Trial] = {}
        for tensor in sorted(self.readers):
            encoding = self._encoding(tensor)
            if encoding is not None:
                self.tell(f"trying tensor {tensor} of {len(self.graph.tensors)}")
                trial = self._trial(tensor, encoding)
                trials |= {} if trial is None else {tensor: trial}
        return trials

    def _operator_names(self) -> set[str]:
        return {self.model.operator_name(operator) for operator in self.model.subgraphs[0].operators or ()}

    def _encoding(self, tensor: int) -> Encoding | None:
        """The smallest encoding of a constant, if it is smaller and the tensor is only read by builtin operators."""
        graph = self.graph
        table = graph.tensors[tensor]
        is_end = tensor in (*graph.inputs, *graph.outputs)
        if is_end or not graph.is_constant(tensor) or table.is_variable or table.sparsity is not None:
            return None
        if any(graph.code(graph.operators[reader]) is BuiltinOperator.CUSTOM for reader in self.readers[tensor]):
            return None
        values = TfLiteEvalTensor(self.model, (self.model.subgraphs[0].tensors or [])[tensor])
        encoding = smallest_encoding(TfLiteTensor(table, values), self._schemes)
        return encoding if encoding is not None and encoding.file_bytes < values.elements.nbytes else None

    def _trial(self, tensor: int, encoding: Encoding) -> Trial | None:
        data = with_decoded(self.model, {tensor: encoding}).build()
        model = Model(data)
        try:
            measured = self.measure(model)
        except TflmError:  # a kernel needs the tensor as a constant
            return None
        return None if self._concerns(model) - self._known else Trial(encoding, len(data), measured)

    def _concerns(self, model: Model) -> Counter[tuple[str, str]]:
        """What the kernel library does differently, or rejects, by operator."""
        findings = operator_findings(model, target=self.target, kernels=self.library)
        return Counter((finding.operator, finding.happens) for finding in findings)


class FileSizes(NamedTuple):
    """Bytes of the file as this package writes it, of TFLM_DECODE's code, and of each operator."""

    plain: int
    code: int
    operator: int


def _file_sizes(model: Model) -> FileSizes:
    sizes = []
    for count in range(3):
        graph = Graph(model)
        graph.operators = [
            *graph.operators,
            *(graph.make_custom_operator(TFLM_DECODE.name, [], []) for _ in range(count)),
        ]
        sizes.append(len(graph.build()))
    operator = sizes[2] - sizes[1]
    return FileSizes(sizes[0], sizes[1] - sizes[0] - operator, operator)
