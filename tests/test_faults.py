"""The mutation tester: which faults it makes, which tests it runs for them, and what its recorder sees."""

from __future__ import annotations

import ast
import os
import resource
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fault_plugin
import pytest
from fault_recorder import RECORD, functions_of
from fault_sites import Fault, applied, faults
from faults import (
    CASES_OF_A_TEST,
    concerned,
    fastest,
    function_at,
    functions,
    importing,
    is_declaration,
    packages,
    selected,
)
from faults import Test as Entry

from tflm.boards.table import boards
from tflm.compiler.calls import is_available
from tflm.runtime.host_placement import _colliding
from tflm.targets import align_down, align_up

ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "tflm").rglob("*.py"))


def changes(line: str) -> set[str]:
    """Return the faulty versions of a source's last line."""
    last = line.count("\n") + 1
    return {fault.changed for fault in faults(line) if fault.line == last}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("def f(a, b): return a < b", {"def f(a, b): return a <= b"}),
        ("def f(a, b): return a >= b", {"def f(a, b): return a > b"}),
        ("def f(a): return a is not None", {"def f(a): return a is None"}),
        ("def f(a): return a + 7", {"def f(a): return a - 7", "def f(a): return a + 8", "def f(a): return a + 6"}),
        ("def f(a, b): return a // b", {"def f(a, b): return a * b", "def f(a, b): return -(-(a) // (b))"}),
        ("def f(a, b): return min(a, b)", {"def f(a, b): return max(a, b)"}),
        ("def f(a, b): return a and b", {"def f(a, b): return a or b"}),
        ("def f(a): return not a", {"def f(a): return (a)"}),
        ("def f(a): return g(b=True)", {"def f(a): return g(b=False)"}),
        ("def f(a): a.clear()", {"def f(a): pass"}),
        ("def f(a, b): return a[b:]", {"def f(a, b): return a[(b) + 1:]"}),
        ("def f(a, b): return a[:b]", {"def f(a, b): return a[:(b) - 1]"}),
        ("def f(a): return range(a)", {"def f(a): return range((a) - 1)"}),
        ("def f(a):\n if a: a = 0", {"if not a: a = 0", "if a: a = 1"}),
        ("LIMIT = 4", {"LIMIT = 5", "LIMIT = 3"}),
        ("def f(é, b): return é < b", {"def f(é, b): return é <= b"}),
    ],
)
def test_a_line_gets_the_slips_of_its_operators(line: str, expected: set[str]) -> None:
    assert changes(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        '"""1 < 2"""',
        "def f(a: 'int | None') -> 'list[int | None]': return a",
        "@dataclass(frozen=True)\nclass A: pass",
        "def f(a): assert a < 2, 'not ' + 'b'",
        "def f(a): raise ValueError(f'{a + 1} is not {a < 2}')",
        "def f(a): return f'{a + 1}'",
        "def f(a): _log.warning('%d', a + 1)",
        "def f(a): warnings.warn(a, stacklevel=2)",
        "def f(a): a.mkdir(exist_ok=True)[a]",
        "TABLE = {1: 2}",
        "IDLE_SECONDS = 3",
        "MAX_ATTEMPTS = 3",
        "ROUNDS_PER_BODY: int = 20",
        "def f(a):\n for _ in range(MAX_ATTEMPTS): yield a",
        "def f(a): return np.random.default_rng(a + 1).random()",
        "def f(a): a = random.Random(0)",
        "class A:\n def __repr__(self): return self.a + 1",
        "class A(IntEnum):\n B = 1",
        "def f(a): return a.reshape(-1, b)",
        "def f(a): return wait(timeout=3)",
        "def f(a): time.sleep(a / 50)",
        "def f(end): return time.monotonic() > end",
        "def f(a): return sha256(a).hexdigest()[:24]",
        "def f(a): return calls(min_count=8, max_size=a + 1)",
        "def f(a): os.fsync(a + 1)",
        "def f(a=1) -> st.SearchStrategy[int]: return st.integers(a + 1, 9)",
        "@st.composite\ndef f(draw): return draw(st.integers(1, 9)) + 1",
    ],
)
def test_what_does_not_change_the_behaviour_gets_no_fault(line: str) -> None:
    assert changes(line) - {line.replace("a.mkdir(exist_ok=True)[a]", "pass")} == set()


