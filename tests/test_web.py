"""The page that runs the package in a browser: what it shows and gives away is what the command does.

`make web-test` runs all of them, `make test` those that do not load Python into the browser, which takes half a minute.
"""

from __future__ import annotations

import base64
import contextlib
import faulthandler
import fcntl
import functools
import html
import http.server
import io
import json
import os
import re
import shlex
import struct
import threading
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import website
from differential import assert_close
from example_models import FLOAT_MODEL, INT8_MODEL
from image_graphs import Images
from image_network import image_network
from session import Session, machines
from test_arena import corpus_models
from test_cli import figures, run
from test_real_models import recorded

import tflm
from tflm.boards import boards, by_name
from tflm.memory import OptimalPlanner
from tflm.memory.plan_search import DEFAULT_TIME_LIMIT
from tflm.schema import ModelBuilder

ROOT = Path(__file__).parents[1]
RUNTIME = Path(os.environ.get("TFLM_PYODIDE", ROOT / "build" / "pyodide"))
"""Pyodide's files, which are brought there (`make web-runtime`) where they are not."""

FULL_BOARD, SMALL_BOARD = "nrf52dk", "nucleo-l053r8"
"""Boards that the image network does not fit as it is: with what the application needs, and at all."""

UNLIMITED = ("--time-limit", "1e9")
"""Options of a search that ends as on an idle machine: the page limits none."""

ESP32_S3, CORTEX_M55, SPIRAM_BOARD = "esp32-s3-devkitc-1", "alif-e7-hp", "esp32-s3-eye"

PATIENCE_MS = 90_000
"""Python takes some seconds to begin in a browser, and more on a machine that does much else."""


# --- The page's Python, in this one ----------------------------------------------------------------------------------


@pytest.fixture
def session(tmp_path: Path) -> Session:
    """A session with the hello world."""
    session = Session(tmp_path)
    assert "error" not in session.ask("open", name=INT8_MODEL.name, data=INT8_MODEL.read_bytes())
    return session


def test_every_machine_takes_the_kernels_that_are_offered_for_it(session: Session) -> None:
    offered = machines()
    assert {machine["name"] for machine in offered} >= {ESP32_S3, CORTEX_M55, "cortex-m4", "cortex-m"}
    for machine in offered:
        assert machine["kernels"]
        for kernels in machine["kernels"]:
            answer = session.ask("check", **{machine["option"]: machine["name"]}, kernels=kernels)
            assert "error" not in answer


def test_the_session_says_what_the_command_says(session: Session) -> None:
    answer = session.ask("arena", board=ESP32_S3, kernels="esp-nn")
    (measured,) = figures("arena", INT8_MODEL, "--board", ESP32_S3)["models"]
    for figure in ("target", "kernels", "minimum_arena_bytes", "arena_used_bytes", "head_bytes", "tail_bytes"):
        assert answer[figure] == measured[figure]
    assert answer["fits"] is True
    assert json.dumps(measured["buffers"][0]["name"]) in answer["page"]


@pytest.mark.parametrize(
    ("question", "options", "said"),
    [
        ("open", {"name": "../a.tflite", "data": b"TFL3 it is not"}, "a.tflite: "),
        ("arena", {"board": "abacus"}, "abacus"),
        ("boards", {"kernels": "abacus"}, "abacus"),
        ("tile", {"macs": "much", "ram": None, "seconds": None, "progress": print}, "10%"),
        ("tile", {"macs": "10%", "ram": "little", "seconds": None, "progress": print}, "64K"),
        ("memories", {"memories": "SRAM:4Q", "cost": None, "seconds": None, "progress": print}, "4Q"),
        ("memories", {"memories": "SRAM:4K", "cost": "PSRAM:6", "seconds": None, "progress": print}, "PSRAM"),
        ("compare", {"name": "b.tflite", "data": b""}, "b.tflite: "),
    ],
)
def test_what_can_not_be_done_is_said_in_one_line(
    session: Session, question: str, options: dict[str, Any], said: str
) -> None:
    error = session.ask(question, **options)["error"]
    assert said in error
    assert "\n" not in error
    assert "model/" not in error


def test_nothing_is_answered_before_a_model_is_open(tmp_path: Path) -> None:
    assert Session(tmp_path).ask("check", target="cortex-m") == {"error": "no model is open"}


