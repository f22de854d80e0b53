"""The page of `tflm arena --html`, in a browser without a screen."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from example_models import INT8_MODEL
from hypothesis import example, given
from hypothesis import strategies as st
from sampling import some
from test_cli import figures, run

from tflm.application import arena_plot
from tflm.schema import (
    BuiltinOperator,
    ConcatenationOptions,
    FullyConnectedOptions,
    ModelBuilder,
    ReshapeOptions,
    StridedSliceOptions,
    TensorType,
    VarHandleOptions,
    quantized,
)

SMALLEST_PIXELS = 0.5
"""What a buffer is drawn with at least, whatever the scale; so much may lie over a neighbour."""

Open = Callable[..., Any]
Draw = Callable[..., Path]


@functools.cache
def measured_arena(model: Path) -> Any:
    """Return the command's figures of a model's arena."""
    (measured,) = figures("arena", model)["models"]
    return measured


@pytest.fixture(scope="module")
def draw(tmp_path_factory: pytest.TempPathFactory) -> Draw:
    """Draws a model's plan, once for all tests; returns the page."""

    @functools.cache
    def draw(model: Path, *options: object) -> Path:
        page = tmp_path_factory.mktemp("drawn") / "arena.html"
        answer = run("arena", model, "--html", page, *options)
        assert answer.returncode == 0, answer.stderr
        return page

    return draw


@pytest.fixture
def open_page(browser: Any, draw: Draw) -> Iterator[Open]:
    """Draws a model's plan and opens the page; in the end, nothing was asked of the network and nothing went wrong.

    A test that skips opens no page.
    """
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    messages: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))

    def open(model: Path, *options: object) -> Any:
        page.goto(draw(model, *options).as_uri())
        page.wait_for_selector("rect.buffer")
        return page

    yield open
    page.close()
    assert messages == []
    schemes = [url.partition(":")[0] for url in requests]
    assert schemes == ["file", *["data"] * len(schemes)][: len(schemes)]


@pytest.fixture(scope="module")
def streaming_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve blocks that each keep the last three frames, of eight operators; and four more: a hundred."""
    builder = ModelBuilder("streaming")
    main = builder.subgraph()
    scale = quantized(0.1)

    def tensor(name: str, *shape: int) -> int:
        return main.tensor(name, shape, TensorType.INT8, scale)

    frame = main.input("frame", (1, 1, 8), TensorType.INT8, scale)
    begin, end, ones = (
        main.constant(n, np.array(v, np.int32)) for n, v in zip("bes", ([0, 1, 0], [1, 4, 8], [1, 1, 1]))
    )
    for i in range(12):
        handle = main.tensor(f"handle_{i}", (1,), TensorType.RESOURCE)
        kept, joined, newest = (
            tensor(f"kept_{i}", 1, 3, 8),
            tensor(f"joined_{i}", 1, 4, 8),
            tensor(f"newest_{i}", 1, 3, 8),
        )
        flat, mixed, bent = tensor(f"flat_{i}", 1, 32), tensor(f"mixed_{i}", 1, 8), tensor(f"bent_{i}", 1, 8)
        weights = main.constant(f"weights_{i}", np.eye(8, 32, dtype=np.int8), quantized(0.01))
        main.operator(
            BuiltinOperator.VAR_HANDLE, [], [handle], VarHandleOptions(container="", shared_name=f"frames_{i}")
        )
        main.operator(BuiltinOperator.READ_VARIABLE, [handle], [kept])
        main.operator(BuiltinOperator.CONCATENATION, [kept, frame], [joined], ConcatenationOptions(axis=1))
        main.operator(BuiltinOperator.STRIDED_SLICE, [joined, begin, end, ones], [newest], StridedSliceOptions())
        main.operator(BuiltinOperator.ASSIGN_VARIABLE, [handle, newest], [])
        main.operator(BuiltinOperator.RESHAPE, [joined], [flat], ReshapeOptions(new_shape=(1, 32)))
        main.operator(BuiltinOperator.FULLY_CONNECTED, [flat, weights, -1], [mixed], FullyConnectedOptions())
        frame = tensor(f"frame_{i}", 1, 1, 8)
        main.operator(BuiltinOperator.RESHAPE, [mixed], [frame], ReshapeOptions(new_shape=(1, 1, 8)))
    for i in range(4):
        bent = tensor(f"bent_{i}", 1, 1, 8)
        main.operator(BuiltinOperator.RELU, [frame], [bent])
        frame = bent
    main.output(frame)
    path = tmp_path_factory.mktemp("model") / "streaming.tflite"
    path.write_bytes(builder.build())
    return path


@pytest.fixture(params=some(["person_detect", "streaming"], "streaming"))
def model(request: Any) -> Path:
    """The models whose plans are drawn."""
    if request.param == "streaming":
        path: Path = request.getfixturevalue("streaming_model")
        return path
    corpus: Path = request.getfixturevalue("corpus")
    return corpus / "models" / "person_detect.tflite"


TWO_FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def resize(page: Any, width: int) -> None:
    """Give the page another width, and wait until it is drawn for it: observers of sizes are called once a frame."""
    page.set_viewport_size({"width": width, "height": 800})
    page.wait_for_function("width => innerWidth === width", arg=width)
    page.evaluate(TWO_FRAMES)


def boxes(page: Any) -> list[tuple[float, float, float, float]]:
    """Left, top, right and bottom of each buffer's rectangle, in pixels."""
    script = "shapes => shapes.map(s => [s.x, s.y, s.width, s.height].map(length => length.baseVal.value))"
    return [(x, y, x + w, y + h) for x, y, w, h in page.eval_on_selector_all("rect.buffer", script)]


