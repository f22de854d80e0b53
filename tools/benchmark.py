"""Compare the speed of this package, TFLM's Python package and LiteRT, in alternating rounds on one thread each.

    python tools/benchmark.py [--json FILE] [--markdown FILE] [--engines NAME...] [MODEL...]
    python tools/benchmark.py --growth [--json FILE]
    python tools/benchmark.py --start [--json FILE] [MODEL...]

Each engine runs a model in a separate process, so that a crash loses only one cell. The processes take turns in short
rounds, so that other load affects all of them. For each engine and model:

    load       milliseconds to read and verify the file
    allocate   milliseconds to allocate tensors (the tflite-micro package does it while it loads)
    first      milliseconds of the first invoke
    invoke     microseconds of an invoke, median of the rounds
    step       microseconds to set the inputs, invoke, and get the outputs, median of the rounds
    peak       MiB that the process ever had in memory
    ratio      our invoke over the other engine's, and our step over its step

Only ratios mean something from one machine to another. `--growth` times models made on the spot, in this package alone:
their width, depth or number of tensors doubles from one to the next; then the number of operators grows fourfold, to
the largest number that a model may have, and every step from loading to exporting is timed once, in seconds of the
processor, beside its growth: 4 is linear.

`--start` measures what a process takes until its first answer: milliseconds of time and of the processor, the least of
several, in turns: of whole commands, and of the rest once numpy is imported. `cold` has an empty cache, `cached` has
all kernels there.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # read when numpy is imported

import numpy as np  # noqa: E402

ROUNDS = 9
SECONDS_A_ROUND = 0.03
ARENA_BYTES = 1 << 22
DEFAULT_MODELS = Path(os.environ.get("TFLM_CORPUS", Path(__file__).parents[2] / "shared")) / "models"


class Session(NamedTuple):
    """A model loaded by an engine, with the times of loading and allocating."""

    load_seconds: float
    allocate_seconds: float | None
    invoke: Callable[[], Any]
    inputs: list[tuple[tuple[int, ...], np.dtype[Any]]]
    set_input: Callable[[int, np.ndarray[Any, Any]], Any]
    get_outputs: Callable[[], Any]


# --- Engines, each in its own process ----------------------------------------------------------------------------


def ours(path: Path, *, compiled: bool = True) -> Session:
    """This package, with the compiled engine or by numpy alone."""
    import tflm

    resolver = tflm.AllOpsResolver()
    load, model = timed(lambda: tflm.Model.from_file(path))
    delegates = tflm.delegates.default_delegates(model, waits=True) if compiled else ()
    interpreter = tflm.MicroInterpreter(model, resolver, bytearray(ARENA_BYTES), delegates=delegates)
    allocate, _ = timed(interpreter.allocate_tensors)
    inputs = [interpreter.input(i) for i in range(interpreter.inputs_size())]
    outputs = [interpreter.output(i) for i in range(interpreter.outputs_size())]

    def set_input(index: int, values: np.ndarray[Any, Any]) -> None:
        inputs[index].data[...] = values

    return Session(
        load,
        allocate,
        interpreter.invoke,
        [(tensor.data.shape, tensor.data.dtype) for tensor in inputs],
        set_input,
        lambda: [np.array(tensor.data) for tensor in outputs],
    )


def tflite_micro(path: Path) -> Session:
    """TFLM's own package."""
    from tflite_micro.python.tflite_micro import runtime

    load, interpreter = timed(lambda: runtime.Interpreter.from_file(str(path), arena_size=ARENA_BYTES))
    inputs = details_of(interpreter.get_input_details)
    outputs = len(details_of(interpreter.get_output_details))
    return Session(
        load,
        None,
        interpreter.invoke,
        [(tuple(details["shape"]), np.dtype(details["dtype"])) for details in inputs],
        lambda index, values: interpreter.set_input(values, index),
        lambda: [interpreter.get_output(i) for i in range(outputs)],
    )


def details_of(getter: Callable[[int], Any]) -> list[Any]:
    """The details of every input or output."""
    details: list[Any] = []
    while True:
        try:
            details.append(getter(len(details)))
        except IndexError:
            return details