def test_searches_tell_how_far_they_are_and_give_a_smaller_model(tmp_path: Path) -> None:
    session = Session(tmp_path)
    told: list[Any] = []
    session.ask("open", name="image.tflite", data=image_network())
    options = {"board": ESP32_S3, "seconds": None, "progress": told.append}
    planned = session.ask("plan", in_place=False, reorder=False, **options)
    tiled = session.ask("tile", macs="10%", ram="88K", **options)
    assert any("rewrites tried" in text for text in told)
    assert "it fits into 90,112 B" in tiled["report"]
    arenas = [session.ask("arena", board=ESP32_S3)["minimum_arena_bytes"]]
    for answer in (planned, tiled):
        (file,) = answer["files"]
        session.ask("open", **file)
        arenas.append(session.ask("arena", board=ESP32_S3)["minimum_arena_bytes"])
    assert arenas[0] > arenas[1] > 88 << 10 >= arenas[2]


def test_buffers_are_placed_in_several_memories_as_by_the_command(tmp_path: Path) -> None:
    session, path = Session(tmp_path), tmp_path / "image.tflite"
    path.write_bytes(image_network())
    session.ask("open", name=path.name, data=path.read_bytes())
    memories = "SRAM:48K,PSRAM:1M"
    answer = session.ask("memories", memories=memories, cost=None, seconds=None, progress=print, board=SPIRAM_BOARD)
    document = figures("plan", path, "--memories", memories, "--board", SPIRAM_BOARD, "-o", tmp_path)
    assert [file["data"] for file in answer["files"]] == [(tmp_path / "memory_plan.h").read_bytes()]
    assert all(f"{share['used_bytes']:,}" in answer["report"] for share in document["memories"])
    assert all(json.dumps(buffer["name"]) in answer["page"] for buffer in document["buffers"])


def test_the_session_streams_a_model(tmp_path: Path) -> None:
    session = Session(tmp_path)
    images = Images(ModelBuilder().subgraph(), (1, 20, 1, 4))
    images.convolution(images.last, 8, (5, 1))
    images.main.output(images.last)
    model = tflm.Model(images.main.builder.build())
    session.ask("open", name="net.tflite", data=bytes(model.data))
    for causal in (False, True):
        answer = session.ask("stream", hop=2, causal=causal, progress=print, board=ESP32_S3)
        (file,) = answer["files"]
        assert (file["name"], file["data"]) == ("net_streaming.tflite", tflm.stream(model, hop=2, causal=causal).data)
        assert ("another network" in answer["report"]) == causal
    assert "leaves nothing of a window of 20" in session.ask("stream", hop=20, causal=False, progress=print)["error"]


def test_where_nothing_is_gained_there_is_nothing_to_take_away(session: Session) -> None:
    options = {"board": ESP32_S3, "seconds": None, "progress": print}
    for answer in (
        session.ask("plan", in_place=False, reorder=False, **options),
        session.ask("tile", macs="10%", ram="1K", **options),
    ):
        assert answer["gains"] is False
        assert "files" not in answer


def test_models_are_compared_where_they_can_be(session: Session) -> None:
    same = session.ask("compare", name="b.tflite", data=INT8_MODEL.read_bytes(), target="cortex-m")["report"]
    other = session.ask("compare", name="b.tflite", data=FLOAT_MODEL.read_bytes(), target="cortex-m")["report"]
    assert "equal" in same
    assert "equal" not in other
    assert f"{FLOAT_MODEL.stat().st_size:,}" in other


def test_boards_are_those_that_the_kernels_are_for(session: Session) -> None:
    everyone = session.ask("boards")
    assert len(everyone["fit"]) == len(boards())
    assert session.ask("boards", kernels="reference")["fit"] == everyone["fit"]
    for kernels, family in (("esp-nn", "espressif"), ("cmsis-nn", "cortex-m")):
        answer = session.ask("boards", kernels=kernels)
        shown = {name for name in boards() if f">{name}<" in answer["report"]}
        assert shown == {board.name for board in boards().values() if board.target.family == family}
        assert len(answer["fit"]) == len(shown)


