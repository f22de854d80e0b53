"""The documentation site: its pages in a browser, its navigation, and its published versions."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag, urljoin, urlsplit

import documentation
import pytest
from example_models import INT8_MODEL
from test_cli import figures
from test_web import PATIENCE_MS, RUNTIME, served

from tflm.release import project_url

ROOT = Path(__file__).parents[1]

REASON = "the documentation site needs the extra `docs`: run `make docs-test`"
for module in ("zensical", "mike"):
    pytest.importorskip(module, reason=REASON)

WIDTHS = (375, 1440)
LOCAL = ("http://127.0.0.1", "blob:", "data:")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, as `make docs` builds it, with a Pyodide of its own."""
    folder = tmp_path_factory.mktemp("documentation") / "site"
    if not (RUNTIME / "pyodide-lock.json").exists():
        pytest.skip("needs Pyodide: run `make web-runtime`")
    documentation.build(folder, runtime=RUNTIME)
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Return the address at which the site is served."""
    with served(site) as address:
        yield address


@pytest.fixture(params=WIDTHS)
def page(request: pytest.FixtureRequest, browser: Any) -> Iterator[Any]:
    """A tab of a phone's and a desktop's width; in the end, the console is empty and nothing left this machine."""
    page = browser.new_page(viewport={"width": request.param, "height": 900})
    page.set_default_timeout(PATIENCE_MS)
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("response", lambda answer: wrong.append(answer.url) if answer.status >= 400 else None)
    page.on("request", lambda asked: None if asked.url.startswith(LOCAL) else wrong.append(asked.url))
    yield page
    page.close()
    assert wrong == []


def test_no_page_scrolls_sideways(page: Any, address: str, site: Path) -> None:
    pages = sorted(f"{html.parent.name}/" for html in site.glob("*/index.html") if html.parent.name != "try")
    for name in ["", *pages]:
        page.goto(address + name)
        page.wait_for_function("() => document.fonts.ready")
        excess = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert excess <= 0, name


def test_the_search_finds_kernels_of_cmsis_nn(page: Any, address: str) -> None:
    page.goto(address)
    page.wait_for_load_state("networkidle")
    page.keyboard.press("/")
    page.keyboard.type("kernels cmsis-nn")
    page.get_by_text(re.compile(r"^\d+ results$")).wait_for()
    assert page.locator("mark:has-text('kernels')").count()


def test_the_search_takes_names_with_underscores_whole(page: Any, address: str) -> None:
    page.goto(address)
    page.wait_for_load_state("networkidle")
    page.keyboard.press("/")
    page.keyboard.type("tensor_arena")
    page.get_by_text(re.compile(r"^\d+ results$")).wait_for()
    assert page.locator("mark:has-text('tensor_arena')").count()
    assert not page.get_by_text("Flex").count()


def test_the_api_shows_every_name_and_no_module(site: Path) -> None:
    """A function with the name of its module is shown, not the module."""
    for page in (ROOT / "docs").glob("api_*.md"):
        text = (site / page.stem / "index.html").read_text("utf-8")
        names = re.findall(r"^<!-- ::: (.*) -->$", page.read_text("utf-8"), re.MULTILINE)
        assert names, page
        for name in names:
            assert f'id="{name}"' in text
            assert not (ROOT / name.replace(".", "/")).with_suffix(".py").exists()


def test_the_home_page_shows_a_measured_example_without_python(page: Any, address: str) -> None:
    page.goto(address)
    frame = page.frame_locator("#try")
    frame.locator("#figures dd").first.wait_for()
    assert "It fits nano33ble" in frame.locator("#verdict").inner_text()
    assert not any("try/worker.js" in worker.url for worker in page.workers)


def test_a_model_of_ones_own_is_measured_on_the_home_page(page: Any, address: str) -> None:
    page.goto(address)
    frame = page.frame_locator("#try")
    frame.locator("#figures dd").first.wait_for()
    frame.locator("#file").set_input_files(INT8_MODEL)
    (measured,) = figures("arena", INT8_MODEL, "--board", "nano33ble")["models"]
    frame.locator(f"#verdict:has-text('{measured['minimum_arena_bytes']:,} bytes')").wait_for()
    frame.locator("#more").click()
    frame.locator("#boards-report tbody tr").first.wait_for()


def test_links_lead_to_pages_and_places_of_the_site(site: Path) -> None:
    pages = [page for page in site.rglob("*.html") if "try" not in page.parts and page.name != "404.html"]
    texts = {page: page.read_text("utf-8") for page in pages}
    places = {page: set(re.findall(r'id="([^"]+)"', text)) for page, text in texts.items()}
    dead = []
    for page, text in texts.items():
        for link in re.findall(r'(?:href|src)="([^"]+)"', text):
            target, anchor = urldefrag(urljoin(page.as_uri(), link))
            path = Path(urlsplit(target).path)
            path = path / "index.html" if path.is_dir() else path
            if target.startswith("file:") and (not path.exists() or (anchor and anchor not in places[path])):
                dead.append(f"{page.parent.name}: {link}")
    assert dead == []


def test_navigation_is_by_task_and_has_every_page_once() -> None:
    home, *sections = documentation.navigation((ROOT / "docs" / "README.md").read_text("utf-8"))
    assert home == {"Home": "README.md"}
    assert [title for section in sections for title in section][:4] == [
        "Size an arena",
        "Make it fit",
        "Why does my device differ",
        "Run in Python",
    ]


def test_versions_are_committed_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def built(folder: Path, *, versioned: bool) -> None:
        folder.mkdir(parents=True)
        (folder / "index.html").write_text(f"versioned {versioned}")

    monkeypatch.setattr(documentation, "build", built)
    monkeypatch.chdir(tmp_path)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for name, value in {"user.name": "a", "user.email": "a@example.org"}.items():
        subprocess.run(["git", "init", "-q", "."], check=True)
        subprocess.run(["git", "config", name, value], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    documentation.publish("dev", [])
    documentation.publish("0.2", ["latest"])
    listed = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", documentation.BRANCH], capture_output=True, text=True, check=True
    ).stdout.split()
    assert {"dev/index.html", "0.2/index.html", "latest/index.html", "versions.json", "index.html"} <= set(listed)
    shown = subprocess.run(["git", "show", f"{documentation.BRANCH}:index.html"], capture_output=True, text=True)
    assert "latest/" in shown.stdout


def test_pages_name_the_address_of_the_project(site: Path) -> None:
    page = (site / "ci" / "index.html").read_text("utf-8")
    repository = project_url("Repository")
    assert repository in page
    assert f"{repository.split('/', 3)[-1]}@main" in re.sub(r"<[^>]+>", "", page)
    assert not any("{{repository" in each.read_text("utf-8") for each in site.glob("*/index.html"))
