"""Random graphs of all operators: models of single operators, with what some compute as the input of others."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from edges import at_an_edge
from flatbuffers import flexbuffers
from hypothesis import strategies as st
from models import INT8, INT16, Arrays, Case, Draw

from tflm.schema import BuiltinOperator, GatherOptions, ModelBuilder, quantized, read_model, write_model
from tflm.schema.tables import Buffer, Operator, OperatorCode, QuantizationParameters, SubGraph, Tensor
from tflm.testing.operators import OPERATORS

INVOKES = 3

CONVEYED = (INT8, INT16)

KEPT_ALONE = {"BasicClassifier", "DIV", "SignalFilterBank", "TFLite_Detection_PostProcess"}
"""Operators whose integers are indices and classes, or divisors: a division by zero is undefined in TFLM."""

ONE_SIGNAL = "Signal"
"""Operators of this prefix have a signal as their first input, and tables as the others."""

NEVER_PAUSES = bytes(flexbuffers.Dumps({"cycles_max": 1}))
"""Options of a CIRCULAR_BUFFER after which others run in each invoke; elsewhere their outputs are undefined."""


class JoinedGraph(NamedTuple):
    """A model, the inputs of its invokes, and the operators in it, for reports."""

    data: bytes
    invocations: list[Arrays]
    operators: list[str]


class Joined:
    """A model that grows by models of single operators.

    Attributes:
        invocations: the inputs of each invoke.
        values: tensors of 8 or 16 bits that the graph computes.
    """

    def __init__(self) -> None:
        builder = ModelBuilder()
        builder.subgraph()
        self.root = read_model(memoryview(builder.build()))
        self.main = self.root.subgraphs[0]
        self.main.inputs, self.main.outputs, self.main.tensors, self.main.operators = (), (), [], []
        self.root.operator_codes = []
        self.root.buffers = [Buffer()]
        self.invocations: list[Arrays] = [[] for _ in range(INVOKES)]
        self.values: list[int] = []

    def append(self, case: Case, sources: Iterable[int | None]) -> None:
        """Add the operators of a model.

        Args:
            sources: for each input of 8 or 16 bits in turn, the value that it takes its elements from, or None.
        """
        data, invocations = case
        added = self._renumbered(data)
        taken = iter(sources)
        for position, tensor in enumerate(added.inputs or ()):
            table = self.main.tensors[tensor]
            source = next(taken, None) if table.type in CONVEYED and table.shape else None
            if source is None:
                self.main.inputs = (*self.main.inputs, tensor)
                for i, arrays in enumerate(self.invocations):
                    arrays.append(invocations[min(i, len(invocations) - 1)][position])
            else:
                self._convey(source, tensor)
        self.main.operators += added.operators or []
        outputs = [tensor for tensor in added.outputs or () if tensor not in (added.inputs or ())]
        self.main.outputs = (*self.main.outputs, *outputs)
        self.values += [tensor for tensor in outputs if self._has_values(self.main.tensors[tensor])]

    def _has_values(self, tensor: Tensor) -> bool:
        return tensor.type in CONVEYED and bool(tensor.shape) and 0 not in tensor.shape

    def _renumbered(self, data: bytes) -> SubGraph:
        """The main subgraph of a model, numbered as the tensors and codes that the graph now has."""
        added = read_model(memoryview(data))
        tensors, buffers = len(self.main.tensors), len(self.root.buffers)
        codes, subgraphs = len(self.root.operator_codes), len(self.root.subgraphs) - 1
        self.root.operator_codes += added.operator_codes or []
        self.root.buffers += added.buffers or []
        main, *others = added.subgraphs or []
        self.root.subgraphs += others
        self.main.tensors += main.tensors or []
        for subgraph in (main, *others):
            for tensor in subgraph.tensors or ():
                tensor.buffer += buffers if tensor.buffer else 0
            for operator in subgraph.operators or ():
                operator.opcode_index += codes
                if self.root.operator_codes[operator.opcode_index].custom_code == "CIRCULAR_BUFFER":
                    operator.custom_options = NEVER_PAUSES
                operator.builtin_options = _moved(operator.builtin_options, subgraphs, f"{tensors} ")
        for operator in main.operators or ():
            operator.inputs = _shifted(operator.inputs, tensors)
            operator.outputs = _shifted(operator.outputs, tensors)
            operator.intermediates = _shifted(operator.intermediates, tensors)
        main.inputs, main.outputs = _shifted(main.inputs, tensors), _shifted(main.outputs, tensors)
        return main

    def _convey(self, source: int, target: int) -> None:
        """Fill a tensor with elements of another one, regardless of their shapes, types and scales."""
        value, wanted = self.main.tensors[source], self.main.tensors[target]
        if value.type == INT16:
            source = self._narrowed(source, value)
            value = self.main.tensors[source]
        elements = int(np.prod(value.shape))
        flat = self._operator(BuiltinOperator.RESHAPE, [source, self._constant([elements])], (elements,), value)
        places = np.arange(np.prod(wanted.shape)).reshape(wanted.shape) * 7 % elements
        chosen = dataclasses.replace(wanted, type=INT8)
        if wanted.type == INT16:
            chosen.quantization = _narrower(wanted)
        picked = [flat, self._constant(places)]
        if wanted.type == INT8:
            self._add(BuiltinOperator.GATHER, picked, target, GatherOptions())
        else:
            gathered = self._operator(BuiltinOperator.GATHER, picked, wanted.shape, chosen, GatherOptions())
            self._add(_conversion(wanted), [gathered], target)

    def _narrowed(self, source: int, value: Tensor) -> int:
        like = Tensor(type=INT8, quantization=_narrower(value))
        return self._operator(_conversion(value), [source], value.shape, like)

    def _operator(
        self, code: BuiltinOperator, inputs: Sequence[int], shape: Any, like: Tensor, options: Any = None
    ) -> int:
        self.main.tensors.append(Tensor(shape=tuple(shape), type=like.type, quantization=like.quantization))
        self._add(code, inputs, len(self.main.tensors) - 1, options)
        return len(self.main.tensors) - 1

    def _add(self, code: BuiltinOperator, inputs: Sequence[int], output: int, options: Any = None) -> None:
        self.root.operator_codes.append(OperatorCode(deprecated_builtin_code=code.value, version=1, builtin_code=code))
        index = len(self.root.operator_codes) - 1
        self.main.operators.append(
            Operator(opcode_index=index, inputs=tuple(inputs), outputs=(output,), builtin_options=options)
        )

    def _constant(self, elements: Any) -> int:
        array = np.asarray(elements, np.int32)
        self.root.buffers.append(Buffer(data=array.tobytes()))
        self.main.tensors.append(Tensor(shape=array.shape, type=2, buffer=len(self.root.buffers) - 1))
        return len(self.main.tensors) - 1


def _has_scale(tensor: Tensor) -> bool:
    return tensor.quantization is not None and bool(tensor.quantization.scale)


def _conversion(tensor: Tensor) -> BuiltinOperator:
    """The operator between a tensor of 16 bits and one of 8."""
    return BuiltinOperator.QUANTIZE if _has_scale(tensor) else BuiltinOperator.CAST


def _narrower(tensor: Tensor) -> QuantizationParameters | None:
    """Quantization of 8 bits for the numbers of a tensor of 16 bits."""
    return quantized(256 * tensor.quantization.scale[0]) if _has_scale(tensor) else None


def _shifted(indices: Sequence[int] | None, offset: int) -> tuple[int, ...] | None:
    return None if indices is None else tuple(index + offset if index >= 0 else index for index in indices)


def _moved(options: Any, subgraphs: int, prefix: str) -> Any:
    """Options with the new numbers of subgraphs, and with variables that no other operator has."""
    if options is None:
        return None
    changes: dict[str, Any] = {
        field.name: getattr(options, field.name) + subgraphs
        for field in dataclasses.fields(options)
        if field.name.endswith("subgraph_index")
    }
    if hasattr(options, "shared_name"):
        changes["shared_name"] = prefix + (options.shared_name or "")
    return dataclasses.replace(options, **changes)


@st.composite
def joined_graphs(draw: Draw, names: Sequence[str] = tuple(sorted(OPERATORS)), most: int = 4) -> JoinedGraph:
    """Draw graphs of a few operators, some of which read the outputs of others."""
    joined = Joined()
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=most))
    for name in chosen:
        case = draw(OPERATORS[name])
        if draw(st.integers(0, 3)) == 0:
            case = at_an_edge(draw, case)
        known = [None] if name in KEPT_ALONE else [*joined.values, None]
        inputs = 1 if name.startswith(ONE_SIGNAL) else 3
        joined.append(case, draw(st.lists(st.sampled_from(known), min_size=1, max_size=inputs)))
    outputs = joined.main.outputs
    kept = draw(st.lists(st.booleans(), min_size=len(outputs), max_size=len(outputs)))
    read = {tensor for operator in joined.main.operators for tensor in operator.inputs or ()}
    joined.main.outputs = tuple(t for t, keep in zip(outputs, kept) if keep or t not in read)
    return JoinedGraph(write_model(joined.root), joined.invocations, chosen)
