"""Insert single-line faults into the package and count how many of them the tests catch.

    python tools/faults.py [--package NAME]... [--count N] [--seed N] [--jobs N] [--floor PERCENT]

For each package (a folder of tflm/, or "tflm" for the modules beside them), N lines are drawn by the seed, and a fault
of each. A fault is put into a copy of the tree in build/faults, never into the checkout. There run the tests that run
the function with the fault, or functions that use the constant or class with it, then those that run others of its
module (or that are in files that import it, where it has no functions), until one fails; a hang counts as a failure.
Half of the time is for tests of files that import the module and tests that run few functions in all, half for the
fastest. Survivors are printed. The exit status is 1 where fewer faults of a package are caught than the floor.

Which test runs which functions is recorded in a first run of the tests, with eight examples of each random test, as
many as run for a fault. It takes some minutes, and is kept: only files of tests that have changed are recorded again,
or all if the recorder has changed (`--fresh` records all). Tests that fail while they are recorded are left out, and
named. The tests of defaults and limits, which read declarations and run no function, are added where a fault is in one.

Established tools do not serve here. mutmut turns every function of a module into a switch between its mutants, but the
kernels are compiled from the code of their functions, and cached by the text of their file. cosmic-ray changes the
checkout in place, and runs the same command, all tests, for each fault.
"""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import contextlib
import hashlib
import itertools
import json
import os
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from fault_plugin import SELECTION
from fault_recorder import RECORD
from fault_sites import Fault, applied, faults

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "faults"
CACHE = WORK / "cache"
"""Machine code of kernels, whose names in the cache follow from their sources: all copies share it and runs keep it."""

CORPUS = Path(os.environ.get("TFLM_CORPUS", ROOT.parent / "shared"))
PYODIDE = Path(os.environ.get("TFLM_PYODIDE", ROOT / "build" / "pyodide"))
FILES_AT_A_TIME = 8
"""Number of test files recorded at once; an interruption loses these."""

CASES_OF_A_TEST = 2
"""The fastest cases of a test function that are kept for a function of the package; a fault runs some of them."""

READ_DECLARATIONS = (
    "tests/test_public_defaults.py::test_limits_and_defaults_are_the_recorded_ones",
    "tests/test_public_defaults.py::test_public_functions_have_the_recorded_defaults",
    "tests/test_schema.py::test_fields_have_the_defaults_of_the_schema",
    "tests/test_schema.py::test_enumerations_have_the_numbers_of_the_schema",
)
"""Tests that compare what is declared with a record or with the schema, and run no function of the package."""

COMPARE_FIGURES = ("tests/test_figures.py", "tests/test_recorded_programs.py")
"""Files of tests that compare whole plans and programs with recorded ones, and see changes of anything that leads to
them."""

PATIENCE_SECONDS, PATIENCE_FACTOR = 45.0, 12.0
"""A run of tests hangs when it takes this long, and this many times the time it took when it was recorded."""


class Test(NamedTuple):
    """A test: its file, how long it takes, and the functions that it runs, as "path:qualified.name"."""

    seconds: float
    functions: frozenset[str]


class Verdict(NamedTuple):
    """The result of a fault."""

    path: str
    fault: Fault
    tests: int
    caught: bool


# --- Copies of the tree ---------------------------------------------------------------------------------------------


class Tree:
    """A copy of the tree with its own environment, so that child processes import the copy, too."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.python = folder / ".venv" / "bin" / "python"
        self.cache = CACHE
        self.log = folder.with_suffix(".log")

    def make(self) -> None:
        """Copy tracked and untracked files, and the installed packages."""
        listed = subprocess.check_output(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, text=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).exists():
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.folder / name)
        self._make_environment()

    def copy_of(self, other: Tree) -> None:
        """Copy another copy, including its bytecode."""
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(other.folder, self.folder, ignore=shutil.ignore_patterns(".venv", "tmp"))
        self._make_environment()

    def _make_environment(self) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.folder / ".venv"], check=True)
        (packages,) = (self.folder / ".venv").glob("lib/python*/site-packages")
        installed = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
        record = f"import os; os.environ.get({RECORD!r}) and __import__('fault_recorder')"
        lines = [str(self.folder), str(self.folder / "tools"), *installed, record]
        (packages / "tree.pth").write_text("".join(f"{line}\n" for line in lines))

    def pytest(self, arguments: list[str], environment: dict[str, str], seconds: float | None = None) -> int:
        """Run pytest on the copy; returns its exit status, 1 where it takes longer than so many seconds."""
        command = [str(self.python), "-m", "pytest", "-q", "-p", "fault_plugin", "-p", "no:cacheprovider", "--color=no"]
        command += ["--hang-seconds", "0"]
        command += ["--basetemp", str(self.folder / "tmp"), *arguments]
        variables = {
            **os.environ,
            "PATH": f"{self.python.parent}{os.pathsep}{os.environ['PATH']}",
            "TFLM_HYPOTHESIS": "default",
            "TFLM_CORPUS": str(CORPUS),
            "TFLM_PYODIDE": str(PYODIDE),
            "TFLM_CACHE_DIR": str(self.cache),
            **environment,
        }
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                return self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                return 1
            finally:
                self.stop()

    def stop(self) -> None:
        """Kill the running tests and all of their child processes."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


