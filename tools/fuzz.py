"""Run damaged models: each must end with a result or a `TflmError`, in bounded time and memory, inside its arena.

    python tools/fuzz.py [--count N | --seconds S] [--seed N] [--jobs N] [--keep DIR] [MODEL...]
    python tools/fuzz.py --beside-tflite-micro [--count N] [MODEL...]
    python tools/fuzz.py --compressed [--count N] [MODEL...]
    python tools/fuzz.py --commands [--count N] [MODEL...]
    python tools/fuzz.py --atheris [MODEL...] [-- ARGUMENTS OF LIBFUZZER]

A mutant is a model and a seed. The seed determines the number and kinds of changes: a field of a table gets an unusual
value, a vector loses, gains or swaps elements, an option table is replaced by another, or words and bits of the file
change. Mutants run in separate processes, which may crash or hang. A failing mutant is reduced to the fewest changes
that still fail, and its file is kept.

`--beside-tflite-micro` runs the same mutants in TFLM's own package, too, and prints how both end, side by side.
`--commands` runs a command of `tflm` on each mutant, with other files that are damaged, too.
`--compressed` mutates the models that `tflm compress` makes of those given, where it makes them smaller.
`--atheris` lets libFuzzer choose the changes by what they reach; it needs the package atheris.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import functools
import importlib
import json
import math
import os
import random
import resource
import selectors
import subprocess
import sys
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tflm
from tflm.schema.layout import (
    Bytes,
    Scalar,
    ScalarVector,
    StringType,
    SubTable,
    Table,
    TableVector,
    UnionType,
    fields_of,
)

SECONDS = 2.0
COMMAND_SECONDS = 10.0
MEBIBYTES = 256.0
ARENA_BYTES = 1 << 20
CANARY = bytes(range(0x80, 0xC0))
DEFAULT_MODELS = Path(os.environ.get("TFLM_CORPUS", Path(__file__).parents[2] / "shared")) / "models"

ODD_INTEGERS = (0, 1, -1, 2, 3, 7, 8, 16, 255, 256, 2**15, 2**16, 2**30, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1)
ODD_FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e-38, 3e38, -3e38, math.inf, -math.inf, math.nan)
ODD_WORDS = (0, 1, 2, 3, 4, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1)


# --- Mutants -----------------------------------------------------------------------------------------------------


class Mutant(NamedTuple):
    """A model with changes: each change is made by a random generator of its own seed."""

    path: str
    changes: tuple[str, ...]

    @classmethod
    def of(cls, path: str, seed: int) -> Mutant:
        """The mutant of a seed, with one to six changes."""
        count = random.Random(f"{seed}").randint(1, 6)
        return cls(path, tuple(f"{seed}.{i}" for i in range(count)))

    def data(self) -> bytes:
        """The bytes of the file."""
        data = _original(self.path)
        for change in self.changes:
            rng = random.Random(change)
            data = (change_table if rng.random() < 0.6 else change_bytes)(data, rng)
        return data


@functools.cache
def _original(path: str) -> bytes:
    return Path(path).read_bytes()


def change_bytes(data: bytes, rng: random.Random) -> bytes:
    """Set a byte, flip a bit, write an odd word, or cut the file off; three times of four near its start."""
    if not data:
        return data
    changed = bytearray(data)
    at = rng.randrange(len(data) if rng.random() < 0.25 else min(len(data), 4096))
    kind = rng.random()
    if kind < 0.3:
        changed[at] = rng.randrange(256)
    elif kind < 0.6:
        changed[at] ^= 1 << rng.randrange(8)
    elif kind < 0.95:
        changed[at : at + 4] = rng.choice([*ODD_WORDS, len(data)]).to_bytes(4, "little")
    else:
        del changed[at:]
    return bytes(changed)


def change_table(data: bytes, rng: random.Random) -> bytes:
    """Change one field of one table, and write the model again. If the file can't be read, change its bytes."""
    try:
        root = tflm.schema.read_model(memoryview(data))
    except tflm.TflmError:
        return change_bytes(data, rng)
    table = rng.choice([table for table in _tables(root) if fields_of(type(table))])
    field = rng.choice(fields_of(type(table)))
    value = getattr(table, field.name)
    setattr(table, field.name, _changed(value, field.wire, rng))
    try:
        return tflm.schema.write_model(root)
    except Exception:  # skip changes that can't be written
        return change_bytes(data, rng)


def _tables(table: Table) -> Iterator[Table]:
    yield table
    for field in fields_of(type(table)):
        value = getattr(table, field.name)
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, Table):
                yield from _tables(child)


