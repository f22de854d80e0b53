"""Small rules about firmwares: ranges of commits, builds that are tried, and how instructions add up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

import tflm
from tflm.firmware import arena_causes, instructions, source_tree
from tflm.firmware.arena_causes import Build, CommitRange, CommitRangeSearch, contained_in, joined
from tflm.firmware.instructions import OperatorEstimate
from tflm.libraries import by_name, library_for
from tflm.releases import TODAY, distributions, history
from tflm.releases.release import version_of
from tflm.runtime.allocator_structures import RecordedAllocation
from tflm.schema import TensorType

# --- Spans of releases -------------------------------------------------------------------------------------------


def commits(first: int, last: int) -> CommitRange:
    return CommitRange(history()[first], history()[last])


def test_ranges_that_follow_each_other_are_one() -> None:
    assert joined([commits(6, 9), commits(0, 2), commits(3, 5)]) == [commits(0, 9)]
    assert joined([commits(4, 9), commits(0, 2)]) == [commits(0, 2), commits(4, 9)]
    assert joined([]) == []


def test_a_range_has_its_ends() -> None:
    assert [commits(2, 4).contains(history()[place].hash) for place in range(6)] == [
        False,
        False,
        True,
        True,
        True,
        False,
    ]


def test_a_search_goes_back_to_the_first_commit() -> None:
    search, ranges = CommitRangeSearch(True), []
    for release in search:
        assert release.static_memory
        for place in (3, 7, 7, len(history()) - 1):
            release.holds(history()[place].hash)
        ranges.append(search.commits)
    newest = len(history()) - 1
    assert ranges == [commits(newest, newest), commits(7, newest - 1), commits(3, 6), commits(0, 2)]
    assert not CommitRangeSearch(False).release.static_memory


@pytest.mark.parametrize("library", ["reference", "cmsis-nn", "esp-nn"])
@pytest.mark.parametrize("static_memory", [True, False])
def test_what_contains_a_tflm(library: str, static_memory: bool) -> None:
    found = contained_in(commits(0, len(history()) - 1), library, static_memory)
    assert [line.split()[0] for line in found] == [
        name
        for name, versions in distributions().items()
        if any(
            each.static_memory in (static_memory, None) and (library == "reference" or each.kernels in (library, ""))
            for each in versions
            if "." in each.version or not any("." in other.version for other in versions)
        )
    ]
    for line in found:
        assert (" to " in line) == (len(line.split()) == 4)


def test_a_version_of_an_umbrella_is_the_newest_that_is_not_later() -> None:
    versions = distributions()["esphome"]
    for wanted in ("2024.10", "2024.10.3", "2025.4", "v2024.12"):
        found = version_of(versions, wanted)
        assert found is not None
        assert found.version == "2024.10"
    exact = version_of(versions, "2025.5")
    assert exact is not None
    assert exact.version == "2025.5"
    assert version_of(versions, "2020.1") is None
    assert version_of(versions, "dev-of-mine") is None
    assert version_of(distributions()["esp-tflite-micro"], "1.3.99") is None


# --- Builds that are tried ---------------------------------------------------------------------------------------


def build(target: str, kernels: str, variables: int = 0) -> Build:
    return Build(tflm.targets.by_name(target), by_name(kernels), variables)


def test_other_libraries_of_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = None
    found = [each.kernels.name for each in arena_causes.kernels_instead(model, build("cortex-m4", "cmsis-nn"))]
    assert found == ["reference", "cmsis-nn:size", "arduino", "cmsis-nn"]
    found = [each.kernels.name for each in arena_causes.kernels_instead(model, build("esp32s3", "esp-nn"))]
    assert found == ["reference", "esp-nn:ansi", "esp-nn"]
    tried = [each.kernels.name for each in arena_causes.versions_instead(model, build("esp32s3", "esp-nn"))]
    assert "esp-nn@1.2.1" in tried
    assert "esp-nn" not in tried
    monkeypatch.setattr(arena_causes, "count_resource_variables", lambda model: 3)
    counts = [each.resource_variables for each in arena_causes.variables_instead(model, build("esp32", "esp-nn", 5))]
    assert counts == [3, 4, *range(6, 65)]
    monkeypatch.setattr(arena_causes, "count_resource_variables", lambda model: 0)
    assert list(arena_causes.variables_instead(model, build("esp32", "esp-nn", 5))) == []
    assert list(arena_causes.components_instead(model, build("cortex-m4", "cmsis-nn"))) == []
    components = {each.kernels.release for each in arena_causes.components_instead(model, build("esp32s3", "esp-nn"))}
    numbers = [each.version for each in distributions()["esp-tflite-micro"] if "." in each.version]
    assert components == {tflm.releases.by_name(f"esp-tflite-micro {number}") for number in numbers}


@pytest.mark.parametrize("figure", [None, "head_bytes", "tail_bytes", "minimum_arena_bytes", "records"])
def test_versions_are_alike_if_all_of_their_figures_are(figure: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    thought, model = build("cortex-m4", "cmsis-nn"), cast(tflm.Model, None)
    libraries = (library_for(name, thought.target, TODAY) for name in arena_causes._versions(thought.target))
    first, odd, *names = (library.name for library in libraries)

    def measured(build: Build, model: tflm.Model) -> SimpleNamespace:
        figures: dict[str, Any] = {"head_bytes": 1, "tail_bytes": 2, "minimum_arena_bytes": 3, "records": {"a": 4}}
        if figure and build.kernels.name == odd:
            figures[figure] = {"a": 5} if figure == "records" else 5
        return SimpleNamespace(**figures)

    monkeypatch.setattr(Build, "measured", measured)
    found = arena_causes._versions_with_equal_figures(model, thought)
    alike = [first, *names] if figure else [first, odd, *names]
    assert found == {alike[-1]: alike[-2::-1]} | ({odd: []} if figure else {})


def test_other_parts_have_other_extensions_or_another_family() -> None:
    model: Any = None
    found = {each.target.extensions for each in arena_causes.parts_instead(model, build("cortex-m4", "cmsis-nn"))}
    families = {each.target.family for each in arena_causes.parts_instead(model, build("cortex-m4", "cmsis-nn"))}
    assert found == {frozenset(each) for each in ((), ("mve",), ("dsp", "mve"), ("esp32s3",), ("esp32p4",))} & found
    assert frozenset({"dsp"}) not in found
    assert frozenset() in found
    assert {"espressif", "cortex-m"} <= families


# --- Instructions ------------------------------------------------------------------------------------------------


def test_errors_of_formulas_and_guesses_add_up() -> None:
    paths = {"a": instructions.CountedPath(0.02, {}), "b": instructions.CountedPath(0.5, {})}
    one = OperatorEstimate(0, "A", "a", 1000, 0, 0)
    rough, floats, none = one._replace(path="b"), one._replace(path="dequantize"), one._replace(path="")
    within = instructions._within
    assert within([one], paths, 1000, 0) == pytest.approx(0.08)
    assert within([one, rough], paths, 2000, 0) == pytest.approx(0.29)
    assert within([floats], paths, 1000, 0) == pytest.approx(0.5)
    assert within([none._replace(instructions=None)], paths, 1000, 100) == pytest.approx(0.3)
    assert within([], paths, 0, 100) == pytest.approx(300)


def tensors(*shapes: tuple[TensorType, tuple[int, ...]]) -> Any:
    return SimpleNamespace(tensors=[SimpleNamespace(type=type, shape=shape) for type, shape in shapes])


@pytest.mark.parametrize(
    ("type", "name", "products", "wanted"),
    [
        (TensorType.INT8, "ADD", 0, 12 * 60),
        (TensorType.INT16, "ADD", 0, 12 * 80),
        (TensorType.FLOAT32, "ADD", 0, 12 * 150),
        (TensorType.INT32, "ADD", 0, 12 * 60),
        (TensorType.INT8, "TANH", 0, 8 * 12 * 60),
        (TensorType.INT8, "CONV_2D", 7, 7 * 8),
        (TensorType.INT16, "CONV_2D", 7, 7 * 18),
        (TensorType.FLOAT32, "CONV_2D", 7, 7 * 90),
    ],
)
def test_what_has_no_formula_is_guessed_by_its_work(type: TensorType, name: str, products: int, wanted: int) -> None:
    operator: Any = SimpleNamespace(inputs=[-1, 0, 2], outputs=[1])
    for shapes in (((3, 4), (5,)), ((5,), (3, 4))):
        graph = tensors(*((type, shape) for shape in shapes), (type, (99,)))
        assert instructions._guess(graph, operator, name, products) == wanted


# --- Files of source trees ---------------------------------------------------------------------------------------


def test_how_many_folders_paths_share_from_their_ends() -> None:
    assert source_tree._shared(("a", "b", "c"), ("x", "b", "c")) == 2
    assert source_tree._shared(("a", "b"), ("a", "c")) == 0
    assert source_tree._shared(("b", "c"), ("a", "b", "c")) == 2
    assert source_tree._common_folders("a/b/c", "a/b/d/e") == 2
    assert source_tree._parts("a/b.cpp") == source_tree._parts("a/b.cc") == ("a", "b.cc")
    assert source_tree._parts("a/b.h") == ("a", "b.h")


def test_a_device_without_categories_may_have_any() -> None:
    records = {"a": RecordedAllocation()}
    measured: Any = SimpleNamespace(head_bytes=100, tail_bytes=50, recording_tail_bytes=70, records=records)
    assert arena_causes.figures_here(measured, True) == {"total": 170, "head": 100, "tail": 70}
    assert arena_causes.figures_here(measured, False) == {"total": 150, "head": 100, "tail": 50}
    for parts, equal in (({"head": 100}, True), ({"head": 100, "tail": 51}, False), ({}, True)):
        device: Any = SimpleNamespace(recording=False, parts=parts, records={})
        assert arena_causes.equals(measured, device) is equal
    device = SimpleNamespace(recording=False, parts={}, records={"a": None})
    assert not arena_causes.equals(measured, device)