def litert(resolver: str) -> Callable[[Path], Session]:
    """LiteRT with one of its sets of kernels."""

    def ready(path: Path) -> Session:
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        kind = OpResolverType[resolver]
        load, interpreter = timed(lambda: Interpreter(str(path), num_threads=1, experimental_op_resolver_type=kind))
        allocate, _ = timed(interpreter.allocate_tensors)
        inputs, outputs = interpreter.get_input_details(), interpreter.get_output_details()
        return Session(
            load,
            allocate,
            interpreter.invoke,
            [(tuple(details["shape"]), np.dtype(details["dtype"])) for details in inputs],
            lambda index, values: interpreter.set_tensor(inputs[index]["index"], values),
            lambda: [interpreter.get_tensor(details["index"]) for details in outputs],
        )

    return ready


ENGINES: dict[str, Callable[[Path], Session]] = {
    "tflm": ours,
    "tflm-numpy": partial(ours, compiled=False),
    "tflite-micro": tflite_micro,
    "litert": litert("AUTO"),
    "litert-builtin": litert("BUILTIN_WITHOUT_DEFAULT_DELEGATES"),
    "litert-reference": litert("BUILTIN_REF"),
}
"""This package as it comes and by numpy alone, TFLM itself, and LiteRT with its default delegate, without it, and with
its reference kernels."""


def serve(engine: str, path: Path) -> None:
    """Run an engine's process: load the model, then time a round for each line on standard input."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # engines print on their own
    session = ENGINES[engine](path)
    rng = np.random.default_rng(0)
    inputs = [some_values(rng, *kind) for kind in session.inputs]

    def step() -> None:
        for i, values in enumerate(inputs):
            session.set_input(i, values)
        session.invoke()
        session.get_outputs()

    for i, values in enumerate(inputs):
        session.set_input(i, values)
    first, _ = timed(session.invoke)
    calls = {"invoke": session.invoke, "step": step}
    repeats = {name: repeats_for(call) for name, call in calls.items()}
    start = {"load": session.load_seconds, "allocate": session.allocate_seconds, "first": first}
    print(json.dumps(start), file=answers)
    for _ in sys.stdin:
        seconds = {name: mean_seconds(call, repeats[name]) for name, call in calls.items()}
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({**seconds, "peak_mib": peak}), file=answers)


def some_values(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Random values of a type: ordinary floats, integers over the whole range of up to 16 bits."""
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(max(limits.min, -(2**15)), min(limits.max, 2**15), shape).astype(dtype)


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of a call, and its result."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def repeats_for(call: Callable[[], Any]) -> int:
    """Number of repetitions of a call in a round."""
    call()
    return max(1, int(SECONDS_A_ROUND / max(timed(call)[0], 1e-7)))


def mean_seconds(call: Callable[[], Any], repeats: int) -> float:
    """Seconds of one of `repeats` calls in a row."""
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


# --- Turns -------------------------------------------------------------------------------------------------------