def _changed(value: Any, wire: Any, rng: random.Random) -> Any:
    if isinstance(wire, Scalar):
        return _odd_scalar(value, wire, rng)
    if rng.random() < 0.15:
        return None
    if isinstance(wire, StringType):
        return rng.choice(["", "x" * 300, "\x00", f"{value}?"])
    if isinstance(wire, Bytes):
        return _changed_data(bytes(value or b""), rng)
    if isinstance(wire, ScalarVector):
        return tuple(_changed_list(list(value or ()), lambda: _odd_scalar(0, Scalar(wire.code, wire.enum), rng), rng))
    if isinstance(wire, TableVector):
        return _changed_list(list(value or ()), wire.table, rng)
    if isinstance(wire, SubTable):
        return wire.table()
    assert isinstance(wire, UnionType)
    return rng.choice(wire.members)()


def _odd_scalar(value: Any, wire: Scalar, rng: random.Random) -> Any:
    if wire.code in "fd":
        return rng.choice(ODD_FLOATS)
    if wire.code == "?":
        return not value
    bits = 8 * {"b": 1, "B": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "Q": 8}[wire.code]
    low, high = (0, 2**bits - 1) if wire.code.isupper() else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    candidates = [*ODD_INTEGERS, int(value) + 1, int(value) - 1, *(list(wire.enum) if wire.enum else ())]
    return rng.choice([int(candidate) for candidate in candidates if low <= candidate <= high])


def _changed_data(data: bytes, rng: random.Random) -> bytes:
    kind = rng.random()
    if kind < 0.3:
        return data[: rng.randrange(len(data) + 1)]
    if kind < 0.5:
        return data + bytes(rng.choice([1, 4, 64, 4096]))
    changed = bytearray(data)
    for _ in range(min(len(data), 8)):
        changed[rng.randrange(len(changed))] = rng.choice([0, 1, 127, 128, 255])
    return bytes(changed)


def _changed_list(items: list[Any], make: Callable[[], Any], rng: random.Random) -> list[Any]:
    kind, at = rng.random(), rng.randrange(len(items) + 1)
    if kind < 0.25:
        items[at : at + 1] = []
    elif kind < 0.5:
        items.insert(at, make())
    elif kind < 0.6:
        items.extend(items[:64])
    elif kind < 0.7:
        items.reverse()
    elif items:
        items[at % len(items)] = make()
    return items


# --- What must hold of each --------------------------------------------------------------------------------------


class BadError(AssertionError):
    """A mutant violated a guarantee."""


