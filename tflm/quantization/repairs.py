"""Repairs of models: before litert-quantizer, which misreads some files, and after it, for TFLM.

litert-quantizer saturates biases that int32 cannot hold at the product of the scales of input and weights: their
weights get larger scales. Such biases belong to channels whose weights are tiny, such as pruned ones, or to inputs
with a tiny range.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tflm.errors import ArgumentError
from tflm.graph import Graph
from tflm.quantization.recipe import CONVERSIONS
from tflm.rewriting.cleanup import drop_operators_to_no_effect, drop_unread_operators
from tflm.schema.enums import ELEMENT_TYPES, BuiltinOperator, TensorType
from tflm.schema.model import Model
from tflm.schema.options import ReshapeOptions
from tflm.schema.patch import with_data_inside
from tflm.schema.reader import read_model
from tflm.schema.tables import Model as Root
from tflm.schema.tables import Operator, SignatureDef, Tensor, TensorMap, builtin_code, called_subgraphs
from tflm.schema.writer import write_model
from tflm.versioning.update import update_versions

SIGNATURE_KEY = "serving_default"
"""The key of a single signature, as converters name it."""

BIAS_DEMANDED = ("CONV_2D", "DEPTHWISE_CONV_2D")
"""Operators that need a bias in LiteRT, which litert-quantizer contains."""


def require_float(model: Model) -> None:
    """Check that a model can be quantized.

    Raises:
        ArgumentError: it has no float tensors, quantized ones already, constants that are not finite, or operators that
            run other subgraphs.
    """
    for subgraph in model.subgraphs:
        for tensor in subgraph.tensors or ():
            if tensor.quantization is not None and tensor.quantization.scale:
                raise ArgumentError(
                    f"the model is quantized already: tensor {tensor.name!r} is {tensor.type.name}; "
                    "quantize the float model that it was made from"
                )
            _require_finite(model, tensor)
        for operator in subgraph.operators or ():
            if called_subgraphs(operator):
                raise ArgumentError(f"{model.operator_name(operator)} runs another subgraph, which cannot be quantized")
    if not any(tensor.type is TensorType.FLOAT32 for tensor in model.subgraphs[0].tensors or ()):
        raise ArgumentError("the model has no float tensors, so there is nothing to quantize")


def _require_finite(model: Model, tensor: Tensor) -> None:
    content = model.constant(tensor) if tensor.type is TensorType.FLOAT32 else None
    if content is not None and not np.isfinite(np.frombuffer(content, np.float32)).all():
        raise ArgumentError(f"constant {tensor.name!r} has values that are not finite, which have no integer scale")


def is_float(model: Model) -> bool:
    """Whether a model has float tensors, and can be quantized."""
    try:
        require_float(model)
    except ArgumentError:
        return False
    return True


def prepared(model: Model, float_io: bool = False) -> bytes:
    """The bytes of a float model that litert-quantizer reads correctly.

    Constants are inside the flatbuffer. Each operator code is in the newer of its two fields, the only one that is
    read. Every tensor has a name of its own, and the model has a signature. A memory plan and operators whose outputs
    are never read are removed. Weights stored as float16 are float32. Convolutions without a bias get zeros.

    Args:
        float_io: whether inputs and outputs stay float; then no operator reads an output of the model.
    """
    graph = Graph(with_data_inside(model))
    _widen_half_floats(graph)
    drop_unread_operators(graph)
    graph.operators = [_with_bias(graph, operator) for operator in graph.operators]
    if float_io:
        _separate_outputs(graph)
    root = read_model(memoryview(graph.build()))
    for code in root.operator_codes or ():
        code.builtin_code = builtin_code(code)
    _name_tensors(root)
    _add_signature(root)
    return write_model(root)


def finished(data: bytes) -> bytes:
    """The bytes of a quantized model that TFLM reads correctly.

    Constants are inside the flatbuffer: litert-quantizer stores large ones after it, where TFLM does not read them.
    Operators have the versions that they need. QUANTIZEs that change nothing are removed.
    """
    graph = Graph(with_data_inside(Model(data)))
    drop_operators_to_no_effect(graph)
    return update_versions(Model(graph.build()))


def _widen_half_floats(graph: Graph) -> None:
    """Replace constants of FLOAT16, which DEQUANTIZE expands, by FLOAT32."""
    kept, widened = [], dict[int, int]()
    for operator in graph.operators:
        source = (operator.inputs or (-1,))[0]
        if graph.code(operator) is BuiltinOperator.DEQUANTIZE and graph.tensors[source].type is TensorType.FLOAT16:
            name = graph.tensors[source].name
            widened[(operator.outputs or ())[0]] = graph.add_constant(name, graph.constant(source).astype(np.float32))
        else:
            inputs = [widened.get(tensor, tensor) for tensor in operator.inputs or ()]
            kept.append(graph.like(operator, inputs, operator.outputs or ()))
    graph.operators = kept


def _with_bias(graph: Graph, operator: Operator) -> Operator:
    """The operator, with zeros in place of a bias that litert-quantizer demands."""
    inputs, outputs = operator.inputs or (), operator.outputs or ()
    if graph.registration(operator).name not in BIAS_DEMANDED or (len(inputs) == 3 and inputs[2] >= 0):
        return operator
    zeros = np.zeros(graph.shape(outputs[0])[-1], np.float32)
    return graph.like(operator, [*inputs[:2], graph.add_constant("bias", zeros)], outputs)


def _separate_outputs(graph: Graph) -> None:
    """Copy outputs of the model that operators read, which would turn these operators float, with a RESHAPE."""
    for output in set(graph.outputs) & set(graph.producers()) & set(graph.readers()):
        table = graph.tensors[output]
        inner = graph.add_tensor(output, f"{table.name}_inner", table.shape or ())
        graph.operators = [
            graph.like(operator, *([inner if t == output else t for t in side or ()] for side in _sides(operator)))
            for operator in graph.operators
        ]
        options = ReshapeOptions(new_shape=table.shape)
        graph.operators.append(graph.make_operator(BuiltinOperator.RESHAPE, 1, [inner], [output], options))


def _sides(operator: Operator) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    return operator.inputs, operator.outputs


def _name_tensors(root: Root) -> None:
    """Rename tensors that share a name or have none."""
    tensors = [tensor for subgraph in root.subgraphs or () for tensor in subgraph.tensors or ()]
    counts = Counter(tensor.name for tensor in tensors)
    for index, tensor in enumerate(tensors):
        if not tensor.name or counts[tensor.name] > 1:
            tensor.name = _free_name(f"{tensor.name or 'tensor'}_{index}", counts)


def _free_name(name: str, taken: Counter[str | None]) -> str:
    while taken[name]:
        name += "_"
    return name


def _add_signature(root: Root) -> None:
    """Add a signature with the names of inputs and outputs, unless the model has one."""
    if root.signature_defs or not root.subgraphs:
        return
    main = root.subgraphs[0]
    tensors = main.tensors or []
    inputs, outputs = (
        [TensorMap(name=tensors[index].name, tensor_index=index) for index in side or ()]
        for side in (main.inputs, main.outputs)
    )
    root.signature_defs = [SignatureDef(inputs=inputs, outputs=outputs, signature_key=SIGNATURE_KEY)]


BIASES = {"CONV_2D": 2, "DEPTHWISE_CONV_2D": 2, "FULLY_CONNECTED": 2, "TRANSPOSE_CONV": 3}
"""The input that is a bias, by operator."""

LARGEST_BIAS = 1 << 30
"""Half of int32; the other half is for the products that are added."""

LARGEST_WEIGHT = {TensorType.INT8: 127, TensorType.INT4: 7}

Floats = npt.NDArray[np.float32]


def with_fitting_biases(data: bytes, model: Model) -> bytes:
    """The bytes of a quantized model whose weights have larger scales where int32 could not hold the bias.

    Args:
        data: the bytes of the quantized model.
        model: the float model that it was made from, with the same operators apart from conversions.
    """
    graph, before = Graph(with_data_inside(Model(data))), Graph(model)
    places = [i for i, op in enumerate(graph.operators) if graph.registration(op).name not in CONVERSIONS]
    for place, source in zip(places, before.operators, strict=True):
        operator = graph.operators[place]
        if _has_integer_bias(graph, operator):
            graph.operators[place] = _with_larger_scales(graph, operator, before, source)
    return graph.build()


def _has_integer_bias(graph: Graph, operator: Operator) -> bool:
    place, inputs = BIASES.get(graph.registration(operator).name), operator.inputs or ()
    if place is None or len(inputs) <= place or inputs[place] < 0:
        return False
    weights = inputs[graph.registration(operator).weights[0]]
    is_constant = graph.is_constant(weights) and graph.is_constant(inputs[place])
    return is_constant and graph.tensors[weights].type in LARGEST_WEIGHT


def _with_larger_scales(graph: Graph, operator: Operator, before: Graph, source: Operator) -> Operator:
    """The operator, with new weights and biases if a bias exceeds `LARGEST_BIAS`."""
    registration, inputs = graph.registration(operator), list(operator.inputs or ())
    weights, bias = registration.weights[0], BIASES[registration.name]
    float_weights, float_biases = (before.constant((source.inputs or ())[place]) for place in (weights, bias))
    (input_scale,), scales = (_scales(graph, inputs[place]) for place in (registration.activations, weights))
    needed = np.abs(float_biases) / (input_scale * np.float32(LARGEST_BIAS))
    larger = np.maximum(scales, needed if len(scales) > 1 else needed.max())
    if np.array_equal(larger, scales):
        return operator
    inputs[weights] = _requantized(graph, inputs[weights], float_weights, larger)
    inputs[bias] = _requantized(graph, inputs[bias], float_biases, input_scale * larger)
    return graph.like(operator, inputs, operator.outputs or ())


def _scales(graph: Graph, tensor: int) -> Floats:
    parameters = graph.tensors[tensor].quantization
    assert parameters is not None
    return np.array(parameters.scale, np.float32)


def _requantized(graph: Graph, tensor: int, values: Floats, scales: Floats) -> int:
    """A constant like a quantized one, with other scales."""
    table = graph.tensors[tensor]
    assert table.quantization is not None
    by_channel = [1] * values.ndim
    by_channel[table.quantization.quantized_dimension] = -1
    largest = LARGEST_WEIGHT.get(table.type, LARGEST_BIAS)
    integers = np.clip(np.rint(values / scales.reshape(by_channel)), -largest, largest)
    data = integers.astype(ELEMENT_TYPES[table.type].dtype)
    parameters = replace(table.quantization, scale=tuple(scales.tolist()))
    made = graph.add_constant(table.name, _packed(data) if table.type is TensorType.INT4 else data, parameters)
    graph.tensors[made].type, graph.tensors[made].shape = table.type, table.shape
    return made


def _packed(values: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Two elements of 4 bits in each byte, the first in the low bits."""
    pairs = np.append(values, np.zeros(values.size % 2, np.int8)).reshape(-1, 2)
    return (pairs[:, 0] & 15 | pairs[:, 1] << 4).astype(np.int8)
