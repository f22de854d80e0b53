"""Models of products of matrices over batches."""

from __future__ import annotations

from hypothesis import strategies as st

from tflm.schema import quantized
from tflm.testing.drawing import INT8, INT16, Draw, OperatorCase, factors, float32, scales, zero_points
from tflm.testing.operators.declared import DrawnOperator, large, strategy


@strategy("BATCH_MATMUL", invokes=2)
def batch_matmul(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Any batches that broadcast; either side an input or a constant, or swapped."""
    rows, depth, columns = draw(st.integers(1, 6)), draw(st.integers(1, 20)), draw(st.integers(1, 6))
    batches = tuple(draw(st.lists(st.integers(1, 3), max_size=3)))
    swapped = {"adj_x": draw(st.booleans()), "adj_y": draw(st.booleans())}
    constant = draw(st.sampled_from([None, 0, 1]))
    left, right = draw(scales(-12, 2)), draw(scales(-12, 2))
    parameters = [
        quantized(scale, draw(zero_points(INT8)) if model.type == INT8 else 0) if model.type in (INT8, INT16) else None
        for scale in (left, right, float32(left * right * draw(factors(-2, 14))))
    ]
    for i, (matrix, is_swapped) in enumerate(zip(((rows, depth), (depth, columns)), swapped.values())):
        shape = (*draw(_broadcasting(batches)), *(matrix[::-1] if is_swapped else matrix))
        (model.weights if i == constant else model.operand)(shape, parameters[i])
    return model.result(parameters[2], **swapped)


def _broadcasting(batches: tuple[int, ...]) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes that broadcast to `batches` or to less."""
    ones = st.tuples(*(st.sampled_from([size, size, 1]) for size in batches))
    return st.tuples(ones, st.sampled_from([0, 0, len(batches)])).map(lambda pair: pair[0][pair[1] :])


large("BATCH_MATMUL", (2, 64, 512), (2, 512, 256), scales=(0.01,))
