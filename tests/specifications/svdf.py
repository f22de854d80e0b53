"""SVDF of int8 on its first run: features into the newest column of the state, filtered over time, summed by rank."""

from __future__ import annotations

from .example import Example, clamp
from .fixed_point import multiply, quantize_multiplier, wrap


def svdf(example: Example) -> list[int]:
    """Each unit is the sum of `rank` filters."""
    x, features, times = example.input(0), example.input(1), example.input(2)
    state, y, rank = example.input(4), example.output, example.options.rank
    filters, memory = times.shape
    of_state = quantize_multiplier(x.scale * features.scale / state.scale)
    of_output = quantize_multiplier(state.scale * times.scale / y.scale)
    low, high = (-128, 127) if state.type.name == "INT8" else (-(2**15), 2**15 - 1)
    result = []
    for batch in range(x.shape[0]):
        totals = []
        for f in range(filters):
            total = sum(features[f, k] * (x[batch, k] - x.zero_point) for k in range(x.shape[1]))
            newest = clamp(multiply(wrap(total), of_state), (low, high)) + state.zero_point
            # It is clamped before the zero point is added, so that it may wrap around in the state.
            columns = [state[batch, f * memory + m] for m in range(1, memory)]
            columns.append((newest - low) % (high - low + 1) + low)
            totals.append(sum(times[f, m] * (columns[m] - state.zero_point) for m in range(memory)))
        for unit in range(filters // rank):
            bias = int(example.input(3).values.reshape(-1)[unit]) if example.has(3) else 0
            total = sum(totals[unit * rank : (unit + 1) * rank]) + bias
            result.append(clamp(multiply(wrap(total), of_output) + y.zero_point, (-128, 127)))
    return result