@pytest.mark.parametrize(("seconds", "of_plan"), [(None, DEFAULT_TIME_LIMIT), (0.0, 0.0), (2.5, 2.5)])
def test_searches_are_given_the_seconds_that_were_asked_for(
    session: Session, monkeypatch: pytest.MonkeyPatch, seconds: float | None, of_plan: float
) -> None:
    given: list[float | None] = []
    plan, tile = tflm.plan, tflm.tile

    def planned(model: Any, resolver: Any, planner: OptimalPlanner, **options: Any) -> Any:
        given.append(planner.time_limit)
        return plan(model, resolver, "greedy", **options)

    def tiled(model: Any, *, time_limit: float | None, **options: Any) -> Any:
        given.append(time_limit)
        return tile(model, ram=1 << 30, **{key: value for key, value in options.items() if key != "ram"})

    monkeypatch.setattr(tflm, "plan", planned)
    monkeypatch.setattr(tflm, "tile", tiled)
    options = {"board": ESP32_S3, "seconds": seconds, "progress": print}
    assert session.ask("plan", in_place=False, reorder=False, **options)["gains"] is False
    assert session.ask("tile", macs="10%", ram=None, **options)["gains"] is False
    assert given == [of_plan, seconds]


@pytest.mark.parametrize("typed", [False, True])
def test_exported_files_are_those_of_the_command(session: Session, tmp_path: Path, typed: bool) -> None:
    answer = session.ask("export", typed=typed, board="nano33ble", kernels="cmsis-nn")
    said = shlex.split(html.unescape(answer["report"].removeprefix("<p><code>").removesuffix("</code></p>")))
    assert ("--typed" in said) == typed
    assert run(*said[1:2], INT8_MODEL, tmp_path / "firmware", *said[4:]).returncode == 0
    with zipfile.ZipFile(io.BytesIO(answer["files"][0]["data"])) as archive:
        files = {name: _without_origin(archive.read(name)) for name in archive.namelist()}
    written = (tmp_path / "firmware").iterdir()
    assert files == {f"firmware/{path.name}": _without_origin(path.read_bytes()) for path in written}
    assert (b"Register_FULLY_CONNECTED_INT8" in files["firmware/op_resolver.h"]) == typed


@pytest.mark.long
def test_a_model_is_made_to_fit_as_the_command_makes_it(tmp_path: Path) -> None:
    session = Session(tmp_path)
    path = tmp_path / "image.tflite"
    path.write_bytes(image_network())
    session.ask("open", name=path.name, data=path.read_bytes())
    told: list[str] = []
    best: list[dict[str, Any]] = []
    asked = {"reserve": "4K", "board": FULL_BOARD, "kernels": "cmsis-nn"}
    answer = session.ask("fit", **asked, progress=told.append, best=best.append)
    made = tmp_path / "made"
    assert run("fit", path, "--board", FULL_BOARD, "-o", made, *UNLIMITED).returncode == 0
    model, project = answer["files"]
    assert answer["fits"] is True
    assert model["data"] == (made / path.name).read_bytes() != path.read_bytes()
    with zipfile.ZipFile(io.BytesIO(project["data"])) as archive:
        packed = {name: _without_origin(archive.read(name)) for name in archive.namelist()}
    written = [path for path in made.rglob("*") if path.is_file()]
    folder = f"image_{FULL_BOARD}"
    assert packed == {f"{folder}/{p.relative_to(made)}": _without_origin(p.read_bytes()) for p in written}
    assert f"{folder}/firmware/CMakeLists.txt" in packed
    assert not any(each["fits"] for each in best)
    assert "interrupted: the best result so far" in best[0]["report"]
    assert any(text.startswith("row bands") for text in told)
    for name in ("as it is", "row bands"):
        assert json.dumps(name) in answer["page"]
    assert "fits: " in answer["report"]


def test_what_does_not_fit_names_the_command_without_the_folder_of_the_page(session: Session) -> None:
    session.ask("open", name="image.tflite", data=image_network())
    report = session.ask("arena", board=SMALL_BOARD)["report"]
    assert f"continue with: tflm fit image.tflite --board {SMALL_BOARD}" in report
    assert "choose a board" in session.ask("fit", reserve="4K", target="cortex-m4", progress=print, best=print)["error"]


