"""Models made to fit boards: the same answers, in memory that the board has, by the cheapest change."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import Mock

import numpy as np
import pytest
from differential import run
from image_graphs import Images, shrinking_network

import tflm
from tflm.application import fit as fit_module
from tflm.application import fit_search
from tflm.application.fit import advice, boards_that_would_do, fit_figures, fit_report
from tflm.application.fit_search import Candidate, FitSearch, FitStep, SearchTime
from tflm.application.hand_over import compiled_instead
from tflm.application.memories import board_uses
from tflm.boards import Bank, Board, boards, by_name
from tflm.cli.output import plain
from tflm.errors import ArenaError
from tflm.firmware.board_fit import Answer, board_fit
from tflm.libraries import library_for
from tflm.schema import ModelBuilder, Padding

M4 = by_name("nrf52840dk", "bare-metal")


MODEL = shrinking_network(48)
ARENA = tflm.measure_arena(MODEL, tflm.AllOpsResolver(), target=M4.target, kernels=M4.kernels).minimum_arena_bytes


def board(*banks: tuple[str, int], kernels: str = M4.kernels) -> Board:
    """A board with these memories, the fastest first."""
    return replace(M4, name="mine", ram=tuple(Bank(*bank) for bank in banks), kernels=kernels, sdk="")


def answers(model: tflm.Model) -> list[np.ndarray[Any, Any]]:
    x = np.random.default_rng(7).integers(-128, 128, (1, 48, 48, 3)).astype(np.int8)
    return run(bytes(model.data), [[x]])[0]


class Search(NamedTuple):
    """A search in vain, and what it told meanwhile."""

    found: tflm.Fit
    told: list[str]
    better: list[tflm.Fit]


@functools.cache
def searched_in_vain(reserve: int = 0) -> Search:
    """A search on a board with 4 KiB, which are too few for every form of the model."""
    told, better = list[str](), list[tflm.Fit]()
    where = board(("RAM", 4_096))
    found = tflm.fit(MODEL, board=where, reserve=reserve, progress=told.append, improved=better.append)
    return Search(found, told, better)


def test_a_model_that_fits_is_left_unchanged() -> None:
    found = tflm.fit(MODEL, board=M4)
    assert found.fits
    assert (found.missing_bytes, found.in_external_ram, found.original) == (0, False, found.found)
    assert [step.name for step in found.steps] == ["as it is"]
    assert bytes(found.data) == bytes(MODEL.data)
    assert found.verdict.line.startswith("fits: ")
    assert dict(fit_report(found, "x").facts)["chosen"].startswith("as it is with cmsis-nn kernels")


@pytest.mark.parametrize("missing", [3_000, 9_000])
def test_a_model_that_is_too_large_is_rewritten_until_it_fits_and_answers_the_same(missing: int) -> None:
    beside = board_fit(MODEL, M4).firmware_ram
    reserve = 1_000
    where = board(("RAM", ARENA + beside.bytes + reserve - missing))
    found = tflm.fit(MODEL, board=where, reserve=reserve)
    assert found.fits
    taken = found.found.firmware_ram
    assert found.minimum_arena_bytes + taken.bytes <= where.ram[0].bytes
    assert taken.reserve_bytes == reserve
    assert (
        found.minimum_arena_bytes
        == tflm.measure_arena(
            found.model, tflm.AllOpsResolver(), target=where.target, kernels=found.kernels
        ).minimum_arena_bytes
    )
    for ours, original in zip(answers(found.model), answers(MODEL)):
        assert (ours == original).all()
    assert not any(step.fits for step in found.steps[:-1])
    files = found.files()
    assert files["model.tflite"] == found.data
    array = re.findall("0x([0-9a-f]{2})", str(files["firmware/model_data.cc"]))
    assert bytes.fromhex("".join(array)) == found.data


@pytest.mark.parametrize("reserve", [0, 160_000])
def test_a_model_that_fits_nowhere_gets_figures_boards_and_advice(reserve: int) -> None:
    found, told, _ = searched_in_vain(reserve)
    assert told[-2:] == ["other boards", "as C without an interpreter"]
    assert not found.fits
    assert not found.in_external_ram
    assert found.missing_bytes > 0
    assert found.minimum_arena_bytes == min(step.minimum_arena_bytes or 0 for step in found.steps)
    assert {step.kernels for step in found.steps} == {"cmsis-nn", "cmsis-nn:size", "reference"}
    assert len(found.boards) == 3
    for other in found.boards:
        assert tflm.fit(MODEL, board=other, reserve=reserve).fits
    assert any("memory peaks at operator" in advice for advice in found.advice)
    assert f"({found.missing_bytes:,} missing)" in found.verdict.line
    assert fit_report(found, "x").verdict == found.verdict.line


def test_a_float_model_is_told_what_int8_would_take(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 4096), tflm.schema.TensorType.FLOAT32)
    y = main.tensor("y", (1, 4096), tflm.schema.TensorType.FLOAT32)
    main.operator(tflm.schema.BuiltinOperator.RELU, [x], [y])
    main.output(y)
    found = tflm.fit(tflm.Model(builder.build()), board=board(("RAM", 8_192), kernels="reference"))
    assert not found.fits
    (advice,) = (each for each in found.advice if each.startswith("as int8 the model would need about "))
    assert found.original is not None
    monkeypatch.setattr(fit_module, "estimated_int8_arena", lambda *_, **__: None)
    assert fit_module._int8_advice(found.model, found.original).startswith("as int8 the model would need less, and a ")
    assert 2 * 4096 < int(advice.split()[7].replace(",", "")) < 3 * 4096


@pytest.mark.long
def test_memory_outside_the_chip_is_the_last_resort() -> None:
    found = tflm.fit(MODEL, board=board(("SRAM", 8_192), ("PSRAM", 1 << 20)))
    assert found.fits
    assert found.in_external_ram
    assert found.chosen.name == fit_search.SEVERAL
    assert len(found.steps) > 3
    assert "outside the chip" in dict(fit_report(found, "x").facts)["chosen"]


def test_an_interrupted_search_returns_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(fit_search, "tile", interrupted)
    found = tflm.fit(MODEL, board=board(("RAM", 4_096)))
    assert found.interrupted
    assert not found.fits
    assert found.minimum_arena_bytes <= ARENA


def test_every_better_result_is_told_while_the_search_goes_on() -> None:
    found, _, results = searched_in_vain()
    arenas = [result.minimum_arena_bytes for result in results]
    assert arenas == sorted(set(arenas), reverse=True)
    assert arenas[0] == ARENA
    assert results[-1].data == found.data
    assert all(result.interrupted and not result.boards for result in results)


def test_without_time_every_kernel_library_is_measured_and_the_rest_is_listed() -> None:
    found = tflm.fit(MODEL, board=board(("RAM", 4_096)), time_limit=0)
    assert [step.name for step in found.steps] == ["as it is"] * 3
    assert "row bands (cmsis-nn)" in found.cut_short
    assert any("--time-limit" in note for note in fit_report(found, "x").notes)
    assert not tflm.fit(MODEL, board=M4, time_limit=0).cut_short


def test_named_kernels_are_the_only_ones() -> None:
    found = tflm.fit(MODEL, board=board(("RAM", 4_096)), kernels="reference")
    assert {step.kernels for step in found.steps} == {"reference"}


def test_overlap_is_tried_with_every_library_whose_loops_are_known() -> None:
    found = searched_in_vain().found
    tried = {step.kernels for step in found.steps if step.name == "overlapping tensors"}
    assert tried == {"cmsis-nn", "reference"}


def test_a_build_that_takes_the_same_memory_is_not_searched_again() -> None:
    found = searched_in_vain().found
    of_size = [step for step in found.steps if step.kernels == "cmsis-nn:size"]
    assert of_size[-1].name == "memory plan"
    assert [step.minimum_arena_bytes for step in found.steps[: len(of_size)]] == [
        step.minimum_arena_bytes for step in of_size
    ]


def test_the_streaming_form_is_tried_where_a_hop_is_given() -> None:
    images = Images(ModelBuilder().subgraph(), (1, 20, 1, 4))
    images.convolution(images.last, 8, (5, 1), (2, 1), padding=Padding.VALID)
    images.main.output(images.last)
    model = tflm.Model(images.main.builder.build())
    found = tflm.fit(model, board=M4, hop=2)
    assert [step.name for step in found.steps] == ["as it is", "streaming form"]
    assert found.chosen.name == "streaming form"
    assert found.chosen.extra_macs == 1 / 8 - 1
    used, before = (
        {each.operator_name(op) for op in each.subgraphs[0].operators or ()} for each in (found.model, model)
    )
    assert found.chosen.needed_operators == (*sorted(used - before),) != ()
    assert found.chosen.extra_file_bytes == len(found.data) - len(model.data)
    assert found.model.subgraphs[0].tensors[found.model.subgraphs[0].inputs[0]].shape == (1, 2, 1, 4)
    assert "-87.5% work" in str(fit_report(found, "x").tables[0].rows)
    refused = tflm.fit(model, board=M4, hop=3)
    assert refused.chosen.name == "as it is"
    assert "use hops of 2, 4, 6, ... frames" in refused.steps[1].reason


def test_what_is_wrong_with_the_arguments_is_told() -> None:
    with pytest.raises(tflm.ArgumentError, match="unknown board"):
        tflm.fit(MODEL, board="no-such-board-anywhere")
    with pytest.raises(tflm.ArgumentError, match="0 or more bytes"):
        tflm.fit(MODEL, board=M4, reserve=-1)


def test_figures_are_plain_and_complete() -> None:
    figures = fit_figures(Path("x.tflite"), tflm.fit(MODEL, board=M4))
    document = plain(figures)
    assert document["fits"]
    assert document["steps"][0]["minimum_arena_bytes"] == ARENA
    assert document["placements"] == [{"part": "arena", "bytes": ARENA, "memory": "RAM"}]
    assert json.loads(json.dumps(document)) == document
    assert (document["verdict"]["answer"], document["verdict"]["line"][:6]) == ("yes", "fits: ")


def test_a_library_that_rejects_the_model_says_why() -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 8), tflm.schema.TensorType.FLOAT32)
    y = main.tensor("y", (1, 8), tflm.schema.TensorType.FLOAT32)
    main.operator("SignalEnergy", [x], [y])
    main.output(y)
    with pytest.raises(tflm.TflmError, match="cannot run on mine"):
        tflm.fit(tflm.Model(builder.build()), board=board(("RAM", 1 << 16), kernels="arduino"))


def test_the_buffers_with_most_traffic_stay_on_the_chip_if_not_all_fit(tmp_path: Path) -> None:
    """The last step before everything is outside the chip; its project runs the plan."""
    where = board(("SRAM", 9 << 10), ("PSRAM", 1 << 20))
    found = tflm.fit(MODEL, board=where, reserve=0, kernels="cmsis-nn", max_extra_macs=0.0)
    assert found.fits
    assert found.plan is not None
    assert found.chosen.name == fit_search.SEVERAL
    outside = found.plan.rivals["all in PSRAM"]
    assert outside is not None
    assert found.plan.cost < outside
    uses = {use.memory: use for use in board_uses(found.model, found.found, found.plan)}
    assert uses.keys() == {"SRAM", "PSRAM", "flash"}
    for share in found.plan.memories:
        use = uses[share.name]
        assert (use.read_bytes + use.written_bytes, use.written_bytes) == (share.traffic_bytes, share.written_bytes)
    assert [table.title for table in fit_report(found, "x").tables if "all in PSRAM" in str(table.rows)]
    assert plain(fit_figures(tmp_path, found))["plan"]["cost"] == found.plan.cost
    assert found._planned(found.plan, found.kernels) is found.plan
    pinned = found._planned(found.plan, library_for("reference", where.target))
    assert [(each.name, each.bytes, each.cost) for each in pinned.memories] == [
        (each.name, each.bytes, each.cost) for each in found.plan.memories
    ]
    written = found.files()
    assert "class ModelMemoryPlan" in str(written["firmware/memory_plan.h"])
    assert "memory_plan(tensor_arena, " in str(written["firmware/main.cc"])
    others = [bytearray(each.used_bytes) for each in found.plan.others]
    allocator = tflm.MicroAllocator(
        bytearray(found.plan.arena_bytes), found.plan.planner(), where.target, kernels="cmsis-nn", memories=others
    )
    interpreter = tflm.MicroInterpreter(found.model, tflm.AllOpsResolver(), allocator)
    interpreter.allocate_tensors()
    x = np.random.default_rng(7).integers(-128, 128, (1, 48, 48, 3)).astype(np.int8)
    interpreter.input(0).data[...] = x
    interpreter.invoke()
    (expected,) = answers(MODEL)
    assert (interpreter.output(0).data == expected).all()


@pytest.mark.parametrize("room", [1 << 10, "what C takes", 1 << 20])
def test_there_is_one_verdict(room: int | str) -> None:
    """Also where the model fits only as C: what that takes is a figure, not another verdict."""
    ram = room if isinstance(room, int) else tflm.compile_model(MODEL).ram_bytes + (4 << 10)
    found = tflm.fit(MODEL, board=replace(M4, ram=(Bank("RAM", ram),)), reserve=0, time_limit=0.1)
    report = fit_report(found, "m")
    texts = [report.verdict, *report.notes, *(text for _, text in report.facts)]
    texts.append(compiled_instead(Path("m"), found.compiled))
    phrases = re.compile(r"does not fit|not known whether|\bfits\b")
    assert phrases.findall(" ".join(texts)) == phrases.findall(report.verdict)[:1]


# --- The choice between candidates -----------------------------------------------------------------------------------

ON_CHIP = {"fits": True, "on_chip": True, "head_on_chip": True}
HEAD_ON_CHIP = {"fits": True, "head_on_chip": True}
OUTSIDE = {"fits": True}


def candidate(name: str = "as it is", arena: int = 1_000, portable: bool = True, **facts: Any) -> Candidate:
    """A candidate that fits nothing, apart from the facts."""
    step = FitStep(name, "reference", arena, extra_macs=facts.get("extra_macs", 0.0))
    nothing = {"fits": False, "fits_ram": facts.get("fits", False), "on_chip": False, "head_on_chip": False}
    measured = SimpleNamespace(minimum_arena_bytes=arena)
    found: Any = SimpleNamespace(**{**nothing, "answer": Answer.NO, "split": None, "measured": measured, **facts})
    library = library_for("reference", M4.target, None)
    return Candidate(step, f"{name} {arena}".encode(), library, found, portable, facts.get("plan"))


def search_of(*candidates: Candidate) -> FitSearch:
    """A search that has tried these."""
    search = FitSearch(MODEL, board(("RAM", 4_096)), 0, 0.0, lambda text: None, None, lambda: None)
    search.candidates, search.steps = [*candidates], [each.step for each in candidates]
    search.cut_short = ["row bands"]
    return search


@pytest.mark.parametrize(
    ("better", "other"),
    [
        (ON_CHIP, HEAD_ON_CHIP),
        (HEAD_ON_CHIP, OUTSIDE),
        (OUTSIDE, {"arena": 1}),
        ({"name": "streaming form", **OUTSIDE}, OUTSIDE),
        (HEAD_ON_CHIP, {"name": "streaming form", **OUTSIDE}),
        ({"plan": "several memories", **OUTSIDE}, OUTSIDE),
        ({"name": "streaming form", **OUTSIDE}, {"plan": "several memories", **OUTSIDE}),
        ({"arena": 999}, {}),
        ({"answer": Answer.UNKNOWN}, {"arena": 1}),
        ({}, {"arena": 1, "split": "head and tail"}),
        ({}, {"arena": 1, "plan": "several memories"}),
    ],
)
def test_the_better_of_two_candidates_is_chosen_in_either_order(better: dict[str, Any], other: dict[str, Any]) -> None:
    first, second = candidate(**better), candidate(**other)
    assert search_of(first, second).chosen() is search_of(second, first).chosen() is first


def test_the_first_of_equal_candidates_is_chosen() -> None:
    for facts in (ON_CHIP, OUTSIDE, {}):
        equal = [candidate("as it is", **facts), candidate("memory plan", **facts)]
        assert search_of(*equal).chosen() is equal[0]


@pytest.mark.parametrize(
    ("change", "known"),
    [
        ({}, True),
        ({"name": "memory plan"}, False),
        ({"library": "reference"}, False),
        ({"library": "cmsis-nn:size"}, False),
        ({"buffers": [1, 2]}, False),
        ({"tail_bytes": 3}, False),
        ({"firmware_ram": 4}, False),
    ],
)
def test_another_build_is_known_not_to_help_if_it_takes_the_same_memory(change: dict[str, Any], known: bool) -> None:
    def tried(library: str, name: str = "as it is", firmware_ram: int = 0, **measured: Any) -> Candidate:
        found: Any = SimpleNamespace(
            measured=SimpleNamespace(**{"buffers": [1], "tail_bytes": 2, **measured}), firmware_ram=firmware_ram
        )
        return replace(candidate(name), library=library_for(library, M4.target), found=found)

    search = search_of(tried(**{"library": "cmsis-nn", **change}), tried("cmsis-nn:size"))
    assert search._is_known_not_to_help(search.candidates[-1].library) is known


@pytest.mark.parametrize(
    ("name", "facts", "fits"),
    [
        ("as it is", ON_CHIP, True),
        ("as it is", HEAD_ON_CHIP, True),
        ("as it is", OUTSIDE, False),
        ("as it is", {"head_on_chip": True}, False),
        ("memory plan", ON_CHIP, False),
    ],
)
def test_the_model_as_it_is_ends_the_search_if_its_head_fits_the_chip(
    name: str, facts: dict[str, Any], fits: bool
) -> None:
    assert search_of(candidate("row bands", **OUTSIDE), candidate(name, **facts))._fits_as_it_is() is fits


@pytest.mark.parametrize("interrupted", [False, True])
@pytest.mark.parametrize(
    ("facts", "asks_boards", "asks_c"),
    [
        (ON_CHIP, False, False),
        ({**ON_CHIP, "extra_macs": -0.1}, False, False),
        ({**ON_CHIP, "extra_macs": 0.1}, False, True),
        (HEAD_ON_CHIP, False, True),
        ({}, True, True),
    ],
)
def test_what_a_model_that_fits_badly_is_offered(
    facts: dict[str, Any], asks_boards: bool, asks_c: bool, interrupted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Boards are for the smallest version that answers the same with any kernels."""
    asked: list[Any] = []
    portable = [candidate(arena=3_000), candidate("memory plan", 2_000), candidate("operator order", 2_500)]
    last = candidate("overlapping tensors", 1_000, portable=False, **facts)
    monkeypatch.setattr(fit_module, "Model", bytes)
    monkeypatch.setattr(fit_module, "boards_that_would_do", lambda *given: asked.append(given) or [M4])
    monkeypatch.setattr(fit_module, "advice", lambda *given: asked.append(given) or ["smaller"])
    monkeypatch.setattr(fit_module, "compiled_fit_or_none", lambda *given, reserve: asked.append(given) or "as C")
    search = search_of(*portable, last)
    found = fit_module._best_of(search, lambda text: None, interrupted)
    boards_for, advice_for = (portable[1].found, portable[1].data), (MODEL, portable[0].found, last.found)
    expected = [boards_for] * asks_boards + [(MODEL, search.board)] * asks_c + [advice_for] * asks_boards
    assert asked == ([] if interrupted else expected)
    assert (found.data, found.original) == (last.data, portable[0].found)
    assert found.in_external_ram is ("fits" in facts and "on_chip" not in facts)
    assert found.cut_short == (() if "on_chip" in facts else ("row bands",))
    refused = FitStep("as it is", "cmsis-nn", None, reason="not with these kernels")
    search.steps.insert(0, refused)
    assert fit_module._best_of(search, lambda text: None, True).original is None