class Peer:
    """The process of one engine with one model."""

    def __init__(self, engine: str, path: Path):
        self.engine = engine
        self.rounds: list[dict[str, float]] = []
        self.error: str | None = None
        self._child = subprocess.Popen(
            [sys.executable, __file__, "--serve", engine, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.start = self._answer()

    def run_round(self) -> None:
        """Let the engine run for a moment, alone."""
        if self.error is None and self._child.stdin is not None:
            print(file=self._child.stdin)
            answer = self._answer()
            if answer is not None:
                self.rounds.append(answer)

    def figures(self) -> dict[str, Any]:
        """The measurements, in the units of the table; or the error."""
        self._child.communicate()
        if self.error is not None or self.start is None or not self.rounds:
            return {"error": self.error or "no answer"}
        allocate = self.start["allocate"]
        return {
            "load_ms": 1e3 * self.start["load"],
            "allocate_ms": None if allocate is None else 1e3 * allocate,
            "first_ms": 1e3 * self.start["first"],
            **{f"{name}_us": 1e6 * statistics.median(r[name] for r in self.rounds) for name in ("invoke", "step")},
            "peak_mib": self.rounds[-1]["peak_mib"],
        }

    def _answer(self) -> dict[str, Any] | None:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        _, errors = self._child.communicate()
        code = self._child.returncode
        last = (errors.strip().splitlines() or [""])[-1]
        self.error = f"went down with signal {-code}" if code < 0 else last[:200]
        return None


def compared(path: Path, engines: Iterable[str]) -> dict[str, Any]:
    """Every engine's figures for one model, and the ratios of ours to the others'."""
    peers = [Peer(engine, path) for engine in engines]
    for _ in range(ROUNDS):
        for peer in peers:
            peer.run_round()
    figures = {peer.engine: peer.figures() for peer in peers}
    mine = figures.get("tflm", {})
    for engine, theirs in figures.items():
        if engine != "tflm" and "invoke_us" in theirs and "invoke_us" in mine:
            theirs["invoke_ratio"] = mine["invoke_us"] / theirs["invoke_us"]
            theirs["step_ratio"] = mine["step_us"] / theirs["step_us"]
    return {"model": path.stem, "engines": figures}


COLUMNS = {
    "load_ms": ("load ms", 1),
    "allocate_ms": ("allocate ms", 1),
    "first_ms": ("first ms", 2),
    "invoke_us": ("invoke us", 1),
    "step_us": ("step us", 1),
    "peak_mib": ("peak MiB", 0),
    "invoke_ratio": ("ratio", 2),
    "step_ratio": ("step ratio", 2),
}
"""Heading and decimals of each figure."""


def table_rows(result: dict[str, Any]) -> Iterator[str]:
    """A line for each engine with one model."""
    for engine, figures in result["engines"].items():
        if "error" in figures:
            yield f"{result['model']:26} {engine:17} {figures['error']}"
            continue
        cells = [
            f"{'' if figures.get(key) is None else format(figures[key], f'.{decimals}f'):>11}"
            for key, (_, decimals) in COLUMNS.items()
        ]
        yield f"{result['model']:26} {engine:17}{''.join(cells)}"


def markdown(results: list[dict[str, Any]]) -> str:
    """A row for each model, with a column of microseconds for each engine, and the ratio of ours to its."""
    engines = list(results[0]["engines"])
    heading = ["model", *engines, "load + allocate", "peak"]
    rows = [heading, ["---", *["---:"] * (len(heading) - 1)]]
    for result in results:
        mine = result["engines"].get("tflm", {})
        start = f"{mine['load_ms'] + mine['allocate_ms']:.1f} ms" if "load_ms" in mine else ""
        peak = f"{mine['peak_mib']:.0f} MiB" if "peak_mib" in mine else ""
        rows.append([result["model"], *(_markdown_cell(f) for f in result["engines"].values()), start, peak])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _markdown_cell(figures: dict[str, Any]) -> str:
    if "error" in figures:
        return "fails"
    ratio = f" ({figures['invoke_ratio']:.2f})" if "invoke_ratio" in figures else ""
    return f"{figures['invoke_us']:.1f}{ratio}"


# --- Growth ------------------------------------------------------------------------------------------------------


OPERATOR_COUNTS = 1562, 6250, 25_000, 100_000


def growth() -> list[dict[str, Any]]:
    """Times of models whose width, depth or number of tensors doubles, and of those with ever more operators."""
    return growth_of_running() + growth_with_operators()


def growth_of_running() -> list[dict[str, Any]]:
    """Times of loading, allocating and running models whose width, depth or number of tensors doubles."""
    results = []
    print(f"{'what':10} {'size':>6} {'load ms':>9} {'allocate ms':>12} {'invoke us':>10}")
    for what, sizes in (("width", (32, 64, 128, 256, 512)), ("depth", (4, 8, 16, 32, 64)), ("tensors", (64, 128, 256))):
        for size in sizes:
            results.append({"what": what, "size": size, **grown_timings(grown_model(what, size))})
            result = results[-1]
            figures = f"{result['load_ms']:9.2f} {result['allocate_ms']:12.2f} {result['invoke_us']:10.1f}"
            print(f"{what:10} {size:6} {figures}", flush=True)
    return results


def growth_with_operators() -> list[dict[str, Any]]:
    """Seconds of each step for increasing numbers of operators, with the growth relative to a quarter of them."""
    results: list[dict[str, Any]] = []
    for size in OPERATOR_COUNTS:
        seconds = {name: processor_seconds(step) for name, step in steps_to_firmware(grown_model("tensors", size))}
        before = results[-1]["seconds"] if results else {}
        ratios = {name: value / before[name] for name, value in seconds.items() if name in before}
        results.append({"what": "operators", "size": size, "seconds": seconds, "growth": ratios})
        if size == OPERATOR_COUNTS[0]:
            print(f"\n{'what':10} {'size':>6}" + "".join(f"{f'{name} s':>16}" for name in seconds))
        cells = (f"{value:9.2f} {f'({ratios[name]:.1f})' if ratios else '':>6}" for name, value in seconds.items())
        print(f"{'operators':10} {size:6}{''.join(cells)}", flush=True)
    return results


def steps_to_firmware(data: bytes) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The steps from a model to a device, by name."""
    import tflm
    from tflm.application.export import Firmware, sources
    from tflm.application.machine import MachineOptions
    from tflm.runtime.model_report import model_figures

    model, resolver = tflm.Model(data), tflm.AllOpsResolver()
    machine = MachineOptions().machine()
    yield "load", lambda: tflm.Model(data)
    yield "verify", lambda: tflm.verify(data)
    yield "measure", lambda: tflm.measure_arena(model, resolver)
    yield "plan", lambda: tflm.plan(model, resolver, planner="greedy")
    yield "inspect", lambda: model_figures(model, "grown")
    yield "export", lambda: sources(Firmware(model, "grown", machine, "benchmark"))


def processor_seconds(call: Callable[[], Any]) -> float:
    """CPU seconds of one call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def grown_model(what: str, size: int) -> bytes:
    """Layers of int8 FULLY_CONNECTED: 4 of the width `size`, or `size` of width 32; or `size` sums of 32 elements."""
    import tflm
    from tflm.schema import AddOptions, BuiltinOperator, FullyConnectedOptions, TensorType

    width, layers = (size, 4) if what == "width" else (32, size)
    scale = tflm.quantized(0.5)
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    tensors = [main.input("x", (1, width), TensorType.INT8, scale)]
    for i in range(layers):
        tensors.append(main.tensor(f"t{i}", (1, width), TensorType.INT8, scale))
        if what == "tensors":
            main.operator(BuiltinOperator.ADD, [tensors[i], tensors[max(i - 1, 0)]], [tensors[-1]], AddOptions())
            continue
        weights = main.constant(f"w{i}", np.eye(width, dtype=np.int8), tflm.quantized([1.0] * width))
        options = FullyConnectedOptions()
        main.operator(BuiltinOperator.FULLY_CONNECTED, [tensors[i], weights, -1], [tensors[-1]], options)
    main.output(tensors[-1])
    return builder.build()


def grown_timings(data: bytes) -> dict[str, float]:
    """Medians of loading, allocating and invoking."""
    import tflm

    resolver = tflm.AllOpsResolver()

    def allocated() -> tflm.MicroInterpreter:
        interpreter = tflm.MicroInterpreter(tflm.Model(data), resolver, bytearray(ARENA_BYTES))
        interpreter.allocate_tensors()
        return interpreter

    load = median_seconds(lambda: tflm.Model(data))
    return {
        "load_ms": 1e3 * load,
        "allocate_ms": 1e3 * (median_seconds(allocated) - load),
        "invoke_us": 1e6 * median_seconds(allocated().invoke),
    }


def median_seconds(call: Callable[[], Any]) -> float:
    """Median over rounds of the seconds of one call."""
    repeats = repeats_for(call)
    return statistics.median(mean_seconds(call, repeats) for _ in range(ROUNDS))


# --- Command line ------------------------------------------------------------------------------------------------


# --- Starting ----------------------------------------------------------------------------------------------------


STARTS = 15

CLOCKED = """
import sys, time, numpy
wall, processor = time.perf_counter(), time.process_time()
{}
print(1e3 * (time.perf_counter() - wall), 1e3 * (time.process_time() - processor))
"""

FIRST_ANSWER = f"""
import tflm
model = tflm.Model.from_file(sys.argv[1])
interpreter = tflm.MicroInterpreter(model, tflm.AllOpsResolver(), bytearray({ARENA_BYTES}))
interpreter.allocate_tensors()
interpreter.invoke()
"""

RUN = ["-m", "tflm", "run", "MODEL", "--random"]

PROCESSES: dict[str, tuple[list[str], str, bool]] = {
    "import tflm": (["-c", CLOCKED.format("import tflm")], "1", False),
    "first answer, cached": (["-c", CLOCKED.format(FIRST_ANSWER), "MODEL"], "1", False),
    "first answer, cold": (["-c", CLOCKED.format(FIRST_ANSWER), "MODEL"], "1", True),
    "first answer, numpy": (["-c", CLOCKED.format(FIRST_ANSWER), "MODEL"], "0", False),
    "tflm run, cached": (RUN, "1", False),
    "tflm run, cold": (RUN, "1", True),
    "tflm run, numpy": (RUN, "0", False),
}
"""Arguments of Python, `TFLM_COMPILED`, and whether the cache is empty."""


def starts(models: list[Path]) -> list[dict[str, Any]]:
    """Milliseconds of each kind of process, for each model."""
    results = []
    for path in models or [DEFAULT_MODELS / "person_detect.tflite"]:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, "-m", "tflm", "warm", path], check=True, env=_environment("1", folder))
            rounds = [{name: _started(name, path, folder) for name in PROCESSES} for _ in range(STARTS)]
        for name in PROCESSES:
            wall, cpu = (min(times[name][i] for times in rounds) for i in range(2))
            results.append({"model": path.stem, "process": name, "milliseconds": wall, "processor_milliseconds": cpu})
            print(f"{path.stem:26} {name:24}{wall:9.1f}{cpu:9.1f}", flush=True)
    return results