@pytest.mark.parametrize(
    ("typed", "name"),
    [("Arduino Nano 33 BLE", "nano33ble"), ("xiao_esp32s3", "xiao-esp32-s3"), ("STM32F746", "stm32f746")],
)
def test_boards_and_chips_are_found_by_any_name(session: Session, typed: str, name: str) -> None:
    found = session.ask("find", name=typed)["name"]
    assert found == by_name(typed).name
    assert found.lower() == by_name(name).name.lower()
    assert found in {machine["name"] for machine in machines()}
    assert "did you mean" in session.ask("find", name="nano33bel")["error"]


def _without_version(source: bytes) -> bytes:
    """The page has the version of this commit, and an installed command that of an earlier one."""
    return re.sub(rb"(?i)(generated by tflm) [^\s\"]+", rb"\1", source)


def _without_origin(source: bytes) -> bytes:
    return b"\n".join(line for line in source.splitlines() if not re.search(b"tflm (export|fit) ", line))


# --- The page in a browser -------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def site(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page with a Pyodide of its own, built once for all processes of a run."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with (folder / "web.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            if not (RUNTIME / "pyodide-lock.json").exists():
                faulthandler.cancel_dump_traceback_later()  # A download of 170 MB is no hang.
                website.fetch_runtime(RUNTIME)
            if not (folder / "web" / "settings.json").exists():
                website.build_site(folder / "web", RUNTIME)
        except website.WebError as error:
            pytest.skip(f"the page or its Pyodide can't be had: {error}")
    return folder / "web"


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves files without a word."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address at which a folder is served."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Return the address at which the page is served."""
    with served(site) as address:
        yield address


class Visit:
    """An open page, with its requests and errors."""

    def __init__(self, browser: Any, address: str, width: int = 1400):
        self.page = browser.new_page(viewport={"width": width, "height": 900})
        self.page.set_default_timeout(PATIENCE_MS)
        self.requests: list[Any] = []
        self.wrong: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request))
        self.page.on("console", lambda message: self.wrong.append(message.text))
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.address = address

    def open(self, model: Path, board: str) -> None:
        """Give the page a model, unless it has it, and wait for all that it says of it on a board."""
        if self.page.inner_text("#model-title") != model.name:
            self.page.locator("#boards-report").evaluate("report => report.replaceChildren()")
            self.page.set_input_files("#file", model)
            self.page.wait_for_selector("#boards-report tbody tr")
        self.choose(board)

    def choose(self, board: str) -> None:
        """Choose a board, and wait for its figures."""
        choice = self.page.locator("#machine [name=machine]")
        self.page.locator("#figures").evaluate("figures => figures.replaceChildren()")
        index = choice.evaluate(
            "(choice, name) => [...choice.options].findIndex(o => o.text.startsWith(`${name}:`))", board
        )
        choice.select_option(index=index)
        self.page.wait_for_selector("#figures dd")

    def taken(self, form: str, tmp_path: Path) -> Path:
        """Return the download of a form."""
        self.page.locator(f"{form} .result").evaluate("result => result.replaceChildren()")
        self.page.click(f"{form} button:not([type=button])")
        with self.page.expect_download() as download:
            self.page.click(f"{form} .download")
        path = tmp_path / "from the page" / download.value.suggested_filename
        download.value.save_as(path)
        return path


@pytest.fixture(scope="module")
def visit(browser: Any, address: str) -> Iterator[Visit]:
    """The page, as a link shows it with an example on a board; in the end, nothing went wrong."""
    visit = Visit(browser, address)
    visit.page.goto(f"{address}?example=hello_world_int8&board={CORTEX_M55}")
    visit.page.wait_for_selector("#boards-report tbody tr")
    assert f"It fits {CORTEX_M55}" in visit.page.inner_text("#verdict")
    yield visit
    visit.page.close()
    assert visit.wrong == []


@pytest.fixture
def person_detect(corpus: Path) -> Path:
    """A model of which a plan and bands make a smaller one."""
    return corpus / "models" / "person_detect.tflite"


@pytest.mark.long
def test_boards_have_the_figures_of_the_command(visit: Visit, person_detect: Path) -> None:
    visit.open(person_detect, ESP32_S3)
    (of_command,) = figures("arena", person_detect, "--boards")["models"]
    rows = visit.page.eval_on_selector_all(
        "#boards-report tbody tr", "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
    )
    assert [row[0] for row in rows] == [board["name"] for board in of_command["boards"]]
    for row, board in zip(rows, of_command["boards"]):
        assert row[1:4] == [board["target"], board["kernels"], f"{board['minimum_arena_bytes']:,}"]
        assert row[-1].startswith("yes" if board["fits"] else "no")


@pytest.mark.long
@pytest.mark.parametrize("board", [ESP32_S3, CORTEX_M55])
def test_a_board_has_the_figures_of_the_command(visit: Visit, person_detect: Path, board: str) -> None:
    visit.open(person_detect, board)
    (measured,) = figures("arena", person_detect, "--board", board)["models"]
    shown = visit.page.locator("#figures dd").all_inner_texts()
    keys = ("minimum_arena_bytes", "arena_used_bytes", "head_bytes", "tail_bytes")
    assert shown == [f"{measured[key]:,} B" for key in keys]
    visit.page.locator("#picture").scroll_into_view_if_needed()
    picture = visit.page.frame_locator("#picture")
    picture.locator("rect.buffer").first.wait_for()
    assert picture.locator("rect.buffer").count() == len(measured["buffers"])


@pytest.mark.long
def test_the_page_is_as_wide_as_a_phone(visit: Visit, person_detect: Path) -> None:
    visit.page.set_viewport_size({"width": 420, "height": 800})
    visit.open(person_detect, ESP32_S3)
    visit.page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
    assert visit.page.evaluate("document.documentElement.scrollWidth") == 420
    visit.page.set_viewport_size({"width": 1400, "height": 900})


@pytest.mark.long
def test_what_is_downloaded_is_what_the_command_writes(visit: Visit, person_detect: Path, tmp_path: Path) -> None:
    visit.open(person_detect, ESP32_S3)
    visit.page.fill("#tile [name=ram]", "108K")
    made = {"plan": visit.taken("#plan", tmp_path), "tile": visit.taken("#tile", tmp_path)}
    for command, options in {"plan": (), "tile": ("--ram", "108K")}.items():
        path = tmp_path / f"{command}.tflite"
        answer = run(command, person_detect, "-o", path, "--board", ESP32_S3, *options)
        assert answer.returncode == 0, answer.stderr
        assert made[command].read_bytes() == path.read_bytes()
        assert path.read_bytes() != person_detect.read_bytes()


@pytest.mark.long
def test_each_of_several_memories_is_drawn(visit: Visit, person_detect: Path, tmp_path: Path) -> None:
    visit.open(person_detect, SPIRAM_BOARD)
    visit.page.fill("#memories [name=memories]", "SRAM:48K,PSRAM:1M")
    header = visit.taken("#memories", tmp_path).read_text()
    assert "MicroMemoryPlanner" in header
    visit.page.locator("#memories-picture").scroll_into_view_if_needed()
    picture = visit.page.frame_locator("#memories-picture")
    picture.locator("rect.buffer").first.wait_for()
    assert picture.locator("svg.map").count() == 2


@pytest.mark.long
def test_firmware_is_what_the_command_writes(visit: Visit, person_detect: Path, tmp_path: Path) -> None:
    visit.open(person_detect, CORTEX_M55)
    archive = zipfile.ZipFile(visit.taken("#export", tmp_path))
    said = visit.page.inner_text("#export code").split()
    (tmp_path / person_detect.name).write_bytes(person_detect.read_bytes())
    answer = run(*said[1:], cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    written = {f"firmware/{path.name}": path.read_bytes() for path in (tmp_path / "firmware").iterdir()}
    assert {name: archive.read(name) for name in archive.namelist()} == written


@pytest.mark.long
def test_a_smaller_model_is_gone_on_with_and_compared(visit: Visit, person_detect: Path, tmp_path: Path) -> None:
    visit.open(person_detect, ESP32_S3)
    visit.taken("#plan", tmp_path)
    before = visit.page.inner_text("#verdict")
    visit.page.click("#plan button:has-text('Continue')")
    visit.page.wait_for_function(
        "before => document.querySelector('#verdict').textContent.startsWith('An arena') "
        "&& document.querySelector('#verdict').textContent !== before",
        arg=before,
    )
    assert visit.page.inner_text("#model-title") == "person_detect_planned.tflite"
    visit.page.set_input_files("#comparison [name=other]", person_detect)
    visit.page.click("#comparison button")
    visit.page.wait_for_selector("#comparison .result table")
    answer = visit.page.inner_text("#comparison .result")
    assert "no tensor is off" in answer
    assert "person_detect_planned.tflite" in answer


@pytest.mark.long
def test_nothing_of_a_model_goes_to_the_network(visit: Visit) -> None:
    visit.requests.clear()
    visit.open(INT8_MODEL, CORTEX_M55)
    visit.page.click("#export button")
    visit.page.wait_for_selector("#export .download")
    assert [request.url for request in visit.requests if request.url.startswith("http")] == []


@pytest.mark.long
def test_a_model_is_made_to_fit_with_pictures_and_files(visit: Visit, tmp_path: Path) -> None:
    image = tmp_path / "image.tflite"
    image.write_bytes(image_network())
    visit.open(image, ESP32_S3)
    visit.page.fill("#machine [name=find]", "nRF52 DK")
    visit.page.keyboard.press("Enter")
    visit.page.wait_for_function(
        "() => document.querySelector('#verdict').textContent.includes('does not fit nrf52dk')"
    )
    visit.page.click("#fit button")
    visit.page.wait_for_selector("#fit .download")
    assert "fits: " in visit.page.inner_text("#fit .result")
    visit.page.locator("#fit-picture").scroll_into_view_if_needed()
    picture = visit.page.frame_locator("#fit-picture")
    picture.locator("rect.buffer").first.wait_for()
    assert picture.locator("svg.map").count() == 2
    with visit.page.expect_download() as download:
        visit.page.click("#fit .download >> nth=0")
    path = tmp_path / "fit.tflite"
    download.value.save_as(path)
    answer = run("fit", image, "--board", FULL_BOARD, "-o", tmp_path / "made", *UNLIMITED)
    assert answer.returncode == 0, answer.stderr
    assert (tmp_path / "made" / image.name).read_bytes() == path.read_bytes()
    visit.page.fill("#machine [name=find]", "nano33bel")
    visit.page.keyboard.press("Enter")
    visit.page.wait_for_selector("#find-error:has-text('did you mean')")


@pytest.mark.long
def test_c_files_are_what_the_command_writes(visit: Visit, corpus: Path, tmp_path: Path) -> None:
    name = "micro_speech_quantized"
    model = corpus / "models" / f"{name}.tflite"
    visit.open(model, CORTEX_M55)
    archive = zipfile.ZipFile(visit.taken("#compile", tmp_path))
    answer = run("compile", model, tmp_path / name, "--name", name, "--self-test", "2", "--json")
    assert answer.returncode == 0, answer.stderr
    written = {f"{name}/{path.name}": path.read_bytes() for path in (tmp_path / name).iterdir()}
    from_page = {file: archive.read(file) for file in archive.namelist()}
    assert {file: _without_version(data) for file, data in from_page.items()} == {
        file: _without_version(data) for file, data in written.items()
    }
    (compiled,) = json.loads(answer.stdout)["models"]
    said = visit.page.inner_text("#compile .result")
    assert f"{compiled['ram_bytes']:,} B" in said
    assert f"fits {CORTEX_M55} as C without an interpreter" in said


@pytest.mark.long
def test_the_keyboard_is_enough(visit: Visit) -> None:
    page = visit.page
    visit.choose(CORTEX_M55)
    page.locator("#boards-report").evaluate("report => report.replaceChildren()")
    page.focus(".skip")

    def tab_to(selector: str) -> None:
        for _ in range(20):
            page.keyboard.press("Tab")
            if page.evaluate("selector => document.activeElement.matches(selector)", selector):
                return
        raise AssertionError(f"Tab does not lead to {selector}")

    tab_to("#file")
    tab_to("#examples a")
    page.keyboard.press("Enter")
    page.wait_for_selector("#boards-report tbody tr")
    assert CORTEX_M55 in page.inner_text("#verdict")
    assert "example=" in page.url
    tab_to("#machine [name=machine]")
    page.keyboard.press("ArrowDown")
    page.wait_for_function("board => !document.querySelector('#verdict').textContent.includes(board)", arg=CORTEX_M55)
    tab_to("nav a[href='#firmware']")
    page.keyboard.press("Enter")
    tab_to("#export button")
    page.keyboard.press("Space")
    page.wait_for_selector("#export .download")
    tab_to("#export .download")


# --- Without Python --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bare_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a page without Pyodide and without wheels, which take long to build and to download."""
    folder = tmp_path_factory.mktemp("bare") / "web"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(website, "_wheels", lambda folder: [])
        website.build_site(folder, tmp_path_factory.mktemp("no_runtime"))
    with served(folder) as address:
        yield address