def test_the_smallest_boards_are_suggested_that_hold_the_model_on_the_chip(monkeypatch: pytest.MonkeyPatch) -> None:
    def fits(model: Any, some: list[Board], *, reserve: int) -> list[Any]:
        assert (model, reserve) == (MODEL, 77)
        return [SimpleNamespace(board=b, fits=i % 2 > 0, on_chip=i % 3 > 0) for i, b in enumerate(some)]

    monkeypatch.setattr(fit_module, "fits_of", fits)
    kinds = [SimpleNamespace(kind=kind, bytes=size) for kind, size in (("tensor", 40_000), ("scratch", 1 << 30))]
    smallest: Any = SimpleNamespace(measured=SimpleNamespace(peak=SimpleNamespace(buffers=kinds)), reserve_bytes=77)
    large = [each for each in boards().values() if max(bank.bytes for bank in each.on_chip_ram) > 40_000]
    by_ram = sorted(large, key=lambda each: sum(bank.bytes for bank in each.on_chip_ram))
    assert list(boards_that_would_do(smallest, MODEL)) == [by_ram[1], by_ram[5], by_ram[7]]


@pytest.mark.parametrize("fits_flash", [False, True])
@pytest.mark.parametrize("fits_ram", [False, True])
def test_advice_is_about_what_is_missing(fits_ram: bool, fits_flash: bool) -> None:
    """The original's peak, if the smallest version lacks RAM."""
    large, small = (SimpleNamespace(name=f"{bytes} bytes", bytes=bytes) for bytes in (600, 200))
    peak = SimpleNamespace(buffers=[small, large], operator_index=3, operator="ADD", bytes=800)
    original: Any = SimpleNamespace(measured=SimpleNamespace(peak=peak), fits_ram=False)
    smallest: Any = SimpleNamespace(fits_flash=fits_flash, missing_flash=SimpleNamespace(high=5), fits_ram=fits_ram)
    flash = ["the file needs 5 B less, or more flash"] * (not fits_flash)
    ram = ["memory peaks at operator 3 ADD with 800 B: halving the channels of '600 bytes' saves 300 B there"]
    assert list(advice(MODEL, original, smallest)) == flash + ram * (not fits_ram)


