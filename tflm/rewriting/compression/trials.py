"""Compresses the constants of a model one by one, and measures what each saves and costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tflm.errors import RewriteError, TflmError
from tflm.firmware.device_check import operator_findings
from tflm.graph import Graph
from tflm.kernels.reference.decode import SCHEMES, TFLM_DECODE, Scheme
from tflm.libraries import KernelLibrary
from tflm.memory.tensor import TfLiteEvalTensor, TfLiteTensor
from tflm.rewriting.compression.encodings import Encoding, smallest_encoding
from tflm.runtime.micro_measurement import measure_arena
from tflm.runtime.micro_measurement_report import ArenaMeasurement
from tflm.runtime.micro_op_resolver import MicroMutableOpResolver
from tflm.schema.enums import BuiltinOperator
from tflm.schema.model import Model
from tflm.schema.tables import Operator
from tflm.targets import Target


def with_decoded(model: Model, encodings: Mapping[int, Encoding]) -> Model:
    """A copy of a model in which constants are stored encoded.

    One TFLM_DECODE decodes all encoded tensors of an operator, in the order of their indices. A tensor that several
    operators read is decoded before each: decompression memory holds tensors only until the next TFLM_DECODE.

    Args:
        model: the model.
        encodings: the encoding of each constant, by its place among the tensors of all subgraphs.
    """
    first = 0
    for subgraph, table in enumerate(model.subgraphs):
        end = first + len(table.tensors or ())
        here = {tensor - first: encoding for tensor, encoding in encodings.items() if first <= tensor < end}
        graph = Graph(model, subgraph)
        _insert_operators(graph, here)
        model, first = Model(graph.build()), end
    return model


def _insert_operators(graph: Graph, encodings: Mapping[int, Encoding]) -> None:
    operators: list[Operator] = []
    for operator in graph.operators:
        encoded = sorted(set(operator.inputs or ()) & encodings.keys())
        if encoded:
            decoded = {tensor: _decoded_tensor(graph, tensor) for tensor in encoded}
            inputs = [part for tensor in encoded for part in _constants(graph, encodings[tensor])]
            operators.append(graph.make_custom_operator(TFLM_DECODE.name, inputs, list(decoded.values())))
            operator = graph.like(
                operator, (decoded.get(tensor, tensor) for tensor in operator.inputs or ()), operator.outputs or ()
            )
        operators.append(operator)
    graph.operators = operators


def _decoded_tensor(graph: Graph, tensor: int) -> int:
    return graph.add_tensor(tensor, graph.tensors[tensor].name, graph.shape(tensor))


def _constants(graph: Graph, encoding: Encoding) -> tuple[int, int]:
    """Codes and metadata, without names, which would take flash."""
    return graph.add_constant(None, encoding.codes), graph.add_constant(None, encoding.metadata)


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


class Place(NamedTuple):
    """A subgraph, and the position of a tensor or an operator there."""

    subgraph: int
    position: int


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
    """A model, and trials of its constants. Tensors and operators are numbered through all subgraphs.

    Attributes:
        model, resolver, target, library: the model, and the firmware that runs it.
        decompression_memory: bytes of the interpreter's memory for outputs of TFLM_DECODE.
        tell: called with a description of each step.
        before: the model's arena.
        tensors: the subgraph of each tensor, and its index there.
        operators: the same for each operator.
        readers: the operators that read each tensor.
        sizes: the size of the file without compressed constants, and of operators.
        found: a trial for each constant whose encoding is smaller and that its operators accept from TFLM_DECODE.
    """

    model: Model
    resolver: MicroMutableOpResolver
    target: Target
    library: KernelLibrary
    decompression_memory: int
    tell: Callable[[str], None]

    def __post_init__(self) -> None:
        self.before = self.measure(self.model)
        self._schemes = decoded_schemes(self.library)
        self._graphs = [Graph(self.model, subgraph) for subgraph in range(len(self.model.subgraphs))]
        self.tensors = _numbered(len(graph.tensors) for graph in self._graphs)
        self.operators = _numbered(len(graph.operators) for graph in self._graphs)
        self.readers = self._readers()
        self._known = self._concerns(self.model)
        self.sizes = _file_sizes(self.model)
        self.found = self._trials()

    def graph_of(self, tensor: int) -> tuple[Graph, int]:
        """The subgraph of a tensor, and its index there."""
        place = self.tensors[tensor]
        return self._graphs[place.subgraph], place.position

    def saved_bytes(self, tensor: int) -> int:
        """Decrease of the file if a tensor is compressed, without the increase for TFLM_DECODE operators."""
        operators = self.sizes.code + len(self.readers[tensor]) * self.sizes.operator
        return self.sizes.plain + operators - self.found[tensor].file_bytes

    def measure(self, model: Model) -> ArenaMeasurement:
        """The arena that a model needs."""
        return measure_arena(
            model,
            self.resolver,
            target=self.target,
            kernels=self.library,
            decompression_memory=self.decompression_memory,
        )

    def _trials(self) -> dict[int, Trial]:
        """A trial for each constant whose encoding is smaller and that its operators accept from TFLM_DECODE."""
        if TFLM_DECODE.name not in self.resolver or "ethos-u" in self._operator_names():
            return {}
        trials: dict[int, Trial] = {}
        for tensor in self.readers:
            encoding = self._encoding(tensor)
            if encoding is not None:
                self.tell(f"trying tensor {tensor} of {len(self.tensors)}")
                trial = self._trial(tensor, encoding)
                trials |= {} if trial is None else {tensor: trial}
        return trials

    def _readers(self) -> dict[int, list[int]]:
        """The operators that read each tensor."""
        numbers = {place: number for number, place in enumerate(self.operators)}
        graph_readers = [graph.readers() for graph in self._graphs]
        return {
            number: [numbers[Place(place.subgraph, reader)] for reader in graph_readers[place.subgraph][place.position]]
            for number, place in enumerate(self.tensors)
            if place.position in graph_readers[place.subgraph]
        }

    def _operator_names(self) -> set[str]:
        return {
            self.model.operator_name(operator) for table in self.model.subgraphs for operator in table.operators or ()
        }

    def _encoding(self, tensor: int) -> Encoding | None:
        """The smallest encoding of a constant, if it is smaller and the tensor is only read by builtin operators."""
        graph, index = self.graph_of(tensor)
        table = graph.tensors[index]
        is_end = index in (*graph.inputs, *graph.outputs)
        if is_end or not graph.is_constant(index) or table.is_variable or table.sparsity is not None:
            return None
        readers = (graph.operators[self.operators[reader].position] for reader in self.readers[tensor])
        if any(graph.code(reader) is BuiltinOperator.CUSTOM for reader in readers):
            return None
        values = TfLiteEvalTensor(self.model, table)
        encoding = smallest_encoding(TfLiteTensor(table, values), self._schemes)
        return encoding if encoding is not None and encoding.file_bytes < values.elements.nbytes else None

    def _trial(self, tensor: int, encoding: Encoding) -> Trial | None:
        model = with_decoded(self.model, {tensor: encoding})
        try:
            measured = self.measure(model)
        except TflmError:  # a kernel needs the tensor as a constant
            return None
        return None if self._concerns(model) - self._known else Trial(encoding, len(model.data), measured)

    def _concerns(self, model: Model) -> Counter[tuple[str, str]]:
        """Return what the kernel library computes differently, or rejects, by operator."""
        findings = operator_findings(model, target=self.target, kernels=self.library)
        return Counter((finding.operator, finding.happens) for finding in findings)


class FileSizes(NamedTuple):
    """Bytes of the file as this package writes it, of TFLM_DECODE's code, and of each operator."""

    plain: int
    code: int
    operator: int


def _file_sizes(model: Model) -> FileSizes:
    model, sizes = with_decoded(model, {}), []
    for count in range(3):
        graph = Graph(model)
        graph.operators = [
            *graph.operators,
            *(graph.make_custom_operator(TFLM_DECODE.name, [], []) for _ in range(count)),
        ]
        sizes.append(len(graph.build()))
    operator = sizes[2] - sizes[1]
    return FileSizes(sizes[0], sizes[1] - sizes[0] - operator, operator)


def _numbered(counts: Iterable[int]) -> list[Place]:
    """The places of all tensors or operators, by the number of each subgraph's."""
    return [Place(subgraph, index) for subgraph, count in enumerate(counts) for index in range(count)]