@pytest.fixture
def unopened(browser: Any, bare_address: str) -> Iterator[Visit]:
    """The page before it is opened; Pyodide never comes."""
    visit = Visit(browser, bare_address)
    visit.page.route("**/pyodide/**", lambda route: None)
    yield visit
    visit.page.close()


@pytest.fixture
def without_python(unopened: Visit) -> Visit:
    """The page where Pyodide never comes."""
    unopened.page.goto(unopened.address)
    return unopened


def test_a_model_is_drawn_before_python_is_there(without_python: Visit) -> None:
    page = without_python.page
    page.set_input_files("#file", INT8_MODEL)
    page.wait_for_selector("#model-title")
    assert page.inner_text("#model-title") == INT8_MODEL.name
    shown = page.inner_text("#header")
    assert f"{INT8_MODEL.stat().st_size:,} bytes" in shown
    assert "3 FULLY_CONNECTED" in shown
    assert "Loading Python" in page.inner_text("#status")


def test_a_model_that_is_chosen_before_the_page_has_its_settings_waits_for_them(unopened: Visit) -> None:
    page, held = unopened.page, []
    page.route("**/settings.json", lambda route: held.append(route))
    with page.expect_request("**/settings.json"):
        page.goto(unopened.address)
    page.set_input_files("#file", INT8_MODEL)
    assert page.inner_text("#model-title") == ""
    held[0].continue_()
    page.wait_for_selector("#model-title")
    assert page.inner_text("#model-title") == INT8_MODEL.name