@pytest.mark.parametrize(("tail", "pairs"), [(100, 3), (101, 2), (200, 2), (201, 1)])
def test_head_and_tail_are_tried_where_the_tail_has_room(tail: int, pairs: int) -> None:
    """The head in the largest memory of the chip first, the tail outside last."""
    found: Any = SimpleNamespace(separate=SimpleNamespace(tail_arena_bytes=tail))
    search = search_of(replace(candidate(), found=found))
    search.board = board(("A", 100), ("B", 200), ("PSRAM", 1 << 20))
    named = [(split.head.name, split.tail.name) for split in search._splits()]
    every = [("B", "A"), ("A", "B"), ("B", "PSRAM"), ("A", "PSRAM")]
    room = {"A": 100, "B": 200, "PSRAM": 1 << 20}
    assert named == [each for each in every if room[each[1]] >= tail][:3]
    search.candidates = [replace(candidate(), found=SimpleNamespace(separate=None))]
    assert [*search._splits()] == []


def test_the_cheapest_plan_of_several_memories_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit_search, "memories_of_board", lambda found: [])
    monkeypatch.setattr(fit_search, "Model", bytes)
    plans = {size: SimpleNamespace(cost=cost, data=bytes(size)) for size, cost in ((1, 5.0), (2, 4.0), (3, 4.0))}
    for chosen, others in ((2, (1, 2)), (2, (3, 2)), (3, (3, 1)), (1, (1, None))):
        answers = [ArenaError("too small") if size is None else plans[size] for size in others]
        monkeypatch.setattr(fit_search, "plan", Mock(side_effect=answers))
        found = search_of(candidate())._in_memories(candidate().library, None, None)
        assert len(found.data) == chosen
    monkeypatch.setattr(fit_search, "plan", Mock(side_effect=ArenaError("too small")))
    with pytest.raises(tflm.OperatorError, match="fit no memories"):
        search_of(candidate())._in_memories(candidate().library, None, None)