def _started(name: str, model: Path, cache: str) -> tuple[float, float]:
    """Milliseconds of a process, of time and of the processor: those that it prints, or of the whole."""
    arguments, compiled, is_cold = PROCESSES[name]
    command = [sys.executable, *(str(model) if argument == "MODEL" else argument for argument in arguments)]
    with tempfile.TemporaryDirectory() as empty:
        environment = _environment(compiled, empty if is_cold else cache)
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        said = subprocess.run(command, check=True, env=environment, capture_output=True, text=True).stdout
        seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if arguments[0] == "-c":
        clocks = said.split()
        return float(clocks[0]), float(clocks[1])
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return 1e3 * seconds, 1e3 * cpu


def _environment(compiled: str, cache: str) -> dict[str, str]:
    """The environment of a process, which may write bytecode."""
    variables = {**os.environ, "TFLM_COMPILED": compiled, "TFLM_CACHE_DIR": cache}
    return {name: value for name, value in variables.items() if name != "PYTHONDONTWRITEBYTECODE"}


def main() -> None:
    """Time the models, print a table, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL", help="a .tflite file")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES), metavar="NAME")
    parser.add_argument("--growth", action="store_true", help="time models that double in size instead")
    parser.add_argument("--start", action="store_true", help="time processes until their first answer instead")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write a table for documents to a file")
    parser.add_argument("--serve", choices=ENGINES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.models[0])
        return
    if options.markdown and (options.growth or options.start):
        parser.error("--markdown is for engines side by side, not for --growth or --start")
    if options.start:
        results = starts(options.models)
    else:
        results = growth() if options.growth else comparison(options.models, options.engines)
    if options.markdown:
        options.markdown.write_text(markdown(results))
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


def comparison(models: list[Path], engines: list[str]) -> list[dict[str, Any]]:
    """Every engine with every model; the table is printed as it comes."""
    paths = models or sorted(DEFAULT_MODELS.glob("*.tflite"))
    if not paths:
        sys.exit(f"no models are given, and there are none in {DEFAULT_MODELS}")
    print(f"{'model':26} {'engine':17}{''.join(f'{heading:>11}' for heading, _ in COLUMNS.values())}")
    results = []
    for path in paths:
        results.append(compared(path, engines))
        print("\n".join(table_rows(results[-1])), flush=True)
    return results


if __name__ == "__main__":
    main()