# --- Which test runs which functions --------------------------------------------------------------------------------


def recorded(tree: Tree, files: list[str], jobs: int, fresh: bool) -> dict[str, Test]:
    """The tests of these files that pass, by the name that pytest gives them."""
    kept = WORK / "tests.json"
    known = json.loads(kept.read_text()) if kept.exists() else {}
    recorder = b"".join((ROOT / "tools" / name).read_bytes() for name in ("fault_recorder.py", "fault_plugin.py"))
    digests = {file: hashlib.sha256((ROOT / file).read_bytes() + recorder).hexdigest() for file in files}
    stale = [file for file in files if fresh or file not in known or known[file]["digest"] != digests[file]]
    for begin in range(0, len(stale), FILES_AT_A_TIME):
        print(f"recording: {len(stale) - begin} files of tests to go", file=sys.stderr, flush=True)
        some = stale[begin : begin + FILES_AT_A_TIME]
        tests = _record(tree, jobs, some)
        for file in some:
            of_file = {test: entry for test, entry in tests.items() if test.split("::")[0] == file}
            known[file] = {"digest": digests[file], "tests": fastest(of_file)}
        kept.write_text(json.dumps(known))
    return {
        name: Test(seconds, frozenset(functions))
        for file in files
        for name, (seconds, functions) in known[file]["tests"].items()
    }


def _record(tree: Tree, jobs: int, files: list[str]) -> dict[str, Test]:
    folder = WORK / "record"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    status = tree.pytest(["-n", str(jobs), *files], {RECORD: str(folder)})
    if status not in (0, 1):
        print(f"pytest ended with status {status}: see {tree.log}", file=sys.stderr, flush=True)
    lines: dict[str, set[str]] = defaultdict(set)
    seconds: dict[str, float] = defaultdict(float)
    outcomes: dict[str, set[str]] = defaultdict(set)
    for path in folder.iterdir():
        test = ""
        for line in path.read_text(encoding="utf-8").splitlines():
            if line[0] == "=":
                test = line[1:]
            elif line[0] == "+":
                duration, outcome = line[1:].split()
                seconds[test] += float(duration)
                outcomes[test].add(outcome)
            elif ".py:" in line:  # not one that a killed process left unfinished
                lines[test].add(line)
    for test in sorted(test for test in outcomes if "failed" in outcomes[test]):
        print(f"left out, fails without a fault: {test}", file=sys.stderr, flush=True)
    names = _Names()
    usable = [test for test in outcomes if outcomes[test] == {"passed"}]
    return {test: Test(seconds[test], frozenset(map(names.of, lines[test]))) for test in usable}


def fastest(tests: dict[str, Test]) -> dict[str, tuple[float, list[str]]]:
    """The tests, each with the functions for which it is one of the fastest cases of its test function."""
    found: dict[str, tuple[float, list[str]]] = {}
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for name, test in sorted(tests.items(), key=lambda item: item[1].seconds):
        cases = name.split("[")[0]
        some = sorted(function for function in test.functions if counts[cases, function] < CASES_OF_A_TEST)
        for function in some:
            counts[cases, function] += 1
        if some:
            found[name] = (test.seconds, some)
    return found


