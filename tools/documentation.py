"""Build the documentation site, or add it as a version to the branch that is published.

python tools/documentation.py build build/site
python tools/documentation.py publish 0.2 --alias latest
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from website import WebError, build_site

from tflm.release import project_url

ROOT = Path(__file__).parents[1]
CONFIGURATION = ROOT / "mkdocs.yml"
INDEX = "README.md"
BRANCH = "gh-pages"

PAGES_ELSEWHERE = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "examples/hello_world/README.md": "hello_world.md",
    "README.md": INDEX,
}
"""Pages of the site that are outside `docs/`, by their path in the repository; the home page stands for the README."""

TRY_IT_MARK = "<!-- try it -->"
TRY_IT = """\
<iframe id="try" src="try/?example=image_network&amp;board=nano33ble" title="Does my model fit?"
loading="lazy"></iframe>

[Open the page on its own](try/index.html){ .md-button }"""

API_NAME = re.compile(r"^## (.*)\n\n.*\n\n<!-- (::: .*) -->$", re.MULTILINE)
"""A name on a page of the API; the site replaces its heading and summary by its signature and docstring."""

UNRESOLVED = re.compile(r"\[<code>[^<]*</code>\]")
"""A reference in a docstring that mkdocstrings could not resolve."""


class DocumentationError(Exception):
    """The site could not be built."""


# --- Pages -----------------------------------------------------------------------------------------------------------


def gather(folder: Path) -> None:
    """Copy all pages of the site into a folder, with links that hold there."""
    shutil.copytree(ROOT / "docs", folder)
    sources = {f"docs/{page.name}": page.name for page in (ROOT / "docs").glob("*.md")}
    for source, name in (sources | {s: n for s, n in PAGES_ELSEWHERE.items() if n != INDEX}).items():
        text = (ROOT / source).read_text(encoding="utf-8")
        (folder / name).write_text(for_the_site(text, source), encoding="utf-8")


def for_the_site(text: str, source: str) -> str:
    """Return a page with links, the project's address and the frame of the home page as the site needs them.

    Args:
        text: the page as Markdown.
        source: its path in the repository.
    """
    here = (ROOT / source).parent

    def link(match: re.Match[str]) -> str:
        path = (here / match[1]).resolve().relative_to(ROOT).as_posix()
        return f"]({_place(path)}{match[2] or ''})"

    text = API_NAME.sub(lambda match: f'<a id="{anchor(match[1])}"></a>\n\n{match[2]}', text)
    text = re.sub(r"\]\((?!\w+:)([^)#\s]+)(#[^)]*)?\)", link, text)
    repository = project_url("Repository")
    text = text.replace("{{repository}}", repository).replace(
        "{{repository_name}}", "/".join(repository.split("/")[-2:])
    )
    return text.replace(TRY_IT_MARK, TRY_IT)


def anchor(heading: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _place(path: str) -> str:
    if path in PAGES_ELSEWHERE:
        return PAGES_ELSEWHERE[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else f"{project_url('Repository')}/blob/main/{path}"


def navigation(index: str) -> list[dict[str, Any]]:
    """Return the navigation of the site: the sections of the home page, and the pages in their tables."""
    sections = re.split(r"^## (.*)$", index, flags=re.MULTILINE)
    titles, texts = sections[1::2], sections[2::2]
    row = re.compile(r"^\| \[([^]]+)\]\(([^)]+\.md)\)", re.MULTILINE)
    return [{"Home": INDEX}, *({title: [{t: p} for t, p in row.findall(text)]} for title, text in zip(titles, texts))]


# --- Building --------------------------------------------------------------------------------------------------------


def build(site: Path, *, runtime: Path | None = None, versioned: bool = False) -> None:
    """Build the site: the pages strictly, then the page that runs the package in a browser.

    Args:
        site: the folder, which is replaced.
        runtime: a folder with Pyodide, for a site that contacts no other host.
        versioned: whether the site offers the choice of a version, which needs mike's `versions.json` beside it.

    Raises:
        DocumentationError: a link or a reference leads nowhere.
        WebError: the wheels of the browser page cannot be built.
    """
    shutil.rmtree(site, ignore_errors=True)
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        gather(work / "docs")
        configuration = yaml.safe_load(CONFIGURATION.read_text(encoding="utf-8"))
        configuration["docs_dir"], configuration["site_dir"] = "docs", "site"
        configuration["site_url"] = project_url("Documentation")
        configuration["nav"] = navigation((work / "docs" / INDEX).read_text(encoding="utf-8"))
        configuration["plugins"][1]["mkdocstrings"]["handlers"]["python"]["paths"] = [str(ROOT)]
        extra = {
            "social": [{"icon": "fontawesome/brands/git-alt", "link": project_url("Repository"), "name": "Source"}]
        }
        configuration["extra"] = extra | ({"version": {"provider": "mike"}} if versioned else {})
        (work / CONFIGURATION.name).write_text(yaml.safe_dump(configuration), encoding="utf-8")
        command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
        done = subprocess.run(command, cwd=work, capture_output=True, text=True)
        if done.returncode:
            raise DocumentationError(done.stdout + done.stderr)
        shutil.copytree(work / "site", site)
    unresolved = {found for page in site.rglob("*.html") for found in UNRESOLVED.findall(page.read_text("utf-8"))}
    if unresolved:
        raise DocumentationError(f"unresolved references: {', '.join(sorted(unresolved))}")
    build_site(site / "try", runtime)


def publish(version: str, aliases: list[str]) -> None:
    """Build the site and commit it as a version to the branch of published versions; nothing is pushed.

    Args:
        version: the folder of the version, such as `0.2` or `dev`.
        aliases: other names of it, such as `latest`, which then also becomes the default.
    """
    from mike import commands

    with tempfile.TemporaryDirectory() as temporary:
        site = Path(temporary) / "site"
        settings = {"site_dir": str(site), "use_directory_urls": True}
        message = f"Publish the documentation of {version}"
        kind = commands.AliasType.redirect
        with commands.deploy(settings, version, None, aliases, True, kind, branch=BRANCH, message=message):
            build(site, versioned=True)
    default = aliases[0] if aliases else version
    if aliases or len(list(commands.list_versions(BRANCH))) == 1:
        commands.set_default(default, branch=BRANCH, message=f"Show {default} by default", allow_empty=True)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    building = commands.add_parser("build", help="build the site")
    building.add_argument("folder", type=Path)
    building.add_argument("--runtime", type=Path, help="folder of Pyodide to include; loaded from a CDN by default")
    publishing = commands.add_parser("publish", help=f"commit the site as a version to the branch {BRANCH}")
    publishing.add_argument("version")
    publishing.add_argument("--alias", action="append", default=[], help="another name of the version, such as latest")
    options = parser.parse_args()
    try:
        if options.command == "build":
            build(options.folder, runtime=options.runtime)
        else:
            publish(options.version, options.alias)
    except (DocumentationError, WebError) as error:
        sys.exit(f"documentation: {error}")


if __name__ == "__main__":
    main()
