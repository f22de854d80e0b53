"""BasicClassifier, CIRCULAR_BUFFER, TFLite_Detection_PostProcess and ethos-u.

- BasicClassifier: the posteriors of chosen classes, and whether each reaches its threshold. Inputs, all int32: the
  posteriors of all classes, in one or two dimensions; the requested classes, as indices into the posteriors; and a
  threshold for each of them. Outputs, with one element per requested class: whether its posterior reaches the threshold
  (bool), and the posterior itself (int32).
- CIRCULAR_BUFFER keeps the last few inputs, and ends most invokes early. The buffer is the output, a variable tensor.
  As in TFLM, only the first batch is written. In a streaming model, the operators after this one run only once every
  `cycles_max` invokes.
- TFLite_Detection_PostProcess selects an object detector's boxes by non-maximum suppression. Boxes are decoded relative
  to anchors. "Fast" suppression selects boxes by their best score, and reports the best classes of each; "regular"
  suppression selects boxes for each class separately, and keeps the best of all.
- ethos-u passes a command stream for an Arm Ethos-U NPU to a driver that the caller supplies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.node import InvokeAborted, KernelContext, Node
from tflm.kernels.registration import Registration, Run
from tflm.kernels.requests import Request, ScratchBuffer, TempInput, tensors
from tflm.kernels.support.checks import element_count, require_same_type, require_type, shape_error
from tflm.memory.tensor import TFLITE_QUANTIZATION_PARAMS, TfLiteEvalTensor
from tflm.releases.release import WHEEL_SOURCE
from tflm.schema.enums import TensorType
from tflm.schema.flexbuffer import FlexbufferMap, FlexbufferType
from tflm.schema.tables import Operator
from tflm.targets import BOOL, FLOAT, INT, SIZE_T, Struct

TYPES = (TensorType.INT32,)


def _prepare_classifier(context: KernelContext, node: Node) -> None:
    posteriors, classes, thresholds, reached, chosen = node.expect_tensors(3, 2)
    if len(posteriors.dims) not in (1, 2):
        raise shape_error(posteriors, ", must have 1 or 2 dimensions")
    for tensor in (classes, thresholds, reached, chosen):
        if len(tensor.dims) != 1 or tensor.dims != classes.dims:
            raise shape_error(tensor, "; must have one element for each requested class")
    for tensor in (posteriors, classes, thresholds, chosen):
        require_type(tensor, *TYPES)
    require_type(reached, TensorType.BOOL)


def _bind_classifier(context: KernelContext, node: Node) -> Run:
    classes = node.eval_input(1)
    posteriors, indices, thresholds = (node.eval_input(i).elements.reshape(-1) for i in range(3))
    reached, chosen = (node.eval_output(i).elements for i in range(2))

    def run() -> None:
        if np.any((indices < 0) | (indices >= len(posteriors))):
            raise OperatorError(
                f"has a class that is out of range for {len(posteriors)} posteriors", tensor=classes.name
            )
        values = posteriors[indices]
        reached[...], chosen[...] = values >= thresholds, values

    return run


BASIC_CLASSIFIER = Registration(
    "BasicClassifier", _bind_classifier, _prepare_classifier, requests=tensors(3, 2), types=TYPES, since=WHEEL_SOURCE
)


OP_DATA_CIRCULAR_BUFFER = Struct("OpDataCircularBuffer", cycles_until_run=INT, cycles_max=INT)

NAME = "CIRCULAR_BUFFER"
EVERY_INVOKE_SLOTS = (5, 13, 25)
"""Without options, buffers with this many slots never end an invoke; neither does the fifth buffer with FIFTH_DIMS."""
FIFTH_DIMS = (2, 96)


def _cycles_in(custom_options: bytes | memoryview) -> int:
    return FlexbufferMap(custom_options).element_as_int32(0) if len(custom_options) else 0


def _prepare_circular_buffer(context: KernelContext, node: Node) -> None:
    input, output = node.expect_tensors(inputs=1)
    require_same_type(input, output)
    require_type(input, TensorType.INT8)
    fits = len(input.dims) >= 4 and len(output.dims) >= 4
    if not fits or input.dims[1] != 1 or any(input.dims[i] != output.dims[i] for i in (0, 2, 3)):
        reason = f"has shape {list(output.dims)}; for an input of {list(input.dims)}, which must be [n, 1, w, depth], "
        raise OperatorError(reason + "it must be [n, slots, w, depth]", tensor=output.name)
    cycles = _cycles_in(node.custom_options)
    state = node.op_data = node.op_data.view(np.int32)
    state[:] = cycles if cycles > 0 else _cycles_without_options(context, node)


def _cycles_without_options(context: KernelContext, node: Node) -> int:
    """1 or 2, from the shapes of the buffers up to this one, as TFLM tells the layers of two old models apart."""
    count, cycles = 0, 2
    tensors, operators = context.subgraph.tensors or [], context.subgraph.operators or []
    for operator in operators[: node.index + 1]:
        if not _is_without_cycles(context, operator):
            continue
        count += 1
        dims = tensors[(operator.outputs or ())[0]].shape or ()
        cycles = 1 if dims[1] in EVERY_INVOKE_SLOTS or (count == 5 and dims[2:4] == FIFTH_DIMS) else 2
        if cycles == 1:
            count = 0
    return cycles


def _is_without_cycles(context: KernelContext, operator: Operator) -> bool:
    code = context.model.operator_code(operator)
    return code.custom_code == NAME and _cycles_in(operator.custom_options or b"") <= 0


def _bind_circular_buffer(context: KernelContext, node: Node) -> Run:
    input, output = node.eval_input(0), node.eval_output(0)
    depth = output.dims[2] * output.dims[3]
    slots = output.elements.reshape(-1)[: output.dims[1] * depth]
    older, kept, newest = slots[:-depth], slots[depth:], slots[-depth:]
    source = input.elements.reshape(-1)[:depth]
    state = node.op_data

    def run() -> None:
        older[:] = kept
        newest[:] = source
        state[0] -= 1
        if state[0]:
            raise InvokeAborted
        state[0] = state[1]

    return run


def _reset_circular_buffer(context: KernelContext, node: Node) -> None:
    node.op_data[0] = node.op_data[1]


CIRCULAR_BUFFER = Registration(
    NAME,
    _bind_circular_buffer,
    _prepare_circular_buffer,
    reset=_reset_circular_buffer,
    ends_invoke=True,
    op_data=OP_DATA_CIRCULAR_BUFFER,
    requests=tensors(),
    types=(TensorType.INT8,),
)


OP_DATA_ETHOS_U = Struct("ethosu.cc:OpData", cms_data_size=INT, base_addr_idx=INT, base_addr_size_idx=INT)

CO_TYPE_ETHOS_U = 1
MAXIMUM_BASE_ADDRESSES = 8

Bytes = npt.NDArray[np.uint8]

EthosUDriver = Callable[[Bytes, Sequence[Bytes]], None]
"""Runs a command stream on the memory at its base addresses. Both are views of bytes, not copies.