class _Names:
    """Functions by the line where they begin."""

    def __init__(self) -> None:
        self._functions: dict[str, list[tuple[int, int, str]]] = {}

    def of(self, place: str) -> str:
        """The function "path:qualified.name" at "path:line"."""
        path, _, line = place.rpartition(":")
        if path not in self._functions:
            source = (WORK / "tree" / "tflm" / path).read_text(encoding="utf-8")
            self._functions[path] = list(functions(source))
        return f"{path}:{function_at(self._functions[path], int(line))}"


def functions(source: str) -> Iterator[tuple[int, int, str]]:
    """The functions of a source, outer before inner: first line, last line, qualified name."""

    def below(node: ast.AST, prefix: str) -> Iterator[tuple[int, int, str]]:
        for child in ast.iter_child_nodes(node):
            name = prefix
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                name = f"{prefix}.{child.name}".lstrip(".")
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                first = min([child.lineno, *(of.lineno for of in child.decorator_list)])
                yield first, child.end_lineno or 0, name
            yield from below(child, name)

    return below(ast.parse(source), "")


def function_at(known: Iterable[tuple[int, int, str]], line: int) -> str:
    """The innermost function at a line; "" outside all of them."""
    return ([name for first, last, name in known if first <= line <= last] or [""])[-1]


# --- Faults ---------------------------------------------------------------------------------------------------------


def packages() -> dict[str, list[Path]]:
    """The modules of each package, without those that draw random models: any draw is as good as another."""
    found = {"tflm": sorted((ROOT / "tflm").glob("*.py"))}
    for folder in sorted((ROOT / "tflm").iterdir()):
        if (folder / "__init__.py").exists():
            found[folder.name] = sorted(set(folder.rglob("*.py")) - set(folder.glob("operators/*.py")))
    return found


def drawn(modules: list[Path], count: int, seed: str) -> list[tuple[str, Fault]]:
    """Faults of so many lines, and the module of each."""
    lines: dict[tuple[str, int], list[Fault]] = defaultdict(list)
    for path in modules:
        for fault in faults(path.read_text(encoding="utf-8")):
            lines[path.relative_to(ROOT / "tflm").as_posix(), fault.line].append(fault)
    dice = random.Random(seed)
    chosen = dice.sample(sorted(lines), min(count, len(lines)))
    return [(path, dice.choice(lines[path, line])) for path, line in chosen]