def check(data: bytes) -> str:
    """Run a mutant twice, reset and inspect it; returns "result", or the kind of `TflmError`.

    Raises:
        BadError: it wrote outside its arena.
        Exception: any exception other than a `TflmError`.
    """
    memory = bytearray(CANARY + bytes(ARENA_BYTES) + CANARY)
    arena = memoryview(memory)[len(CANARY) : -len(CANARY)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            _run(data, arena)
            ending = "result"
        except tflm.TflmError as error:
            ending = type(error).__name__
            if not str(error).strip():
                raise BadError(f"a {ending} that says nothing") from error
    if bytes(memory[: len(CANARY)]) != CANARY or bytes(memory[-len(CANARY) :]) != CANARY:
        raise BadError("bytes outside the arena were written")
    return ending


def _run(data: bytes, arena: memoryview) -> None:
    findings = [finding for finding in tflm.verify(data) if finding.level == "error"]
    try:
        model = tflm.Model(data)
    except tflm.ModelError:
        if not findings:
            raise BadError("verify finds nothing, loading does") from None
        raise
    if findings:
        raise BadError(f"loading finds nothing, verify does: {findings[0]}")
    interpreter = tflm.MicroInterpreter(model, tflm.AllOpsResolver(), arena, while_limit=1000)
    interpreter.allocate_tensors()
    rng = np.random.default_rng(0)
    for _ in range(2):
        for i in range(interpreter.inputs_size()):
            values = interpreter.input(i).data
            values[...] = np.frombuffer(rng.bytes(values.nbytes), values.dtype).reshape(values.shape)
        interpreter.invoke()
    interpreter.reset()
    for i in range(interpreter.outputs_size()):
        interpreter.output(i).dequantized()


# --- Processes ---------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Ending:
    """How a mutant ended: "result", a kind of error, or what was wrong with it; and the processor time it took.

    CPU time does not depend on other load; a mutant that waits forever is still detected.
    """

    kind: str
    is_bad: bool
    seconds: float
    detail: str = ""


def serve(engine: str) -> None:
    """Run mutants in this process, one for each line of input."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # the other package prints on its own
    run = {"tflm": check, "tflite-micro": check_peer, "commands": check_command}[engine]
    _settle(run)
    before = _peak_mebibytes()
    for line in sys.stdin:
        data = Mutant(**json.loads(line)).data()
        start = time.process_time()
        try:
            ending = Ending(run(data), False, 0.0)
        except Exception as error:
            ending = Ending(type(error).__name__, True, 0.0, f"{error}"[:300])
        ending.seconds = time.process_time() - start
        grown = _peak_mebibytes() - before
        if grown > MEBIBYTES and not ending.is_bad:
            ending = Ending("memory", True, ending.seconds, f"{grown:.0f} MiB more than before")
        print(json.dumps(dataclasses.asdict(ending)), file=answers)


def _settle(run: Callable[[bytes], str]) -> None:
    """Import everything that any mutant may import."""
    with contextlib.suppress(Exception):
        run(b"")


def _peak_mebibytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def check_peer(data: bytes) -> str:
    """Run a mutant in TFLM's own package; returns "result", or the kind of error."""
    from tflite_micro.python.tflite_micro import runtime

    try:
        interpreter = runtime.Interpreter.from_bytes(data, arena_size=ARENA_BYTES)
        for _ in range(2):
            interpreter.invoke()
        return "result"
    except Exception as error:
        return type(error).__name__


def check_command(data: bytes) -> str:
    """Run a command on a mutant; returns "result", or the kind of error.

    Raises:
        BadEnding: another exception than a `TflmError` or a usage error.
    """
    import command_fuzz

    seed = zlib.crc32(data)
    return command_fuzz.run(data, random.Random(seed).choice(sorted(command_fuzz.CALLS)), seed, change_bytes)


class Runner:
    """A process that runs mutants; it is restarted after a crash or hang."""

    def __init__(self, engine: str = "tflm"):
        self._engine = engine
        self._seconds = COMMAND_SECONDS if engine == "commands" else SECONDS
        self._child: subprocess.Popen[bytes] | None = None

    def run(self, mutant: Mutant) -> Ending:
        """How a mutant ends."""
        self.start(mutant)
        return self.finish()

    def start(self, mutant: Mutant) -> None:
        """Begin with a mutant."""
        if self._child is None:
            command = [sys.executable, __file__, "--serve", self._engine]
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            )
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(mutant._asdict()).encode() + b"\n")
        self._child.stdin.flush()
        self.deadline = (
            time.monotonic() + self._seconds + 8
        )  # the process may still be starting; it measures its own time

    def finish(self) -> Ending:
        """The result of the current mutant."""
        assert self._child is not None
        assert self._child.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._child.stdout, selectors.EVENT_READ)
            ready = selector.select(max(0.0, self.deadline - time.monotonic()))
        line = self._child.stdout.readline() if ready else b""
        if line:
            ending = Ending(**json.loads(line))
            if ending.seconds > self._seconds and not ending.is_bad:
                ending = Ending("time", True, ending.seconds, f"{ending.seconds:.1f} s")
            if ending.kind == "memory":
                self.close()
            return ending
        self.close()
        if not ready:
            return Ending("hang", True, SECONDS, "does not end")
        return Ending("crash", True, 0.0, "took its process down")

    def fileno(self) -> int:
        """The descriptor that returns the answer, for a selector."""
        assert self._child is not None
        assert self._child.stdout is not None
        return self._child.stdout.fileno()

    def close(self) -> None:
        """End the process."""
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None


def minimized(mutant: Mutant, runner: Runner) -> Mutant:
    """The mutant with the fewest of its changes that still fail."""
    for change in mutant.changes:
        fewer = mutant._replace(changes=tuple(other for other in mutant.changes if other != change))
        if fewer.changes and runner.run(fewer).is_bad:
            mutant = fewer
    return mutant


# --- Campaigns ---------------------------------------------------------------------------------------------------


def campaign(paths: list[str], options: argparse.Namespace) -> int:
    """Run mutants until the count or the time limit is reached; returns the number of failures."""
    endings: collections.Counter[str] = collections.Counter()
    bad: list[Mutant] = []
    start = reported = time.monotonic()
    slowest = 0.0
    runners = [Runner("commands" if options.commands else "tflm") for _ in range(options.jobs)]
    seeds = iter(range(options.seed, options.seed + options.count) if options.count else _numbers(options.seed))
    running: dict[Runner, Mutant] = {}

    def begin(runner: Runner) -> None:
        if options.seconds and time.monotonic() - start > options.seconds:
            return
        seed = next(seeds, None)
        if seed is not None:
            running[runner] = Mutant.of(paths[seed % len(paths)], seed)
            runner.start(running[runner])

    for runner in runners:
        begin(runner)
    while running:
        runner = _next_to_answer(list(running))
        mutant, ending = running.pop(runner), runner.finish()
        endings[ending.kind] += 1
        slowest = max(slowest, ending.seconds)
        if ending.is_bad:
            bad.append(_kept(minimized(mutant, runner), ending, options.keep))
        begin(runner)
        if time.monotonic() - reported > 10:
            reported = time.monotonic()
            print(f"{sum(endings.values())} mutants in {reported - start:.0f} s, {len(bad)} bad", flush=True)
    for runner in runners:
        runner.close()
    print(f"{sum(endings.values())} mutants of {len(paths)} models in {time.monotonic() - start:.0f} s")
    print(f"slowest: {slowest:.2f} s")
    for kind, count in endings.most_common():
        print(f"{count:8} {kind}")
    print(f"{len(bad)} bad")
    return len(bad)