The base addresses, at most 8, are in Vela's order: the model's weights (read only), the arena, the fast scratch memory,
the inputs, the outputs. A driver raises an exception to report failure.
"""


def ethos_u(driver: EthosUDriver | None) -> Registration:
    """The operator "ethos-u" with a driver: `resolver.add_custom(tflm.ethos_u(driver))`.

    Args:
        driver: called as `driver(command_stream, base_addresses)` in each invoke; see `EthosUDriver`. With None, the
            model cannot run, only its arena can be measured.
    """

    def prepare(context: KernelContext, node: Node) -> None:
        if not node.inputs:
            raise OperatorError("has no inputs, the first is its command stream")
        _check_options(node.custom_options)

    def bind(context: KernelContext, node: Node) -> Run:
        if driver is None:
            raise OperatorError(
                "needs a driver; make a MicroMutableOpResolver, and add the operator with "
                "resolver.add_custom(tflm.ethos_u(driver))"
            )
        command_stream, *inputs = [_bytes(node.eval_input(i)) for i in range(len(node.inputs))]
        outputs = [_bytes(node.eval_output(i)) for i in range(len(node.outputs))]
        base_addresses = [*inputs, *outputs][:MAXIMUM_BASE_ADDRESSES]
        return lambda: driver(command_stream, base_addresses)

    return Registration("ethos-u", bind, prepare, op_data=OP_DATA_ETHOS_U, requests=_requests_ethos_u, opaque=True)


def _requests_ethos_u(node: Node) -> Iterator[Request]:
    count = node.input_count + node.output_count
    yield ScratchBuffer("base addresses", 8 * count)
    yield ScratchBuffer("sizes at base addresses", count * SIZE_T.size(node.target))
    yield TempInput(0)


def _check_options(options: memoryview) -> None:
    """The options are a flexbuffer of one integer: the device of the command stream."""
    if len(options) >= 3:
        width, kind = options[-1], options[-2] >> 2
        is_integer = kind in (FlexbufferType.INT, FlexbufferType.UINT) and width in (1, 2, 4, 8)
        if is_integer and len(options) >= width + 2 and options[-2 - width] == CO_TYPE_ETHOS_U:
            return
    raise OperatorError(f"has custom options that do not say {CO_TYPE_ETHOS_U}, for a command stream of an Ethos-U")


def _bytes(tensor: TfLiteEvalTensor) -> npt.NDArray[Any]:
    return tensor.elements.reshape(-1).view(np.uint8)


ETHOS_U = ethos_u(None)


CENTER_SIZE_ENCODING = Struct("CenterSizeEncoding", y=FLOAT, x=FLOAT, h=FLOAT, w=FLOAT)
OP_DATA_DETECTION_POSTPROCESS = Struct(
    "detection_postprocess.cc:OpData",
    max_detections=INT,
    max_classes_per_detection=INT,
    detections_per_class=INT,
    non_max_suppression_score_threshold=FLOAT,
    intersection_over_union_threshold=FLOAT,
    num_classes=INT,
    use_regular_non_max_suppression=BOOL,
    scale_values=CENTER_SIZE_ENCODING,
    active_candidate_idx=INT,
    decoded_boxes_idx=INT,
    scores_idx=INT,
    score_buffer_idx=INT,
    keep_scores_idx=INT,
    scores_after_regular_non_max_suppression_idx=INT,
    sorted_values_idx=INT,
    keep_indices_idx=INT,
    sorted_indices_idx=INT,
    buffer_idx=INT,
    selected_idx=INT,
    input_box_encodings=TFLITE_QUANTIZATION_PARAMS,
    input_class_predictions=TFLITE_QUANTIZATION_PARAMS,
    input_anchors=TFLITE_QUANTIZATION_PARAMS,
)

BOX = 4
"""Coordinates of a box."""

Floats = npt.NDArray[np.float32]


class DetectionParameters(NamedTuple):
    """The custom options."""

    max_detections: int
    max_classes_per_detection: int
    detections_per_class: int
    use_regular_nms: bool
    nms_score_threshold: np.float32
    nms_iou_threshold: np.float32
    num_classes: int
    scales: tuple[float, ...]

    @classmethod
    def of(cls, custom_options: memoryview) -> DetectionParameters:
        """Parse the options; raises `OperatorError` for invalid values."""
        options = FlexbufferMap(custom_options)
        parameters = cls(
            max_detections=options.as_int32("max_detections"),
            max_classes_per_detection=options.as_int32("max_classes_per_detection"),
            detections_per_class=options.as_int32("detections_per_class", 100),
            use_regular_nms=options.as_bool("use_regular_nms"),
            nms_score_threshold=np.float32(options.as_float("nms_score_threshold")),
            nms_iou_threshold=np.float32(options.as_float("nms_iou_threshold")),
            num_classes=options.as_int32("num_classes"),
            scales=tuple(options.as_float(f"{axis}_scale") for axis in "yxhw"),
        )
        used = "detections_per_class" if parameters.use_regular_nms else "max_classes_per_detection"
        for name in ("max_detections", "num_classes", used):
            if getattr(parameters, name) < 1:
                raise OperatorError(f"has custom option {name} = {getattr(parameters, name)}, must be 1 or more")
        if not 0 < parameters.nms_iou_threshold <= 1:
            reason = f"has custom option nms_iou_threshold = {parameters.nms_iou_threshold}, "
            raise OperatorError(reason + "must be above 0 and at most 1")
        return parameters


def _prepare_detection_postprocess(context: KernelContext, node: Node) -> None:
    node.expect(inputs=3, outputs=4)
    node.op_data = parameters = DetectionParameters.of(node.custom_options)
    encodings, predictions, anchors = (node.input(i) for i in range(3))
    for tensor in (encodings, predictions, anchors):
        require_type(tensor, TensorType.FLOAT32)
    if len(encodings.dims) != 3 or encodings.dims[0] != 1 or encodings.dims[2] < BOX:
        raise shape_error(encodings, f", must be [1, boxes, {BOX} or more]")
    boxes, classes = encodings.dims[1], parameters.num_classes
    if predictions.dims not in ((1, boxes, classes), (1, boxes, classes + 1)):
        raise shape_error(predictions, f", must be [1, {boxes}, {classes}], or one more with a background")
    if len(anchors.dims) != 2 or element_count(anchors) < boxes * BOX:
        raise shape_error(anchors, f", must be [{boxes}, {BOX}]")
    count = parameters.max_detections if parameters.use_regular_nms else 1
    for output, needed in zip((node.eval_output(i) for i in range(4)), (BOX * count, count, count, 1)):
        require_type(output, TensorType.FLOAT32)
        if element_count(output) < needed:
            raise shape_error(output, f", must have room for {needed} elements")


def _requests_detection(node: Node) -> Iterator[Request]:
    parameters = DetectionParameters.of(node.custom_options)
    encodings, predictions = node.input(0), node.input(1)
    boxes, detections, classes = encodings.dims[1], parameters.max_detections, parameters.num_classes
    yield from tensors(3, 0)(node)
    yield ScratchBuffer("active candidate", boxes)
    yield ScratchBuffer("decoded boxes", boxes * BOX * 4)
    yield ScratchBuffer("scores", predictions.dims[1] * predictions.dims[2] * 4)
    yield ScratchBuffer("score buffer", boxes * 4)
    yield ScratchBuffer("keep scores", boxes * 4)
    yield ScratchBuffer("scores after regular suppression", detections * boxes * 4)
    yield ScratchBuffer("sorted values", detections * boxes * 4)
    yield ScratchBuffer("keep indices", boxes * 4)
    yield ScratchBuffer("sorted indices", detections * boxes * 4)
    yield ScratchBuffer("buffer", max(classes, detections) * boxes * 4)
    yield ScratchBuffer("selected", min(boxes, detections) * boxes * 4)


def _decode_center_size_boxes(encodings: Floats, anchors: Floats, scales: tuple[float, ...]) -> Floats:
    """DecodeCenterSizeBoxes, in double: (y, x, h, w) relative to anchors become (ymin, xmin, ymax, xmax)."""
    encoded, anchor = encodings / np.array(scales, np.float64), anchors.astype(np.float64)
    centers = (encoded[:, :2] * anchor[:, 2:] + anchor[:, :2]).astype(np.float32)
    halves = (0.5 * np.exp(encoded[:, 2:]) * anchor[:, 2:]).astype(np.float32)
    boxes = np.concatenate([centers - halves, centers + halves], axis=1)
    is_bad = np.any(boxes[:, :2] >= boxes[:, 2:], axis=1)
    if is_bad.any():
        raise OperatorError(f"box {int(is_bad.argmax())} is empty; its ends must be greater than its starts")
    return boxes


def _decreasing_arg_sort(scores: Floats) -> npt.NDArray[np.intp]:
    """DecreasingArgSort: equal scores stay in their order."""
    return np.argsort(-scores, kind="stable")


def _intersection_over_union(box: Floats, boxes: Floats) -> Floats:
    """ComputeIntersectionOverUnion of a box with each of several others."""
    extents = np.minimum(box[2:], boxes[:, 2:]) - np.maximum(box[:2], boxes[:, :2])
    intersections = np.prod(np.maximum(extents, np.float32(0)), axis=1, dtype=np.float32)
    area = np.prod(box[2:] - box[:2], dtype=np.float32)
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1, dtype=np.float32)
    ratios: Floats = intersections / (area + areas - intersections)
    return np.where((area > 0) & (areas > 0), ratios, np.float32(0))


def _non_max_suppression(boxes: Floats, scores: Floats, parameters: DetectionParameters, limit: int) -> list[int]:
    """NonMaxSuppressionSingleClass: the best boxes, at most `most`, that do not overlap better ones too much."""
    kept = np.flatnonzero(scores >= parameters.nms_score_threshold)
    candidates = kept[_decreasing_arg_sort(scores[kept])]
    selected: list[int] = []
    while len(candidates) and len(selected) < limit:
        best, candidates = candidates[0], candidates[1:]
        selected.append(int(best))
        overlaps = _intersection_over_union(boxes[best], boxes[candidates])
        candidates = candidates[~(overlaps > parameters.nms_iou_threshold)]
    return selected


Detections = list[tuple[int, int, int]]
"""(index in the outputs, box, label)."""


def _fast(boxes: Floats, scores: Floats, parameters: DetectionParameters) -> Detections:
    """NonMaxSuppressionMultiClassFast. As in TFLM, indices have gaps if a box has several classes."""
    per_box = min(parameters.max_classes_per_detection, parameters.num_classes)
    detections: Detections = []
    for box in _non_max_suppression(boxes, scores.max(axis=1), parameters, parameters.max_detections):
        for rank, label in enumerate(_decreasing_arg_sort(scores[box])[:per_box]):
            detections.append((per_box * len(detections) + rank, box, int(label)))
    return detections


def _regular(boxes: Floats, scores: Floats, parameters: DetectionParameters) -> Detections:
    """NonMaxSuppressionMultiClassRegular."""
    best: list[tuple[int, int]] = []
    for label in range(parameters.num_classes):
        selected = _non_max_suppression(boxes, scores[:, label], parameters, parameters.detections_per_class)
        best += [(box, label) for box in selected]
        best.sort(key=lambda detection: -scores[detection])  # stable: equal scores keep their order
        del best[parameters.max_detections :]
    return [(place, box, label) for place, (box, label) in enumerate(best)]


def _bind_detection_postprocess(context: KernelContext, node: Node) -> Run:
    parameters: DetectionParameters = node.op_data
    encodings, predictions, anchors = (node.eval_input(i).elements for i in range(3))
    count = encodings.shape[1]
    anchor_boxes = anchors.reshape(-1)[: count * BOX].reshape(count, BOX)
    suppress = _regular if parameters.use_regular_nms else _fast
    outputs = [node.eval_output(i).elements.reshape(-1) for i in range(4)]
    room = min(len(outputs[0]) // BOX, len(outputs[1]), len(outputs[2]))

    def run() -> None:
        boxes = _decode_center_size_boxes(encodings[0, :, :BOX], anchor_boxes, parameters.scales)
        scores = predictions[0, :, -parameters.num_classes :].copy()  # skip the background class, which comes first
        detections = suppress(boxes, scores, parameters)
        for output in outputs:
            output.fill(0)
        for place, box, label in detections:
            if place >= room:
                raise OperatorError(f"the outputs have room for {room} detections, {place + 1} are needed")
            outputs[0][place * BOX : (place + 1) * BOX] = boxes[box]
            outputs[1][place], outputs[2][place] = label, scores[box, label]
        outputs[3][0] = len(detections)

    return run


DETECTION_POSTPROCESS = Registration(
    "TFLite_Detection_PostProcess",
    _bind_detection_postprocess,
    _prepare_detection_postprocess,
    op_data=OP_DATA_DETECTION_POSTPROCESS,
    requests=_requests_detection,
    types=(TensorType.FLOAT32,),
)