def is_declaration(source: str, line: int) -> bool:
    """Whether a line is outside of the bodies of functions: in a signature, a class or the module."""
    found = (node for node in ast.walk(ast.parse(source)) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
    return not any(node.body[0].lineno <= line <= (node.end_lineno or 0) for node in found)


def concerned(folder: Path, path: str, line: int) -> set[str]:
    """The functions whose tests see a line of a module: the one that it is in, or those that use what it defines.

    What a cached function returns is made by the first test that needs it: those that use it count as well.
    """
    source = (folder / path).read_text(encoding="utf-8")
    known = list(functions(source))
    function = function_at(known, line)
    if function:
        is_cached = any(name == function and "cache" in source.splitlines()[first - 1] for first, _, name in known)
        return {f"{path}:{function}"} | (_users(folder, {function.rpartition(".")[2]}) if is_cached else set())
    return _users(folder, defined_at(source, line))


def defined_at(source: str, line: int) -> set[str]:
    """The names that a line outside of functions defines: those of its class, or of a constant."""
    node: ast.AST = ast.parse(source)
    while True:
        below = (each for each in getattr(node, "body", ()) if each.lineno <= line <= (each.end_lineno or 0))
        inner = next(below, None)
        if isinstance(node, ast.ClassDef) and not isinstance(inner, ast.ClassDef):
            return {node.name}
        if inner is None or not hasattr(inner, "body"):
            targets = getattr(inner, "targets", None) or [getattr(inner, "target", None)]
            return {each.id for target in targets if target for each in ast.walk(target) if isinstance(each, ast.Name)}
        node = inner


def _users(folder: Path, names: set[str]) -> set[str]:
    """The functions of the package that mention a name."""
    mentions = re.compile(rf"\b({'|'.join(map(re.escape, names)) or '(?!)'})\b")
    found = set()
    for module in sorted(folder.rglob("*.py")):
        source = module.read_text(encoding="utf-8")
        if mentions.search(source):
            known = list(functions(source))
            lines = [number for number, text in enumerate(source.splitlines(), 1) if mentions.search(text)]
            users = {function_at(known, number) for number in lines} - {""}
            found |= {f"{module.relative_to(folder).as_posix()}:{user}" for user in users}
    return found


def selected(
    tests: dict[str, Test], path: str, concerned: set[str], importers: Iterable[str], seconds: float
) -> list[str]:
    """The tests to run for a fault in a module that concerns functions, at most so many seconds of them, in turn.

    First come those that run such a function, then those that run others of the module: it may never be recorded. Half
    of the time is for tests that are likely to see it: those of the importers, and those that compare figures, before
    others, and those that run few functions before those that run many. Half is for the fastest.
    """
    direct = [test for test, entry in tests.items() if concerned & entry.functions]
    others = [test for test in _of_module(tests, path) if test not in set(direct)]
    near, breadth = set(importers), _breadth(tests, direct)

    def distance(test: str) -> tuple[bool, int]:
        return test not in near and not test.startswith(COMPARE_FIGURES), breadth[_cases(test)]

    def duration(test: str) -> float:
        return tests[test].seconds

    taken = _within(tests, sorted(direct, key=distance), seconds / 2)
    for more in (direct, others):
        left = seconds - sum(map(duration, taken))
        taken += _within(tests, sorted((test for test in more if test not in set(taken)), key=duration), left)
    return _in_turn(tests, taken)


def _cases(test: str) -> str:
    """The name that all cases of a test have in common."""
    return test.split("[")[0]


def _breadth(tests: dict[str, Test], some: list[str]) -> dict[str, int]:
    """How many functions the cases of each of some tests run together."""
    run: dict[str, set[str]] = {_cases(test): set() for test in some}
    for test, entry in tests.items():
        if _cases(test) in run:
            run[_cases(test)] |= entry.functions
    return {name: len(found) for name, found in run.items()}


def _of_module(tests: dict[str, Test], path: str) -> list[str]:
    """The tests that run functions of a module, and do more than import it."""
    return [
        test
        for test, entry in tests.items()
        if any(name.startswith(f"{path}:") and not name.endswith(":") for name in entry.functions)
    ]


def importing(tests: dict[str, Test], folder: Path, path: str) -> list[str]:
    """The tests of the files that import a module: of one that only declares classes, no function is recorded."""
    package, _, name = f"tflm.{path.removesuffix('.py').replace('/', '.')}".rpartition(".")
    imports = re.compile(rf"^from {re.escape(package)}([.]{name} import| import\b[^\n]*\b{name}\b)", re.MULTILINE)
    files = {test.split("::")[0] for test in tests}
    found = {file for file in files if imports.search((folder / file).read_text(encoding="utf-8"))}
    return [test for test in tests if test.split("::")[0] in found]


def _within(tests: dict[str, Test], fit: Iterable[str], seconds: float) -> list[str]:
    """As many of the tests as take so long, with the fastest case of each test first, then the second of each."""
    cases: dict[str, list[str]] = defaultdict(list)
    for test in fit:
        cases[_cases(test)].append(test)
    turns = itertools.zip_longest(*(sorted(some, key=lambda test: tests[test].seconds) for some in cases.values()))
    taken = []
    for test in filter(None, itertools.chain.from_iterable(turns)):
        if tests[test].seconds <= seconds:
            seconds -= tests[test].seconds
            taken.append(test)
    return taken


def _in_turn(tests: dict[str, Test], some: list[str]) -> list[str]:
    """Tests in the order in which they run: the file first whose tests take the least, and its fastest first."""
    of_file: dict[str, list[str]] = defaultdict(list)
    for test in sorted(some, key=lambda test: tests[test].seconds):
        of_file[test.split("::")[0]].append(test)
    files = sorted(of_file.values(), key=lambda of_file: sum(tests[test].seconds for test in of_file))
    return list(itertools.chain.from_iterable(files))


def tried(tree: Tree, path: str, fault: Fault, tests: dict[str, Test], seconds: float) -> Verdict:
    """Put a fault into a copy of the tree, run its tests, and take it out."""
    module = tree.folder / "tflm" / path
    source = module.read_text(encoding="utf-8")
    importers = importing(tests, tree.folder, path)
    functions_of_fault = concerned(tree.folder / "tflm", path, fault.line)
    chosen = selected(tests, path, functions_of_fault, importers, seconds) or _within(tests, importers, seconds)
    if is_declaration(source, fault.line):
        chosen = [*READ_DECLARATIONS, *chosen]
    if not chosen:
        return Verdict(path, fault, 0, False)
    tree.cache = tree.folder / "cache" if path.startswith("compiler/") else CACHE
    if tree.cache != CACHE:  # what a faulty compiler makes is for nobody else
        shutil.rmtree(tree.cache, ignore_errors=True)
        shutil.copytree(CACHE, tree.cache, copy_function=os.link)
    try:
        module.write_text(applied(source, fault), encoding="utf-8")
        for compiled in (module.parent / "__pycache__").glob(f"{module.stem}.*.pyc"):
            compiled.unlink()
        patience = PATIENCE_SECONDS + PATIENCE_FACTOR * sum(tests[test].seconds for test in chosen if test in tests)
        return Verdict(path, fault, len(chosen), _run(tree, chosen, patience) != 0)
    finally:
        module.write_text(source, encoding="utf-8")


def _run(tree: Tree, tests: list[str], seconds: float | None) -> int:
    selection = tree.folder.with_suffix(".tests")
    selection.write_text("".join(f"{test}\n" for test in tests), encoding="utf-8")
    files = list(dict.fromkeys(test.split("::")[0] for test in tests))
    variables = {SELECTION: str(selection), "PYTHONDONTWRITEBYTECODE": "1"}
    status = tree.pytest(["-n", "0", "-x", *files], variables, seconds)
    return 0 if status == 5 else status  # 5: none of the tests is collected


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Count how many single-line faults the tests catch.")
    parser.add_argument("--package", action="append", choices=packages(), help="a package to try; default: all")
    parser.add_argument("--count", type=int, default=5, help="faults for each package; default: %(default)s")
    parser.add_argument("--seed", type=int, default=None, help="which faults; default: by the clock, and printed")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time; default: %(default)s")
    parser.add_argument("--seconds", type=float, default=45.0, help="tests for a fault; default: %(default)g s of them")
    parser.add_argument("--floor", type=float, default=85.0, help="percent to catch; default: %(default)g")
    parser.add_argument("--tests", nargs="+", metavar="FILE", help="files of tests to use; default: all")
    parser.add_argument("--fresh", action="store_true", help="record again which functions the tests run")
    options = parser.parse_args()
    seed = int(time.time()) if options.seed is None else options.seed
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))

    CACHE.mkdir(parents=True, exist_ok=True)
    base = Tree(WORK / "tree")
    base.make()
    files = options.tests or [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "tests").glob("test_*.py"))]
    tests = recorded(base, files, options.jobs, options.fresh)
    trees = [Tree(WORK / f"job{job}") for job in range(options.jobs)]
    for tree in trees:
        tree.copy_of(base)
    shares = {}
    for package in options.package or packages():
        places = drawn(packages()[package], options.count, f"{seed} {package}")
        shares[package] = _percent_caught(package, places, trees, tests, options.seconds)
    print(f"seed {seed}: {sum(shares.values()) / len(shares):.0f} % of a package on average")
    sys.exit(min(shares.values()) < options.floor)