def test_it_is_said_where_python_can_not_be_loaded(browser: Any, bare_address: str) -> None:
    visit = Visit(browser, bare_address)
    visit.page.route("**/pyodide/**", lambda route: route.abort())
    visit.page.goto(bare_address)
    visit.page.wait_for_selector("#error:visible")
    assert "Python can't be loaded" in visit.page.inner_text("#error")
    visit.page.close()


def test_an_example_that_there_is_not_is_answered_with_those_that_there_are(without_python: Visit) -> None:
    without_python.page.goto(f"{without_python.address}?example=cat")
    without_python.page.wait_for_selector("#error:visible")
    assert "hello_world_int8, image_network" in without_python.page.inner_text("#error")


def test_a_file_that_is_no_model_is_refused_at_once(without_python: Visit, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("arena: 64K")
    without_python.page.set_input_files("#file", tmp_path / "notes.txt")
    without_python.page.wait_for_selector("#error:visible")
    error = without_python.page.inner_text("#error")
    assert error.startswith("notes.txt is not a .tflite model but text; name a .tflite file")
    assert not without_python.page.is_visible("#model")


HEADERS = """async (models) => {
  const { headerOf } = await import("./header.js");
  const settings = await (await fetch("settings.json")).json();
  return models.map((text) => headerOf(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)), settings));
}"""


def test_headers_say_what_is_in_the_models(without_python: Visit, corpus: Path) -> None:
    paths = [corpus / "models" / f"{name}.tflite" for name in corpus_models()]
    texts = [base64.b64encode(path.read_bytes()).decode() for path in paths]
    cut = base64.b64encode(paths[0].read_bytes()[:200]).decode()
    *headers, of_cut = without_python.page.evaluate(HEADERS, [*texts, cut])
    for path, header in zip(paths, headers):
        model = tflm.Model.from_file(path)
        operators = Counter(model.operator_name(op) for graph in model.subgraphs for op in graph.operators or ())
        tensors = Counter(tensor.type.name for graph in model.subgraphs for tensor in graph.tensors or ())
        assert dict(header["operators"]) == operators
        assert dict(header["tensors"]) == tensors
    assert of_cut is None


def test_a_vector_that_is_named_many_times_is_not_read_each_time(without_python: Visit) -> None:
    """A file of 1.6 MB with 200,000 times the same 200,000 tensors."""
    count = 200_000
    table = struct.pack("<iI", 8, 4)  # its fields are 8 bytes before it; the vector follows
    vector = struct.pack("<I", count)
    subgraphs = [8 + 4 * (count - i) - 4 + 4 for i in range(count)]
    tensors = [4 * (count - i) + 4 for i in range(count)]
    model = struct.pack("<I4s", 20, b"TFL3") + struct.pack("<HHHHHH", 10, 8, 0, 0, 4, 0)
    model += struct.pack("<iI", 12, 4) + vector + struct.pack(f"<{count}I", *subgraphs)
    model += struct.pack("<HHHH", 6, 8, 4, 0) + table + vector + struct.pack(f"<{count}I", *tensors)
    model += struct.pack("<HH", 4, 4) + struct.pack("<i", 4)
    found = without_python.page.evaluate(HEADERS, [base64.b64encode(model).decode()])
    assert found == [None]


# --- The same integers -----------------------------------------------------------------------------------------------

ANSWERS = """async ([files, script]) => {
  const { loadPyodide } = await import("./pyodide/pyodide.mjs");
  const python = await loadPyodide({ indexURL: new URL("pyodide/", location).href });
  await python.loadPackage("numpy", { messageCallback: () => {} });
  const settings = await (await fetch("settings.json")).json();
  for (const wheel of settings.wheels) python.unpackArchive(await (await fetch(wheel)).arrayBuffer(), "whl");
  for (const folder of ["models", "golden"]) python.FS.mkdir(folder);
  for (const [path, text] of files) {
    python.FS.writeFile(path, Uint8Array.from(atob(text), (c) => c.charCodeAt(0)));
  }
  python.FS.writeFile("recorded_inputs.py", script);
  return python.runPython(`
    import base64, pathlib, recorded_inputs
    base64.b64encode(recorded_inputs.answers(pathlib.Path("."))).decode()`);
}"""


@pytest.fixture(scope="module")
def in_wasm(browser: Any, address: str, corpus: Path) -> Any:
    """Return the results of all models of the corpus for the recorded inputs, in Pyodide."""
    page = browser.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(f"{address}settings.json")
    paths = [path for name in corpus_models() for path in (f"models/{name}.tflite", f"golden/{name}.npz")]
    files = [[path, base64.b64encode((corpus / path).read_bytes()).decode()] for path in paths]
    packed = page.evaluate(ANSWERS, [files, (Path(__file__).parent / "recorded_inputs.py").read_text()])
    page.close()
    return np.load(io.BytesIO(base64.b64decode(packed)))


@pytest.mark.long
def test_models_answer_in_wasm_as_recorded(in_wasm: Any, corpus: Path) -> None:
    for name in corpus_models():
        _, outputs = recorded(corpus, name)
        for step, expected in enumerate(outputs):
            assert_close([in_wasm[f"{name}/out_{step}_{i}"] for i in range(len(expected))], expected)


# --- What is stopped, after which the page loads Python again -------------------------------------------------------


@pytest.mark.long
def test_a_search_can_be_stopped(visit: Visit, person_detect: Path) -> None:
    visit.open(person_detect, ESP32_S3)
    visit.page.fill("#tile [name=ram]", "")
    visit.page.fill("#tile [name=macs]", "100%")
    visit.page.click("#tile button:not([type=button])")
    visit.page.wait_for_function("() => document.querySelector('#tile .result').textContent.includes('rewrites tried')")
    visit.page.click("#stop")
    visit.page.wait_for_function("() => document.querySelector('#tile .result').textContent === 'Stopped.'")
    visit.choose(CORTEX_M55)
    assert "It fits" in visit.page.inner_text("#verdict")


@pytest.mark.long
def test_a_stopped_fit_shows_the_best_result_so_far(visit: Visit, person_detect: Path, tmp_path: Path) -> None:
    visit.open(person_detect, ESP32_S3)
    visit.choose("nrf52dk")
    visit.page.click("#fit button")
    visit.page.wait_for_function("() => document.querySelector('#fit .result').textContent.startsWith('row bands')")
    visit.page.click("#stop")
    visit.page.wait_for_selector("#fit .download")
    said = visit.page.inner_text("#fit .result")
    assert "interrupted: the best result so far" in said
    assert "does not fit: " in said
    with visit.page.expect_download() as download:
        visit.page.click("#fit .download >> nth=0")
    download.value.save_as(tmp_path / "best.tflite")
    tflm.Model.from_file(tmp_path / "best.tflite")
