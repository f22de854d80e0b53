"""TFLite_Detection_PostProcess: non-maximum suppression of an object detector's boxes.

Boxes are decoded relative to anchors. "Fast" non-maximum suppression selects boxes by their best score, and reports the
best classes of each; "regular" suppression selects boxes for each class separately, and keeps the best of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import Registration, Run
from tflm.kernels.requests import Request, ScratchBuffer, tensors
from tflm.kernels.support.checks import element_count, require_type
from tflm.memory.tensor import TFLITE_QUANTIZATION_PARAMS
from tflm.schema.enums import TensorType
from tflm.schema.flexbuffer import FlexbufferMap
from tflm.targets import BOOL, FLOAT, INT, Struct

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
        reason = f"has shape {list(encodings.dims)}, must be [1, boxes, {BOX} or more]"
        raise OperatorError(reason, tensor=encodings.name)
    boxes, classes = encodings.dims[1], parameters.num_classes
    if predictions.dims not in ((1, boxes, classes), (1, boxes, classes + 1)):
        reason = f"has shape {list(predictions.dims)}, must be [1, {boxes}, {classes}], or one more with a background"
        raise OperatorError(reason, tensor=predictions.name)
    if len(anchors.dims) != 2 or element_count(anchors) < boxes * BOX:
        raise OperatorError(f"has shape {list(anchors.dims)}, must be [{boxes}, {BOX}]", tensor=anchors.name)
    count = parameters.max_detections if parameters.use_regular_nms else 1
    for output, needed in zip((node.eval_output(i) for i in range(4)), (BOX * count, count, count, 1)):
        require_type(output, TensorType.FLOAT32)
        if element_count(output) < needed:
            reason = f"has shape {list(output.dims)}, must have room for {needed} elements"
            raise OperatorError(reason, tensor=output.name)


def _requests(node: Node) -> Iterator[Request]:
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
    requests=_requests,
    types=(TensorType.FLOAT32,),
)