def _percent_caught(
    package: str, places: list[tuple[str, Fault]], trees: list[Tree], tests: dict[str, Test], seconds: float
) -> float:
    """Try the faults of a package, one in each tree at a time, and print those that survive."""
    idle: queue.SimpleQueue[Tree] = queue.SimpleQueue()
    for tree in trees:
        idle.put(tree)

    def verdict(place: tuple[str, Fault]) -> Verdict:
        tree = idle.get()
        try:
            return tried(tree, *place, tests, seconds)
        finally:
            idle.put(tree)

    caught = 0
    with concurrent.futures.ThreadPoolExecutor(len(trees)) as pool:
        try:
            for result in pool.map(verdict, places):
                caught += result.caught
                if not result.caught:
                    print(_survivor(result), flush=True)
        finally:
            for tree in trees:
                tree.stop()
    percent = 100 * caught / max(len(places), 1)
    print(f"{package}: {caught} of {len(places)} caught, {percent:.0f} %", flush=True)
    return percent


def _survivor(result: Verdict) -> str:
    tests = f"{result.tests} tests ran" if result.tests else "no test runs it"
    return f"tflm/{result.path}:{result.fault.line}: {tests}\n  - {result.fault.original}\n  + {result.fault.changed}"


if __name__ == "__main__":
    main()