def _numbers(first: int) -> Iterator[int]:
    while True:
        yield first
        first += 1


def _next_to_answer(runners: list[Runner]) -> Runner:
    with selectors.DefaultSelector() as selector:
        for runner in runners:
            selector.register(runner, selectors.EVENT_READ, runner)
        earliest = min(runners, key=lambda runner: runner.deadline)
        ready = selector.select(max(0.0, earliest.deadline - time.monotonic()))
    return ready[0][0].data if ready else earliest


def _kept(mutant: Mutant, ending: Ending, folder: Path) -> Mutant:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{Path(mutant.path).stem}-{'-'.join(mutant.changes)}.tflite"
    path.write_bytes(mutant.data())
    print(f"bad: {ending.kind}: {ending.detail}\n     kept as {path}", flush=True)
    return mutant


def beside(paths: list[str], options: argparse.Namespace) -> None:
    """Run the same mutants here and in TFLM's own package; returns a table of how they end."""
    counts = {engine: collections.Counter[str]() for engine in ("tflm", "tflite-micro")}
    for engine, endings in counts.items():
        runner = Runner(engine)
        for seed in range(options.seed, options.seed + (options.count or 1000)):
            ending = runner.run(Mutant.of(paths[seed % len(paths)], seed))
            endings[
                "an error" if ending.kind not in ("result", "crash", "hang", "time", "memory") else ending.kind
            ] += 1
        runner.close()
    print("| ends in | tflm | tflite-micro |\n| --- | --- | --- |")
    for kind in sorted(set().union(*counts.values())):
        print(f"| {kind} | {counts['tflm'][kind]} | {counts['tflite-micro'][kind]} |")


def compressed(paths: list[str], folder: Path) -> list[str]:
    """Compress the weights of models; returns the files of those that become smaller, in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for path in paths:
        try:
            found = tflm.compress(tflm.Model.from_file(path), verify=1)
        except tflm.TflmError:
            continue
        if found.tensors:
            written.append(str(folder / Path(path).name))
            found.write(written[-1])
    return written


def guided(paths: list[str], keep: Path, arguments: list[str]) -> None:
    """Let libFuzzer mutate files by coverage, until it finds a failure or its arguments end it.

    Files with new coverage are kept in `keep`/corpus, where the next run continues.
    """
    import atheris

    global tflm  # modules imported from here on report their coverage to libFuzzer
    for name in [name for name in sys.modules if name.startswith("tflm")]:
        del sys.modules[name]
    with atheris.instrument_imports(include=["tflm"]):
        tflm = importlib.import_module("tflm")
        list(tflm.kernels.REGISTRATIONS.values())  # kernels are imported on first use
    corpus = keep / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    places = [f"-artifact_prefix={keep}/", f"-seed_inputs={','.join(paths)}", str(corpus)]
    atheris.Setup([sys.argv[0], *arguments, *places], check)
    atheris.Fuzz()


def main() -> None:
    """Run the selected campaign; the exit status is 1 if a mutant failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="a .tflite file")
    parser.add_argument("--count", type=int, default=0, help="how many mutants")
    parser.add_argument("--seconds", type=float, default=0.0, help="how long; a minute where no count is given")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first mutant")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-failures"), metavar="DIR", help="where bad ones go")
    parser.add_argument("--beside-tflite-micro", action="store_true", help="run the same in TFLM's own package")
    parser.add_argument("--compressed", action="store_true", help="compress the models first")
    parser.add_argument("--commands", action="store_true", help="run a command on each")
    parser.add_argument("--atheris", action="store_true", help="let libFuzzer choose")
    parser.add_argument("--serve", choices=["tflm", "tflite-micro", "commands"], help=argparse.SUPPRESS)
    own, _, others = (" ".join(sys.argv[1:])).partition(" -- ")
    options = parser.parse_args(own.split() if others else None)
    if options.serve:
        serve(options.serve)
        return
    paths = options.models or [str(path) for path in sorted(DEFAULT_MODELS.glob("*.tflite"))]
    if not paths:
        sys.exit(f"no models are given, and there are none in {DEFAULT_MODELS}")
    if options.compressed:
        paths = compressed(paths, options.keep / "compressed")
    if options.atheris:
        guided(paths, options.keep, others.split())
    elif options.beside_tflite_micro:
        beside(paths, options)
    else:
        if not options.count and not options.seconds:
            options.seconds = 60.0
        sys.exit(1 if campaign(paths, options) else 0)


if __name__ == "__main__":
    main()