def test_the_first_library_has_most_of_the_time_and_the_last_all_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(fit_search, "time", SimpleNamespace(monotonic=lambda: clock.now))
    limited, unlimited = SearchTime(100.0), SearchTime(None)
    shares = []
    for is_last, now in ((False, 0.0), (False, 50.0), (True, 60.0), (True, 101.0)):
        clock.now = now
        limited.begin_library(is_last)
        unlimited.begin_library(is_last)
        shares.append(limited.of_step())
        assert unlimited.of_step() is None
    assert shares == pytest.approx([64.0, 32.0, 32.0, 0.0])
    limited = SearchTime(100.0)
    clock.now = 101.0 + 50.0
    assert limited.of_step() == pytest.approx(40.0)


# --- Sentences of the report -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "row"),
    [
        ({}, "1,000|0||no"),
        ({"saved_bytes": 1_234, "fits": True, "memories": "arena in RAM"}, "1,000|1,234||yes: arena in RAM"),
        ({"extra_macs": 0.0005}, "1,000|0||no"),
        ({"extra_macs": -0.125, "extra_file_bytes": -2_000}, "1,000|0|-12.5% work, -2,000 B of file|no"),
        (
            {"extra_macs": 0.0006, "extra_file_bytes": 9, "needed_operators": ("PAD", "SLICE")},
            "1,000|0|+0.1% work, +9 B of file, needs PAD, SLICE|no",
        ),
        (
            {"minimum_arena_bytes": None, "extra_file_bytes": 9, "reason": "not with these"},
            "cannot run|0|not with these|no",
        ),
    ],
)
def test_each_step_says_what_it_saves_and_costs(facts: dict[str, Any], row: str) -> None:
    found = replace(searched_in_vain().found, steps=(replace(FitStep("a step", "arduino", 1_000), **facts),))
    (cells,) = fit_report(found, "net").tables[0].rows
    assert "|".join(map(str, cells)) == f"a step|arduino|{row}"


