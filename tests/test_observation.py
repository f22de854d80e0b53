"""Tensors that a device shows after a step are those that the C of the step writes, where that writes them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from image_graphs import Images

import tflm
from tflm.c.observation import TensorPlace, observed_steps, tensor_places
from tflm.schema import BuiltinOperator, IfOptions, ModelBuilder, Padding, SplitOptions, TensorType, quantized


def branches() -> tflm.Model:
    """An image whose parts are convolved, and added; a part is an output, too."""
    images = Images(ModelBuilder().subgraph(), (1, 24, 24, 4))
    main = images.main
    pooled = images.pool(images.last, BuiltinOperator.MAX_POOL_2D, (1, 1), (2, 2), Padding.VALID)
    parts = [main.tensor(f"part{i}", (1, 12, 12, 2), TensorType.INT8, quantized(0.05, -3)) for i in "ab"]
    axis = main.constant("axis", np.array(3, np.int32))
    main.operator(BuiltinOperator.SPLIT, [axis, pooled], parts, SplitOptions(num_splits=2))
    images.shapes[parts[0]] = (1, 12, 12, 2)
    narrow = images.convolution(images.convolution(parts[0], 16), 2)
    main.output(images.add(narrow, narrow))
    main.output(parts[1])
    return tflm.Model(main.builder.build())


def conditional() -> tflm.Model:
    """Two subgraphs, of which one computes the output; their tensors have the numbers of other ones of the first."""
    builder = ModelBuilder()
    main = builder.subgraph()
    test, x = main.input("test", (1,), TensorType.BOOL), main.input("x", (40,), TensorType.INT8, quantized(0.5))
    y = main.tensor("y", (40,), TensorType.INT8, quantized(0.5))
    main.operator(BuiltinOperator.IF, [test, x], [y], IfOptions(then_subgraph_index=1, else_subgraph_index=2))
    main.output(y)
    for _ in range(2):
        branch = builder.subgraph()
        a = branch.input("a", (40,), TensorType.INT8, quantized(0.5))
        b, c = (branch.tensor(name, (40,), TensorType.INT8, quantized(0.5)) for name in "bc")
        branch.operator(BuiltinOperator.RELU, [a], [b])
        branch.operator(BuiltinOperator.RELU, [b], [c])
        branch.output(c)
    return tflm.Model(builder.build())


def has_address(text: str, place: TensorPlace, is_split: bool) -> bool:
    """Whether C has the address of a tensor."""
    base = rf"\bbase_{place.memory}\b" if is_split else r"\bbase\b"
    return (
        re.search(rf"{base} \+ {place.offset}\b" if place.offset else rf"{base}(?! \+)", " ".join(text.split()))
        is not None
    )


def steps_of(text: str) -> dict[tuple[int, int], str]:
    """The first and the last step of each case of `net_step`, with its statements; none of stages."""
    text = text[text.index("net_step(") :]
    cases = {
        (int(step),) * 2: body for step, body in re.findall(r"case (\d+):\n(.*?)\n        break;", text, re.DOTALL)
    }
    stages = re.findall(r"step >= (\d+) && step < (\d+)", text)
    return {**cases, **{(int(first), int(end) - 1): "" for first, end in stages}}


@pytest.mark.parametrize(
    ("model", "options", "is_split"),
    [
        (branches(), {"optimize": "ram"}, False),
        (branches(), {"memories": {"fast": 3000, "slow": 9000}}, True),
        (conditional(), {}, False),
    ],
)
def test_outputs_are_where_the_c_of_their_steps_writes_them(
    model: tflm.Model, options: dict[str, Any], is_split: bool
) -> None:
    """Of a stage, only the output of the last operator is shown, where the next operator reads it."""
    compiled = tflm.compile_model(model, "net", **options)
    text, main = compiled.files["net.c"], model.subgraphs[0]
    places, tables = tensor_places(compiled.program), main.tensors or []
    assert len(compiled.stages) == (options.get("optimize") == "ram")
    for side, tensors in (("input", main.inputs or ()), ("output", main.outputs or ())):
        for number, tensor in enumerate(tensors):
            (body,) = re.findall(rf"net_{side}_{number}\([^)]*\)\n{{(.*?)\n}}", text, re.DOTALL)
            assert has_address(body.partition("return")[2], places[tensor], is_split)
    observed, steps = list(observed_steps(compiled.program)), steps_of(text)
    assert [(each.first, each.last) for each in observed] == sorted(steps)
    for each in observed:
        body = steps[each.first, each.last]
        for place in each.outputs:
            shape = tables[place.tensor].shape or ()
            title = f"{tables[place.tensor].name} ({'x'.join(map(str, shape))})"
            assert places[place.tensor] == place
            assert place.bytes == np.prod(shape)
            assert not body or (title in body and has_address(body, place, is_split))
        if not body:
            (place,) = each.outputs
            assert (place.tensor,) == (main.operators or [])[compiled.stages[0].end - 1].outputs
            assert has_address(steps[each.last + 1, each.last + 1], place, is_split)
    shown = {place.tensor for each in observed for place in each.outputs}
    assert places.keys() == {*shown, *(main.inputs or ())}


def test_rows_that_are_fed_are_shown_nowhere() -> None:
    images = Images(ModelBuilder().subgraph(), (1, 6, 6, 4))
    images.main.output(images.pool(images.last, BuiltinOperator.MAX_POOL_2D, (1, 1), (1, 1), Padding.VALID))
    compiled = tflm.compile_model(tflm.Model(images.main.builder.build()), feed_rows=2)
    assert images.main.table.inputs[0] not in tensor_places(compiled.program)
