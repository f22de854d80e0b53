"""TFLite_Detection_PostProcess: boxes from what an object detector gives, without those that overlap better ones.

Boxes are decoded relative to anchors. Then either the best boxes are chosen by their best score, each with its best few
classes ("fast"), or boxes are chosen for each class by itself, and the best of all are kept ("regular").
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.host_memory import kept
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.kernels.requests import NodeView, Request, ScratchBuffer, tensors
from tflm.kernels.support.checks import AnyTensor, element_count, require_type
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
"""Coordinates of a box, and the bytes of each of them."""

Floats = npt.NDArray[np.float32]


class Parameters(NamedTuple):
    """The custom options."""

    max_detections: int
    classes_per_detection: int
    detections_per_class: int
    is_regular: bool
    score_threshold: np.float32
    overlap_threshold: np.float32
    num_classes: int
    scales: tuple[float, ...]

    @classmethod
    def of(cls, custom_options: memoryview) -> Parameters:
        """What the options say; refuses what nothing can be detected with."""
        options = FlexbufferMap(custom_options)
        parameters = cls(
            max_detections=options.as_int32("max_detections"),
            classes_per_detection=options.as_int32("max_classes_per_detection"),
            detections_per_class=options.as_int32("detections_per_class", 100),
            is_regular=options.as_bool("use_regular_nms"),
            score_threshold=np.float32(options.as_float("nms_score_threshold")),
            overlap_threshold=np.float32(options.as_float("nms_iou_threshold")),
            num_classes=options.as_int32("num_classes"),
            scales=tuple(options.as_float(f"{axis}_scale") for axis in "yxhw"),
        )
        used = "detections_per_class" if parameters.is_regular else "max_classes_per_detection"
        counts = {
            "max_detections": parameters.max_detections,
            "num_classes": parameters.num_classes,
            used: parameters.detections_per_class if parameters.is_regular else parameters.classes_per_detection,
        }
        for name, count in counts.items():
            if count < 1:
                raise OperatorError(f"has custom option {name} = {count}, must be 1 or more")
        if not 0 < parameters.overlap_threshold <= 1:
            reason = f"has custom option nms_iou_threshold = {parameters.overlap_threshold}, "
            raise OperatorError(reason + "must be over 0 and not over 1")
        return parameters


def _prepare_detection_postprocess(context: KernelContext, node: Node) -> None:
    node.expect(inputs=3, outputs=4)
    node.op_data = parameters = Parameters.of(node.custom_options)
    encodings, predictions, anchors = (context.input_tensor(node, i) for i in range(3))
    for tensor in (encodings, predictions, anchors):
        require_type(tensor, TensorType.FLOAT32)
    _check_inputs(parameters, encodings, predictions, anchors)
    _check_outputs(context, node, parameters)


def _requests(node: NodeView) -> Iterator[Request]:
    parameters = Parameters.of(node.custom_options)
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


def _check_inputs(parameters: Parameters, encodings: AnyTensor, predictions: AnyTensor, anchors: AnyTensor) -> None:
    if len(encodings.dims) != 3 or encodings.dims[0] != 1 or encodings.dims[2] < BOX:
        reason = f"has shape {list(encodings.dims)}, must be [1, boxes, {BOX} or more]"
        raise OperatorError(reason, tensor=encodings.name)
    boxes, classes = encodings.dims[1], parameters.num_classes
    if predictions.dims not in ((1, boxes, classes), (1, boxes, classes + 1)):
        reason = f"has shape {list(predictions.dims)}, must be [1, {boxes}, {classes}], or one more with a background"
        raise OperatorError(reason, tensor=predictions.name)
    if len(anchors.dims) != 2 or element_count(anchors) < boxes * BOX:
        raise OperatorError(f"has shape {list(anchors.dims)}, must be [{boxes}, {BOX}]", tensor=anchors.name)


def _check_outputs(context: KernelContext, node: Node, parameters: Parameters) -> None:
    count = parameters.max_detections if parameters.is_regular else 1
    for i, needed in enumerate((BOX * count, count, count, 1)):
        output = context.get_eval_output(node, i)
        require_type(output, TensorType.FLOAT32)
        if element_count(output) < needed:
            reason = f"has shape {list(output.dims)}, must have room for {needed} elements"
            raise OperatorError(reason, tensor=output.name)


class Ranking:
    """Orders scores from the highest to the lowest, equal ones by their place, in memory of its own."""

    def __init__(self, count: int):
        self._places = kept(np.arange(count, dtype=np.int64))
        self._scores = kept(np.zeros(count, np.float32))
        self._bits = self._scores.view(np.int32)
        self._signs = kept(np.zeros(count, np.int32))
        self._keys = kept(np.zeros(count, np.int64))
        self.order = kept(np.zeros(count, np.intp))

    def sort(self, scores: Floats) -> None:
        """Sets `order` to the places of the scores. NaNs come first or last, by their sign."""
        np.add(scores, np.float32(0), out=self._scores)  # there is no -0 then
        np.right_shift(self._bits, np.int32(31), out=self._signs)
        np.bitwise_and(self._signs, np.int32(2**31 - 1), out=self._signs)
        np.bitwise_xor(self._bits, self._signs, out=self._bits)  # integers in the order of the floats
        np.invert(self._bits, out=self._bits)
        np.copyto(self._keys, self._bits)
        np.left_shift(self._keys, np.int64(32), out=self._keys)
        np.bitwise_or(self._keys, self._places, out=self._keys)
        self._keys.sort()
        np.bitwise_and(self._keys, np.int64(2**32 - 1), out=self.order)


class Suppression:
    """Chooses boxes by their scores, and leaves out those that overlap one that was chosen before.

    Args:
        boxes: four rows, ymin, xmin, ymax and xmax, each with an element a box.
    """

    def __init__(self, boxes: Floats, parameters: Parameters):
        self._boxes = boxes
        count = boxes.shape[1]
        self._score_threshold, self._overlap_threshold = parameters.score_threshold, parameters.overlap_threshold
        self._ranking = Ranking(count)
        self._ranked = kept(np.zeros((BOX, count), np.float32))
        self._work = kept(np.zeros((4, count), np.float32))
        self._area = kept(np.zeros(count, np.float32))
        self._active = kept(np.zeros(count, bool))
        self._is_flat = kept(np.zeros(count, bool))
        self._is_over = kept(np.zeros(count, bool))

    def select(self, scores: Floats, most: int) -> list[int]:
        """The boxes chosen, the best first, `most` at the most."""
        order, active = self._ranking.order, self._active
        np.greater_equal(scores, self._score_threshold, out=active)
        count = int(np.count_nonzero(active))
        np.copyto(self._work[0], scores)
        np.invert(active, out=active)
        np.copyto(self._work[0], np.float32(-math.inf), where=active)
        self._ranking.sort(self._work[0])
        active[:count], active[count:] = True, False
        for ranked, coordinates in zip(self._ranked, self._boxes):
            np.take(coordinates, order, out=ranked, mode="clip")
        self._measure()
        selected: list[int] = []
        while len(selected) < most:
            best = int(active.argmax())
            if not active[best]:
                break
            selected.append(int(order[best]))
            active[best] = False
            self._suppress(best)
        return selected

    def _measure(self) -> None:
        ymin, xmin, ymax, xmax = self._ranked
        width = self._work[0]
        np.subtract(ymax, ymin, out=self._area)
        np.subtract(xmax, xmin, out=width)
        np.multiply(self._area, width, out=self._area)
        np.less_equal(self._area, np.float32(0), out=self._is_flat)

    def _suppress(self, best: int) -> None:
        """Leave out all that overlap the box of rank `best` by more than the threshold."""
        if self._is_flat[best]:
            return
        ymin, xmin, ymax, xmax = self._ranked
        height, width, low, union = self._work
        for low_ends, high_ends, extent in ((ymin, ymax, height), (xmin, xmax, width)):
            np.maximum(low_ends, low_ends[best], out=low)
            np.minimum(high_ends, high_ends[best], out=extent)
            np.subtract(extent, low, out=extent)
            np.maximum(extent, np.float32(0), out=extent)
        np.multiply(height, width, out=height)
        np.add(self._area, self._area[best], out=union)
        np.subtract(union, height, out=union)
        np.divide(height, union, out=height)
        np.greater(height, self._overlap_threshold, out=self._is_over)
        np.greater(self._is_over, self._is_flat, out=self._is_over)
        np.greater(self._active, self._is_over, out=self._active)


class Detector:
    """An operator that is bound: the views of its tensors, and its working memory."""

    def __init__(self, context: KernelContext, node: Node):
        self.parameters: Parameters = node.op_data
        encodings, predictions, anchors = (context.get_eval_input(node, i).elements for i in range(3))
        boxes, classes = encodings.shape[1], self.parameters.num_classes
        self._encodings = encodings[0, :, :BOX]
        self._anchors = anchors.reshape(-1)[: boxes * BOX].reshape(boxes, BOX)
        self._label_offset = predictions.shape[2] - classes
        self._scores: Floats = predictions[0, :, self._label_offset :]
        outputs = [context.get_eval_output(node, i).elements.reshape(-1) for i in range(4)]
        self._outputs = outputs
        self._box_output = outputs[0][: len(outputs[0]) // BOX * BOX].reshape(-1, BOX)
        self._room = min(len(self._box_output), len(outputs[1]), len(outputs[2]))
        self._decoded = kept(np.zeros((BOX, boxes), np.float32))
        self._work = kept(np.zeros((3, boxes), np.float64))
        self._half = kept(np.zeros((2, boxes), np.float32))
        self._is_bad = kept(np.zeros(boxes, bool))
        self._suppression = Suppression(self._decoded, self.parameters)
        self._column = kept(np.zeros(boxes, np.float32))
        self._class_ranking = Ranking(classes)

    def run(self) -> None:
        """Decode, choose, and write the outputs; what is not written is 0."""
        self._decode()
        for output in self._outputs:
            output.fill(0)
        count = self._regular() if self.parameters.is_regular else self._fast()
        self._outputs[3][0] = count

    def _decode(self) -> None:
        """Boxes are y, x, h, w, in parts of the size of their anchors."""
        value, size, place = self._work
        ymin, xmin, ymax, xmax = self._decoded
        for axis, low, high in ((0, ymin, ymax), (1, xmin, xmax)):
            center, half = self._half
            self._scaled(axis)
            np.copyto(size, self._anchors[:, axis + 2])
            np.multiply(value, size, out=value)
            np.copyto(place, self._anchors[:, axis])
            np.add(value, place, out=value)
            np.copyto(center, value, casting="unsafe")
            self._scaled(axis + 2)
            np.exp(value, out=value)
            np.multiply(value, 0.5, out=value)
            np.multiply(value, size, out=value)
            np.copyto(half, value, casting="unsafe")
            np.subtract(center, half, out=low)
            np.add(center, half, out=high)
            np.greater_equal(low, high, out=self._is_bad)
            if self._is_bad.any():
                raise OperatorError(f"box {int(self._is_bad.argmax())} has no extent; all must end beyond their begin")

    def _scaled(self, column: int) -> None:
        np.copyto(self._work[0], self._encodings[:, column])
        np.divide(self._work[0], self.parameters.scales[column], out=self._work[0])

    def _fast(self) -> int:
        """Numbers its outputs as TFLM does, which leaves gaps where a box has several classes."""
        per_box = min(self.parameters.classes_per_detection, self.parameters.num_classes)
        np.max(self._scores, axis=1, out=self._column)
        count = 0
        for box in self._suppression.select(self._column, self.parameters.max_detections):
            scores = self._scores[box]
            self._class_ranking.sort(scores)
            for rank in range(per_box):
                label = int(self._class_ranking.order[rank])
                self._write(per_box * count + rank, box, label, scores[label])
                count += 1
        return count

    def _regular(self) -> int:
        best: list[tuple[np.float32, int, int]] = []
        for label in range(self.parameters.num_classes):
            np.copyto(self._column, self._scores[:, label])
            for box in self._suppression.select(self._column, self.parameters.detections_per_class):
                best.append((self._column[box], box, label))
            best.sort(key=lambda detection: -detection[0])  # stable: of equal ones, the earlier stays first
            del best[self.parameters.max_detections :]
        for i, (score, box, label) in enumerate(best):
            self._write(i, box, label, score)
        return len(best)

    def _write(self, index: int, box: int, label: int, score: np.float32) -> None:
        if index >= self._room:
            raise OperatorError(f"the outputs have room for {self._room} detections, {index + 1} are needed")
        self._box_output[index] = self._decoded[:, box]
        self._outputs[1][index], self._outputs[2][index] = label, score


def _bind_detection_postprocess(context: KernelContext, node: Node) -> Run:
    return Detector(context, node).run


DETECTION_POSTPROCESS = Registration(
    "TFLite_Detection_PostProcess",
    _bind_detection_postprocess,
    _prepare_detection_postprocess,
    op_data=OP_DATA_DETECTION_POSTPROCESS,
    requests=_requests,
    types=(TensorType.FLOAT32,),
)