def placed(**pieces: tuple[int, str]) -> list[Any]:
    """Pieces of an arena: bytes of each, and its memory; those in capitals are outside the chip."""
    return [
        SimpleNamespace(part=part, bytes=size, bank=SimpleNamespace(name=name, is_external=name.isupper()))
        for part, (size, name) in pieces.items()
    ]


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        ({"pieces": placed(arena=(2_000, "Ram"))}, "a step with cmsis-nn kernels, an arena of 1,000 B, in Ram"),
        (
            {"pieces": placed(arena=(2_000, "PSRAM")), "in_external_ram": True},
            "a step with cmsis-nn kernels, an arena of 1,000 B, in Ram. This memory is outside the chip, and slow",
        ),
        (
            {"pieces": placed(head=(700, "Ram"), tail=(300, "PSRAM")), "in_external_ram": True, "head_on_chip": True},
            "a step with cmsis-nn kernels, an arena of 700 B for the head and an arena of 300 B for the tail, in Ram. "
            "The tail's memory is outside the chip, and slow",
        ),
        (
            {
                "pieces": placed(arena=(700, "Ram"), psram_buffers=(300, "PSRAM"), sdram_buffers=(900, "SDRAM")),
                "in_external_ram": True,
                "plan": "several memories",
            },
            "a step with cmsis-nn kernels, 700 B and 300 B and 900 B, in Ram. "
            "PSRAM and SDRAM are outside the chip, and slow",
        ),
        (
            {"fits_ram": False, "steps": ["as it is", "memory plan"]},
            "the smallest version, a step with cmsis-nn kernels, an arena of 1,000 B; 1 kind of change was tried",
        ),
        (
            {"fits_ram": False, "steps": ["as it is", "memory plan", "row bands", "row bands"]},
            "the smallest version, a step with cmsis-nn kernels, an arena of 1,000 B; 2 kinds of changes were tried",
        ),
    ],
)
def test_the_chosen_version_says_where_its_arena_goes(facts: dict[str, Any], line: str) -> None:
    found: Any = SimpleNamespace(
        minimum_arena_bytes=1_000,
        chosen=FitStep("a step", "cmsis-nn", 1_000, memories="in Ram"),
        kernels=SimpleNamespace(name="cmsis-nn"),
        found=SimpleNamespace(
            fits_ram=facts.get("fits_ram", True),
            placements=facts.get("pieces"),
            head_on_chip=facts.get("head_on_chip", False),
        ),
        steps=[FitStep(name, "cmsis-nn", 1) for name in facts.get("steps", [])],
        plan=facts.get("plan"),
        in_external_ram=facts.get("in_external_ram", False),
    )
    assert fit_module._chosen(found) == line


def test_notes_of_a_fit_are_what_would_help() -> None:
    found = searched_in_vain().found
    assert found.compiled is not None
    report = fit_report(
        replace(found, interrupted=True, cut_short=("a", "b"), advice=("less", "more"), boards=(M4, M4)), "net"
    )
    assert report.title == "net on mine"
    assert report.notes[:4] == [
        "interrupted: the best result so far",
        "the time limit cut short: a, b; --time-limit allows more",
        "what would help: less",
        "what would help: more",
    ]
    assert report.notes[4].startswith("as C without an interpreter it takes ")
    assert report.notes[5] == f"the smallest boards that would do: {M4.name}, {M4.name}"
    facts = dict(report.facts)
    assert facts["board"] == f"mine: {M4.description}"
    assert (facts["RAM"], facts["reserved"]) == ("RAM 4.0 KiB", "0 B for the application")
    assert "SDK" not in facts
    plain_report = fit_report(replace(found, advice=(), cut_short=(), compiled=None, boards=()), "net")
    assert plain_report.notes == []
    assert dict(fit_report(replace(found, board=by_name("pico")), "net").facts)["SDK"]