@pytest.mark.parametrize("path", MODULES[::16], ids=lambda path: path.stem)
def test_a_fault_changes_one_line_and_still_compiles(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    for fault in faults(source)[:: 1 + len(source) // 500]:
        changed = applied(source, fault)
        ast.parse(changed)
        pairs = list(zip(source.split("\n"), changed.split("\n"), strict=True))
        different = [line for line, (before, after) in enumerate(pairs, 1) if before != after]
        assert different == [fault.line]
        assert pairs[fault.line - 1][1].strip() == fault.changed != fault.original


def test_the_size_of_a_cache_gets_no_fault_but_other_constants_do() -> None:
    source = "KEPT = 1 << 12\nTAKEN = 1 << 12\n@functools.lru_cache(KEPT)\ndef f(a):\n    return a\n"
    assert {fault.line for fault in faults(source)} == {2}


def test_every_package_has_faults() -> None:
    for package, modules in packages().items():
        assert any(faults(path.read_text(encoding="utf-8")) for path in modules), package


def test_an_applied_fault_takes_the_place_of_its_line_only() -> None:
    assert applied("a = 1\n  a = 1\na = 1\n", Fault(2, "a = 1", "a = 2")) == "a = 1\n  a = 2\na = 1\n"


SOURCE = """
import a

class B:
    @property
    def c(self):
        def d():
            return 1
        return d

    e = 2
"""


@pytest.mark.parametrize(("line", "name"), [(1, ""), (5, "B.c"), (6, "B.c"), (8, "B.c.d"), (9, "B.c"), (11, "")])
def test_a_line_belongs_to_the_innermost_function(line: int, name: str) -> None:
    assert function_at(functions(SOURCE), line) == name


@pytest.mark.parametrize(
    ("line", "is_one"), [(1, True), (4, True), (5, True), (6, True), (7, False), (9, True), (11, True)]
)
def test_what_is_outside_of_bodies_of_functions_is_declared(line: int, is_one: bool) -> None:
    source = "import a\n\n@a\n# comment\ndef f(\n    b=1):\n    c = 2\n\nclass D:\n\n    e = 1\n"
    assert is_declaration(source, line) == is_one


def test_tests_of_the_function_are_chosen_before_those_of_its_module_within_the_time() -> None:
    tests = {
        "a.py::slow": Entry(50, frozenset({"m.py:f"})),
        "a.py::fast[1]": Entry(2, frozenset({"m.py:f"})),
        "a.py::fast[2]": Entry(1, frozenset({"m.py:f"})),
        "b.py::other": Entry(1, frozenset({"m.py:g"})),
        "b.py::elsewhere": Entry(1, frozenset({"n.py:f"})),
    }
    assert selected(tests, "m.py", {"m.py:f"}, [], 100) == [
        "b.py::other",
        "a.py::fast[2]",
        "a.py::fast[1]",
        "a.py::slow",
    ]
    assert selected(tests, "m.py", {"m.py:f"}, [], 4) == ["b.py::other", "a.py::fast[2]", "a.py::fast[1]"]
    assert selected(tests, "m.py", {"m.py:f"}, [], 3) == ["a.py::fast[2]", "a.py::fast[1]"]
    assert selected(tests, "m.py", set(), [], 10) == ["b.py::other", "a.py::fast[2]", "a.py::fast[1]"]
    assert selected(tests, "o.py", {"o.py:f"}, [], 10) == []


def test_half_of_the_time_is_for_tests_that_import_the_module_or_run_few_functions() -> None:
    many = {f"m.py:{i}" for i in range(9)}
    tests = {
        **{f"a.py::broad_{i}": Entry(1, frozenset({"m.py:f", *many})) for i in range(20)},
        "b.py::focused": Entry(4, frozenset({"m.py:f"})),
        "b.py::focused_too[1]": Entry(4, frozenset({"m.py:f"})),
        "b.py::focused_too[2]": Entry(40, many),
        "c.py::near": Entry(4, frozenset({"m.py:f", "n.py:g", *many})),
        "d.py::elsewhere": Entry(0.1, frozenset({"n.py:f"})),
    }
    slow = {
        importers: [test for test in selected(tests, "m.py", {"m.py:f"}, importers, 10) if tests[test].seconds > 1]
        for importers in ((), ("c.py::near", "d.py::elsewhere"))
    }
    assert slow == {(): ["b.py::focused"], ("c.py::near", "d.py::elsewhere"): ["c.py::near"]}
    assert len(selected(tests, "m.py", {"m.py:f"}, [], 10)) == 7


def test_a_module_without_functions_is_tried_with_the_files_that_import_it(tmp_path: Path) -> None:
    texts = {
        "a": "from tflm.schema.options import B",
        "b": "from tflm.schema import enums, options",
        "c": "import tflm",
    }
    texts["d"] = "from tflm.schema import enums\nfrom tflm.cli import options"
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    tests = {f"{name}.py::t": Entry(1, frozenset()) for name in texts}
    assert importing(tests, tmp_path, "schema/options.py") == ["a.py::t", "b.py::t"]


def test_a_constant_or_a_class_concerns_those_that_use_it(tmp_path: Path) -> None:
    module = (
        "LIMIT: int = 1\n\nclass A:\n    x: int = 2\n\n@cache\ndef f():\n    return LIMIT\n\ndef g():\n    return h\n"
    )
    (tmp_path / "m.py").write_text(module)
    (tmp_path / "n.py").write_text("def h():\n    return A() or f()\n\ndef i():\n    return h()\n")
    expected = [(1, {"m.py:f"}), (4, {"n.py:h"}), (8, {"m.py:f", "n.py:h"}), (11, {"m.py:g"}), (2, set())]
    for line, functions_of_line in expected:
        assert concerned(tmp_path, "m.py", line) == functions_of_line


def test_the_fastest_cases_of_each_test_are_kept() -> None:
    many = {f"a.py::t[{i}]": Entry(100 - i, frozenset({"m.py:f"})) for i in range(CASES_OF_A_TEST + 2)}
    kept = fastest(
        {**many, "a.py::t[slowest]": Entry(200, frozenset({"m.py:f", "m.py:g"})), "a.py::u": many["a.py::t[0]"]}
    )
    assert kept.pop("a.py::t[slowest]") == (200, ["m.py:g"])
    assert sorted(kept) == [*list(many)[2:], "a.py::u"]


def test_processes_of_tests_have_no_limit_of_memory() -> None:
    """AddressSanitizer reserves more than a limit allows."""
    show = [sys.executable, "-c", "import resource; print(*resource.getrlimit(resource.RLIMIT_DATA))"]
    before = resource.getrlimit(resource.RLIMIT_DATA)
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (fault_plugin.DATA_BYTES, before[1]))
        with fault_plugin.Unlimited(show, stdout=subprocess.PIPE, text=True) as process:
            assert process.communicate()[0].split() == [str(before[1])] * 2
        assert resource.getrlimit(resource.RLIMIT_DATA)[0] == fault_plugin.DATA_BYTES
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def test_cases_that_were_not_recorded_run_last(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "tests").write_text("b[4]\na\n")
    monkeypatch.setenv(fault_plugin.SELECTION, str(tmp_path / "tests"))
    items: list[Any] = [SimpleNamespace(nodeid=name) for name in ["a", *(f"b[{i}]" for i in range(6)), "c"]]
    fault_plugin.pytest_collection_modifyitems(items)
    assert [item.nodeid for item in items] == ["b[4]", "a", "b[0]", "b[1]", "b[2]", "b[3]", "b[5]"]
    assert [fault_plugin.pytest_runtest_protocol(item) for item in items] == [None] * 7
    monkeypatch.setattr(fault_plugin, "others_end", [0.0])
    assert [fault_plugin.pytest_runtest_protocol(item) for item in items] == [None] * 2 + [True] * 5


RECORDED = """
import os, sys
sys.path.insert(0, "tools")
import fault_recorder
from tflm.targets import align_down, align_up
os.environ["PYTEST_CURRENT_TEST"] = "first (call)"
align_down(7, 4)
child = os.fork()
if not child:
    os.environ["PYTEST_CURRENT_TEST"] = "second (call)"
    align_up(7, 4)
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_functions_are_recorded_of_forks_that_end_at_once_too(tmp_path: Path) -> None:
    variables = {**os.environ, RECORD: str(tmp_path)}
    subprocess.run([sys.executable, "-c", RECORDED], check=True, env=variables, cwd=ROOT)
    recorded = "\n".join(path.read_text() for path in tmp_path.iterdir())
    down, up = (function.__code__.co_firstlineno for function in (align_down, align_up))
    assert f"=first\ntargets.py:{down}" in recorded
    assert f"=second\ntargets.py:{up}" in recorded


STOPS_TRACING = """
import os, sys
sys.path.insert(0, "tools")
import fault_recorder
from tflm.targets import align_down, align_up
sys.settrace(None)
os.environ["PYTEST_CURRENT_TEST"] = "second (call)"
fault_recorder.recorder.begin()
align_up(7, 4)
"""


def test_functions_are_recorded_after_a_test_that_stops_tracing(tmp_path: Path) -> None:
    variables = {**os.environ, RECORD: str(tmp_path)}
    subprocess.run([sys.executable, "-c", STOPS_TRACING], check=True, env=variables, cwd=ROOT)
    (recorded,) = (path.read_text() for path in tmp_path.iterdir())
    assert f"=second\ntargets.py:{align_up.__code__.co_firstlineno}\n" in recorded


READS_A_TABLE_TWICE = """
import os, sys
sys.path.insert(0, "tools")
import fault_recorder
from tflm.boards.table import boards
for test in ("first", "second"):
    os.environ["PYTEST_CURRENT_TEST"] = f"{test} (call)"
    fault_recorder.recorder.begin()
    boards()
"""


def test_functions_whose_results_are_cached_are_recorded_of_each_test(tmp_path: Path) -> None:
    variables = {**os.environ, RECORD: str(tmp_path)}
    subprocess.run([sys.executable, "-c", READS_A_TABLE_TWICE], check=True, env=variables, cwd=ROOT)
    (recorded,) = (path.read_text() for path in tmp_path.iterdir())
    line = boards.__wrapped__.__code__.co_firstlineno
    assert recorded.count(f"boards/table.py:{line}\n") == 2


@pytest.mark.parametrize("processes", ["0", "1"])
def test_functions_are_recorded_of_each_test_that_runs_them(tmp_path: Path, processes: str) -> None:
    """Processes of pytest-xdist report tests in their own way."""
    file = "tests/test_runtime_pieces.py::test_of_two_buffers_that_are_alive_together_the_one_that_nobody_sees_moves"
    path = os.pathsep.join(["tools", *filter(None, [os.environ.get("PYTHONPATH")])])
    variables = {**os.environ, RECORD: str(tmp_path), "PYTHONPATH": path}
    arguments = ["-q", "-p", "fault_plugin", "-p", "no:cacheprovider", "-n", processes, file]
    code = f"import fault_recorder, pytest; pytest.main({arguments})"
    subprocess.run([sys.executable, "-c", code], check=True, env=variables, cwd=ROOT, stdout=subprocess.DEVNULL)
    recorded = "\n".join(path.read_text() for path in tmp_path.iterdir())
    line = _colliding.__code__.co_firstlineno
    tests = [part.splitlines() for part in recorded.split("=tests/")[1:]]
    assert len({lines[0] for lines in tests if f"runtime/host_placement.py:{line}" in lines}) == 6


RUNS_COMPILED = """
import os, sys
sys.path.insert(0, "tools")
import fault_recorder, tflm, tflm.compiler.llvm_ir
os.environ["PYTEST_CURRENT_TEST"] = "test (call)"
model = tflm.Model.from_file("examples/hello_world/hello_world_int8.tflite")
tflm.MicroInterpreter(model, tflm.AllOpsResolver(), bytearray(1 << 14)).allocate_tensors()
assert tflm.compiler.machine_code.requested_kernels()["delegates.compiled.program.run_steps"]
"""


@pytest.mark.skipif(not is_available(), reason="needs the extra `fast`")
def test_a_model_runs_the_kernels_that_it_asks_the_machine_code_of(tmp_path: Path) -> None:
    """They run as without a recorder, too."""
    from tflm.delegates.compiled import program, tiles

    variables = {**os.environ, RECORD: str(tmp_path), "TFLM_COMPILED": "wait"}
    subprocess.run([sys.executable, "-c", RUNS_COMPILED], check=True, env=variables, cwd=ROOT)
    recorded = "\n".join(path.read_text() for path in tmp_path.iterdir()).splitlines()
    for name, function in (
        ("delegates/compiled/program", program.run_steps.function),
        ("delegates/compiled/tiles", tiles.product.function),
    ):
        assert f"{name}.py:{function.__code__.co_firstlineno}" in recorded


WRITES_C = """
import os, sys
sys.path.insert(0, "tools")
import fault_recorder, tflm
from tflm.c.compile import compile_model
os.environ["PYTEST_CURRENT_TEST"] = "test (call)"
compile_model(tflm.Model.from_file("examples/hello_world/hello_world_int8.tflite"))
"""


def test_a_model_as_c_runs_the_kernels_that_are_written(tmp_path: Path) -> None:
    from tflm.c.kernels import dense

    subprocess.run([sys.executable, "-c", WRITES_C], check=True, env={**os.environ, RECORD: str(tmp_path)}, cwd=ROOT)
    recorded = "\n".join(path.read_text() for path in tmp_path.iterdir()).splitlines()
    for function in (dense.multiply_words.function, dense.sums_of_run):
        assert f"c/kernels/dense.py:{function.__code__.co_firstlineno}" in recorded


@pytest.mark.skipif(not is_available(), reason="needs the extra `fast`")
def test_functions_inside_a_compiled_kernel_are_recorded() -> None:
    from tflm.compiler import llvm_ir
    from tflm.delegates.compiled import pooling, state

    functions = dict.fromkeys(("start_at", "combination", "result"), "AVERAGE")
    average = pooling.pool.of(**functions, x="int8", y="int8", limits="int32")
    assert functions_of(pooling.four_combined) < functions_of(average)
    assert {state.take_turns.function, llvm_ir.move_bytes} <= functions_of(state.take_turns)