def test_every_buffer_is_a_rectangle_and_no_two_overlap(open_page: Open, model: Path) -> None:
    page = open_page(model)
    measured = measured_arena(model)
    assert page.title() == model.name
    drawn = boxes(page)
    assert len(drawn) == len(measured["buffers"])
    for (left, top, right, bottom), (x0, y0, x1, y1) in itertools.combinations(drawn, 2):
        wide, high = min(right, x1) - max(left, x0), min(bottom, y1) - max(top, y0)
        assert min(wide, high) <= SMALLEST_PIXELS + 1e-3
    sheet = page.locator("svg.map").bounding_box()
    inside = np.array(drawn)
    assert (inside >= 0).all()
    assert (inside <= [sheet["width"], sheet["height"]] * 2).all()


def test_widths_are_lifetimes_and_heights_are_sizes(open_page: Open, model: Path) -> None:
    drawn = boxes(open_page(model))
    measured = measured_arena(model)
    largest = max(range(len(drawn)), key=lambda i: measured["buffers"][i]["bytes"])

    def proportions(i: int) -> tuple[float, float]:
        left, top, right, bottom = drawn[i]
        buffer = measured["buffers"][i]
        steps = buffer["last_use"] - buffer["first_use"] + 1
        return (right - left) / steps, (bottom - top - SMALLEST_PIXELS) / max(buffer["bytes"], 1)

    a_step, a_byte = proportions(largest)
    for i in range(len(drawn)):
        assert proportions(i)[0] == pytest.approx(a_step)
        assert proportions(i)[1] <= a_byte * 1.01


def test_the_pointer_shows_what_it_is_on(open_page: Open, model: Path) -> None:
    page = open_page(model)
    measured = measured_arena(model)
    index, buffer = max(enumerate(measured["buffers"]), key=lambda pair: pair[1]["bytes"])
    assert not page.locator("#tip").is_visible()
    page.hover(f'rect.buffer[data-index="{index}"]')
    tip = page.locator("#tip").inner_text()
    for shown in (
        buffer["name"],
        " \N{MULTIPLICATION SIGN} ".join(map(str, buffer["dims"])),
        buffer["type"],
        f"{buffer['bytes']:,}",
        f"{buffer['offset']:,}",
        f"{buffer['last_use']} {measured['steps'][buffer['last_use']]}",
    ):
        assert shown in tip
    page.hover("h1")
    assert not page.locator("#tip").is_visible()


def test_the_wheel_zooms_with_ctrl_alone_and_a_double_click_shows_all_again(open_page: Open, model: Path) -> None:
    page = open_page(model)
    before = boxes(page)
    page.hover("svg.map")
    page.mouse.wheel(0, -400)
    assert boxes(page) == before
    page.keyboard.down("Control")
    page.mouse.wheel(0, -400)
    page.keyboard.up("Control")
    page.wait_for_function(
        "w => document.querySelector('rect.buffer').width.baseVal.value > w", arg=before[0][2] - before[0][0]
    )
    page.dblclick("svg.map")
    assert np.array(boxes(page)) == pytest.approx(np.array(before))


def test_head_temp_and_tail_are_to_scale(open_page: Open) -> None:
    page = open_page(INT8_MODEL)
    measured = measured_arena(INT8_MODEL)
    script = (
        "parts => parts.map(p => [p.querySelector('title').textContent, p.querySelector('rect').width.baseVal.value])"
    )
    parts = dict(page.eval_on_selector_all("svg.arena g", script))
    widths = {name.partition(":")[0]: width for name, width in parts.items()}
    assert widths["tail"] / widths["head"] == pytest.approx(measured["tail_bytes"] / measured["head_bytes"], rel=1e-3)
    assert set(widths) == {"head", "temp", "tail"}


