"""TFLite_Detection_PostProcess: boxes relative to anchors, and non-maximum suppression; BasicClassifier.

Boxes are not sorted: the best of the remaining boxes is selected repeatedly, the first one if scores are equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tflm.compiler.intrinsics import float32_from
from tflm.compiler.language import DONE, REFUSED, Float32s, Float64s, Int32s, Step, UInt8s, inlined, kernel
from tflm.compiler.processor import Profile
from tflm.delegates.compiled.bands import work_array
from tflm.delegates.compiled.casts import as_float32, as_float64
from tflm.delegates.compiled.signal import clear_steps
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.custom import BOX, DetectionParameters

NOTHING = -1


@kernel
def decode_boxes(
    encodings: Float32s, anchors: Float32s, scales: Float64s, boxes: Float32s, count: int, step: int
) -> int:
    """Convert (y, x, h, w) relative to anchors to (ymin, xmin, ymax, xmax); no box may be empty.

    Args:
        step: number of elements of an encoding.
    """
    empty = 0
    for i in range(count):
        for k in range(2):
            anchor, extent = as_float64(anchors[BOX * i + k]), as_float64(anchors[BOX * i + 2 + k])
            center = as_float32(as_float64(encodings[i * step + k]) / scales[k] * extent + anchor)
            power = np.exp(as_float64(encodings[i * step + 2 + k]) / scales[2 + k])
            half = as_float32(0.5 * power * extent)
            boxes[BOX * i + k] = center - half
            boxes[BOX * i + 2 + k] = center + half
            empty += boxes[BOX * i + k] >= boxes[BOX * i + 2 + k]
    return REFUSED if empty else DONE


@inlined
def area_of(box: Any) -> Any:
    """Return height times width."""
    return (box[2] - box[0]) * (box[3] - box[1])


@inlined
def overlap_of(box: Any, other: Any) -> Any:
    """Return the intersection over union of two boxes."""
    zero = as_float32(0)
    area, other_area = area_of(box), area_of(other)
    if not (area > 0 and other_area > 0):
        return zero
    height = min(box[2], other[2]) - max(box[0], other[0])
    width = min(box[3], other[3]) - max(box[1], other[1])
    intersection = (zero if height < zero else height) * (zero if width < zero else width)
    return intersection / (area + other_area - intersection)


@inlined
def best_of(scores: Any, left: Any, count: int, step: int) -> int:
    """Return the index of the highest score among the remaining ones.

    Args:
        step: step from one score to the next.
    """
    best = NOTHING
    for i in range(count):
        if left[i] and (best == NOTHING or scores[i * step] > scores[max(best, 0) * step]):
            best = i
    return best


@inlined
def suppress(boxes: Any, left: Any, best: int, count: int, largest_overlap: Any) -> None:
    """Remove a box, and those that overlap it too much, from the remaining ones."""
    left[best] = 0
    box = float32_from(boxes, BOX * best)
    for i in range(count):
        if left[i] and overlap_of(box, float32_from(boxes, BOX * i)) > largest_overlap:
            left[i] = 0


@inlined
def leave(scores: Any, left: Any, count: int, step: int, min_score: Any) -> None:
    """Keep the boxes whose score reaches the minimum."""
    for i in range(count):
        left[i] = scores[i * step] >= min_score


@kernel
def select_boxes(
    boxes: Float32s,
    scores: Float32s,
    thresholds: Float32s,
    largest: Float32s,
    left: UInt8s,
    y_boxes: Float32s,
    y_classes: Float32s,
    y_scores: Float32s,
    y_count: Float32s,
    count: int,
    step: int,
    classes: int,
    classes_of_box: int,
    max_detections: int,
    room: int,
) -> int:
    """Select boxes by their highest scores, and the best classes of each. As in TFLM, the results have gaps between
    them.

    Args:
        scores: scores of all classes of a box, followed by those of the next box after `step` elements.
        thresholds: minimum score, and maximum overlap.
        max_detections: maximum number of boxes.
        room: number of detections that fit in the outputs.
    """
    for i in range(count):
        largest[i] = scores[i * step]
        for k in range(1, classes):
            score = scores[i * step + k]
            if score > largest[i] or score != score:
                largest[i] = score
    leave(largest, left, count, 1, thresholds[0])
    found = 0
    for _ in range(max_detections):
        best = best_of(largest, left, count, 1)
        if best == NOTHING:
            break
        suppress(boxes, left, best, count, thresholds[1])
        chosen = NOTHING
        for rank in range(classes_of_box):
            previous, chosen = chosen, NOTHING
            for k in range(classes):
                score = scores[best * step + k]
                last = scores[best * step + max(previous, 0)]
                follows = previous == NOTHING or score < last or (score == last and k > previous)
                if follows and (chosen == NOTHING or score > scores[best * step + max(chosen, 0)]):
                    chosen = k
            place = classes_of_box * found + rank
            if place >= room:
                return REFUSED
            for k in range(BOX):
                y_boxes[BOX * place + k] = boxes[BOX * best + k]
            y_classes[place] = as_float32(chosen)
            y_scores[place] = scores[best * step + max(chosen, 0)]
            found += 1
    y_count[0] = as_float32(found)
    return DONE


@kernel
def select_boxes_of_classes(
    boxes: Float32s,
    scores: Float32s,
    thresholds: Float32s,
    left: UInt8s,
    found_boxes: Int32s,
    found_classes: Int32s,
    y_boxes: Float32s,
    y_classes: Float32s,
    y_scores: Float32s,
    y_count: Float32s,
    count: int,
    step: int,
    classes: int,
    max_of_class: int,
    max_detections: int,
    room: int,
) -> int:
    """Select the best boxes of all classes, after suppression within each class; arguments as in `select_boxes`."""
    found = 0
    for k in range(classes):
        of_class = float32_from(scores, k)
        leave(of_class, left, count, step, thresholds[0])
        for _ in range(max_of_class):
            best = best_of(of_class, left, count, step)
            if best == NOTHING:
                break
            suppress(boxes, left, best, count, thresholds[1])
            place = found
            while place > 0:
                if scores[found_boxes[place - 1] * step + found_classes[place - 1]] >= of_class[best * step]:
                    break
                place -= 1
            if place < max_detections:
                found = min(found + 1, max_detections)
                for i in range(found - 1, place, -1):
                    found_boxes[i], found_classes[i] = found_boxes[i - 1], found_classes[i - 1]
                found_boxes[place], found_classes[place] = best, k
    if found > room:
        return REFUSED
    for i in range(found):
        for k in range(BOX):
            y_boxes[BOX * i + k] = boxes[BOX * found_boxes[i] + k]
        y_classes[i] = as_float32(found_classes[i])
        y_scores[i] = scores[found_boxes[i] * step + found_classes[i]]
    y_count[0] = as_float32(found)
    return DONE


def _bind_detection(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    parameters: DetectionParameters = node.op_data
    encodings, predictions, anchors = (node.eval_input(i).elements for i in range(3))
    outputs = [node.eval_output(i).elements.reshape(-1) for i in range(4)]
    count, classes = encodings.shape[1], parameters.num_classes
    boxes = work_array(BOX * count, np.float32)
    scales = np.array(parameters.scales, np.float64)
    decode = decode_boxes.step(
        encodings=encodings, anchors=anchors, scales=scales, boxes=boxes, count=count, step=encodings.shape[2]
    )
    arrays: dict[str, Any] = {
        "boxes": boxes,
        "scores": predictions.reshape(-1)[predictions.shape[2] - classes :],  # without the first class, the background
        "thresholds": np.array([parameters.nms_score_threshold, parameters.nms_iou_threshold], np.float32),
        "left": work_array(count, np.uint8),
        **dict(zip(("y_boxes", "y_classes", "y_scores", "y_count"), outputs)),
        "count": count,
        "step": predictions.shape[2],
        "classes": classes,
        "max_detections": parameters.max_detections,
        "room": min(outputs[0].size // BOX, outputs[1].size, outputs[2].size),
    }
    if parameters.use_regular_nms:
        found = {name: work_array(parameters.max_detections, np.int32) for name in ("found_boxes", "found_classes")}
        max_of_class = min(parameters.detections_per_class, count)
        select = select_boxes_of_classes.step(**arrays, **found, max_of_class=max_of_class)
    else:
        largest = work_array(count, np.float32)
        classes_of_box = min(parameters.max_classes_per_detection, classes)
        select = select_boxes.step(**arrays, largest=largest, classes_of_box=classes_of_box)
    return [decode, *clear_steps(*outputs), select]


@kernel
def classify(
    posteriors: Int32s, classes: Int32s, thresholds: Int32s, reached: UInt8s, chosen: Int32s, size: int, count: int
) -> int:
    """Look up `count` of the `size` posteriors."""
    outside = 0
    for i in range(count):
        outside += classes[i] < 0 or classes[i] >= size
    if outside:
        return REFUSED
    for i in range(count):
        posterior = posteriors[classes[i]]
        reached[i] = posterior >= thresholds[i]
        chosen[i] = posterior
    return DONE


def _bind_classifier(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    posteriors, classes, thresholds = (node.eval_input(i).elements.reshape(-1) for i in range(3))
    reached, chosen = (node.eval_output(i).elements for i in range(2))
    inputs = {"posteriors": posteriors, "classes": classes, "thresholds": thresholds}
    outputs = {"reached": reached.view(np.uint8), "chosen": chosen}
    return [classify.step(**inputs, **outputs, size=posteriors.size, count=classes.size)]


BINDINGS = {"BasicClassifier": _bind_classifier, "TFLite_Detection_PostProcess": _bind_detection}