def test_two_plans_stand_side_by_side_at_one_scale(open_page: Open) -> None:
    page = open_page(INT8_MODEL, "--planner", "linear", "--second-planner", "greedy")
    assert page.locator("h2").all_inner_texts() == [
        "linear plan on cortex-m with reference kernels",
        "greedy plan on cortex-m with reference kernels",
    ]
    heights = page.eval_on_selector_all(
        "svg.map", "maps => maps.map(m => m.querySelector('rect.buffer').height.baseVal.value)"
    )
    assert heights[0] == pytest.approx(heights[1])


@pytest.mark.parametrize("width", [1400, 420])
def test_blocks_say_what_makes_them_and_what_they_are(open_page: Open, corpus: Path, width: int) -> None:
    page = open_page(corpus / "models" / "person_detect.tflite")
    resize(page, width)
    labels = page.eval_on_selector_all("rect.buffer", "all => all.map(r => r.getAttribute('aria-label'))")
    assert "2 CONV_2D 48x48x16" in labels
    assert "input 96x96x1" in labels
    overruns = """texts => texts.filter(t => { const box = t.getBBox();
        return box.x + box.width > t.ownerSVGElement.clientWidth + 1; }).length"""
    assert page.eval_on_selector_all("svg.map text.name", overruns) == 0
    shown = page.eval_on_selector_all("svg.map text.name tspan", "all => all.map(t => t.textContent)")
    assert len(shown) > 10
    assert all(
        any(part in label for label in labels for part in [line.rstrip("\N{HORIZONTAL ELLIPSIS}")]) for line in shown
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= width


COVERED = """map => {
    const shapes = [...map.querySelectorAll("rect.buffer, text.name")];
    const box = (shape) => shape.getBoundingClientRect();
    const isOn = (rect, text) => rect.tagName === "rect"
        && box(rect).left < box(text).right - 1 && box(text).left < box(rect).right - 1
        && box(rect).top < box(text).bottom - 1 && box(text).top < box(rect).bottom - 1;
    return shapes.filter((text, i) => text.tagName === "text" && shapes.slice(i + 1).some((rect) => isOn(rect, text)))
        .map(text => text.textContent);
}"""
"""The labels of a map that a block lies on."""


def test_no_block_covers_the_label_of_another(open_page: Open, tmp_path: Path) -> None:
    builder = ModelBuilder("in place")
    main = builder.subgraph()
    x = main.input("x", (1, 64), TensorType.INT8, quantized(0.1))
    for i in range(6):
        y = main.tensor(f"y_{i}", (1, 64), TensorType.INT8, quantized(0.1))
        main.operator(BuiltinOperator.RELU, [x], [y])
        x = y
    main.output(x)
    plain, planned = tmp_path / "plain.tflite", tmp_path / "planned.tflite"
    plain.write_bytes(builder.build())
    assert run("plan", plain, "--overlap", "reference", "--kernels", "reference", "-o", planned).returncode == 0
    assert {buffer["offset"] for buffer in measured_arena(planned)["buffers"]} == {0}
    page = open_page(planned)
    resize(page, 520)
    assert page.locator("svg.map text.name").count() > 3
    assert page.eval_on_selector("svg.map", COVERED) == []


BLOCKS = st.tuples(st.integers(0, 6), st.integers(0, 4), st.integers(0, 4), st.integers(1, 4))


@given(st.lists(BLOCKS, min_size=1, max_size=5))
@example([(2, 2, 0, 1), (0, 2, 0, 1)])  # the later block ends with the step in which the other begins
def test_labels_of_images_are_where_no_later_block_covers_them(drawn: list[tuple[int, int, int, int]]) -> None:
    buffers = [
        {"first_use": first, "last_use": first + more, "offset": offset, "bytes": size, "index": i}
        for i, (first, more, offset, size) in enumerate(drawn)
    ]

    def rows(buffer: dict[str, int]) -> set[int]:
        return set(range(buffer["offset"], buffer["offset"] + buffer["bytes"]))

    for buffer in buffers:
        begin, end = arena_plot._uncovered({"buffers": buffers}, buffer)
        assert set(range(begin, end)) <= set(range(buffer["first_use"], buffer["last_use"] + 1))
        for later in buffers[buffer["index"] + 1 :]:
            steps = range(later["first_use"], later["last_use"] + 1)
            assert not rows(buffer) & rows(later) or not set(range(begin, end)) & set(steps)


@pytest.mark.parametrize(
    ("kind", "first", "last", "text"),
    [("tensor", 2, 5, "1 ADD\n4x5"), ("scratch", 1, 1, "0 MUL\nscratch"), ("tensor", 0, 3, "input\n4x5")],
)
def test_labels_of_images_are_in_the_middle_of_their_blocks(kind: str, first: int, last: int, text: str) -> None:
    axes = MagicMock()
    axes.figure.axes, axes.figure.get_figwidth.return_value = [axes], 40
    buffer = {"first_use": first, "last_use": last, "offset": 100, "bytes": 40, "dims": [1, 4, 5], "kind": kind}
    arena_plot._name(axes, {"steps": ["", "MUL", "ADD", "SUB", "DIV", "ABS"], "buffers": [buffer]}, buffer)
    assert axes.text.call_args.args == ((first + last) / 2, 120, text)


def test_colours_have_a_legend_and_axes_their_titles(open_page: Open, corpus: Path) -> None:
    page = open_page(corpus / "models" / "person_detect.tflite")
    fills = set(page.eval_on_selector_all("rect.buffer", "all => all.map(r => r.getAttribute('fill'))"))
    explained = set(page.eval_on_selector_all("#legend rect", "all => all.map(r => r.getAttribute('fill'))"))
    assert fills <= explained
    legend = page.locator("#legend").inner_text()
    assert all(word in legend for word in ("input of the model", "convolution", "no plan is smaller", "peak"))
    text = page.locator("svg.map").text_content()
    assert "offset in the arena (bytes)" in text
    assert "step (0 fills the inputs" in text
    assert "peak" in text
    assert "Between head and tail" in page.locator("p.gap").inner_text()


def test_the_keyboard_shows_what_the_pointer_shows(open_page: Open, model: Path) -> None:
    page = open_page(model)
    measured = measured_arena(model)
    largest = max(range(len(measured["buffers"])), key=lambda i: measured["buffers"][i]["bytes"])
    block = page.locator(f'rect.buffer[data-index="{largest}"]')
    block.hover()
    shown = page.locator("#tip").inner_text()
    page.hover("h1")
    block.focus()
    assert page.locator("#tip").inner_text() == shown
    block.evaluate("shape => shape.blur()")
    assert not page.locator("#tip").is_visible()


def test_fingers_scroll_and_pinch(browser: Any, model: Path, draw: Draw) -> None:
    """On a telephone, one finger on the picture moves the page, and two enlarge it."""
    context = browser.new_context(viewport={"width": 420, "height": 500}, has_touch=True, is_mobile=True)
    page = context.new_page()
    page.goto(draw(model).as_uri())
    page.wait_for_selector("rect.buffer")
    session = context.new_cdp_session(page)

    def move(*paths: tuple[int, int, int, int]) -> None:
        """Each finger from one place to another, in twenty steps."""
        for step in range(21):
            at = [(x + (to_x - x) * step // 20, y + (to_y - y) * step // 20) for x, y, to_x, to_y in paths]
            points = [{"x": x, "y": y, "id": i} for i, (x, y) in enumerate(at)]
            kind = "touchMove" if step else "touchStart"
            session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

    move((210, 400, 210, 200))
    page.wait_for_function("() => window.scrollY > 50")
    assert page.evaluate("visualViewport.scale") == 1
    map_ = page.locator("svg.map").bounding_box()
    assert map_ is not None
    assert map_["y"] < 420 < map_["y"] + map_["height"]  # the fingers are on the picture
    move((200, 420, 100, 420), (220, 420, 320, 420))
    page.wait_for_function("() => visualViewport.scale > 1.5")
    context.close()


def test_names_that_look_like_markup_are_shown_as_they_are(open_page: Open, tmp_path: Path) -> None:
    name = "</script><!--<script>alert(1)"
    builder = ModelBuilder("markup")
    main = builder.subgraph()
    x, y = main.input(name, (1, 8), TensorType.FLOAT32), main.tensor("y", (1, 8), TensorType.FLOAT32)
    main.operator(BuiltinOperator.RELU, [x], [y])
    main.output(y)
    path = tmp_path / "{{data}}PLANS<b>.tflite"
    path.write_bytes(builder.build())
    page = open_page(path)
    assert page.title() == path.name
    assert page.inner_text("h1") == path.name
    page.hover("rect.buffer")
    assert page.inner_text("#tip b") == name


@pytest.mark.parametrize("width", [500, 700, 1280])
def test_no_label_of_an_axis_is_cut_off(open_page: Open, streaming_model: Path, width: int) -> None:
    page = open_page(streaming_model)
    resize(page, width)
    ends = page.eval_on_selector_all(
        "svg.map > text", "texts => texts.map(t => [t.getBBox().x + t.getBBox().width, t.ownerSVGElement.clientWidth])"
    )
    assert ends
    assert all(end <= limit + 1 for end, limit in ends)
