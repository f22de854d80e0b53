"""Run commands on damaged files: each must end with a result, a usage error or a `TflmError`.

`fuzz.py --commands` runs as many as wanted in processes of their own; the tests run a few hundred in theirs.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import random
import shutil
import tempfile
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import typer
from typer.core import TyperGroup
from typer.main import get_command

import tflm
from tflm.cli.app import app
from tflm.cli.group import USAGE_ERROR
from tflm.schema import BuiltinOperator, Conv2DOptions, Padding, TensorType

ORIGINAL = Path(__file__).parents[1] / "examples" / "hello_world" / "hello_world_int8.tflite"
OWN_BOARD = Path(__file__).parents[1] / "examples" / "boards" / "my_board.toml"
Mutate = Callable[[bytes, random.Random], bytes]

MODEL_AND_DATA = (
    "{model} --inputs {npy}",
    "{model} --inputs {npz}",
    "{model} --inputs {csv}",
    "{model} --inputs {folder}",
)
CALLS = {
    "arena": (
        "{model}",
        "{model} {model}",
        "{model} --all-targets",
        "{model} --board nano33ble --html {out}.html",
        "{model} --memories DTCM:4K,SRAM:256K --html {out}.html",
        "{model} --short --ram 4K",
        "{model} --badge {out}.svg --plot {out}.png",
    ),
    "boards": ("", "cortex-m55"),
    "calibrate-report": MODEL_AND_DATA,
    "check": ("{model}", "{model} --board nano33ble", "{model} -t esp32s3 --kernels esp-nn@1.2.3"),
    "compare": ("{model} {model}", "{model} {original}", "{original} {model}", "{model} {npz}", "{original} {npz}"),
    "compile": (
        "{model} {out}",
        "{model} {out} --self-test 1",
        "{model} {out} --kernels cmsis-nn --target cortex-m4",
        "{window} {out} --stream 2",
        "{model} {out} --stream 1",
        "{model} {out} --feed-rows 1",
        "{picture} {out} --feed-rows 3",
        "{model} {out} --serve",
        "{model} {out} --memories DTCM:1K,SRAM:256K --self-test 1",
        "{model} {out} --ram 2K",
    ),
    "compress": ("{model}", "{model} --ram 16K -o {out}.tflite"),
    "device-log": ("{log} {model}", "{log} {original}", "{log} {original} -t cortex-m4"),
    "doctor": ("",),
    "evaluate": (
        *MODEL_AND_DATA,
        "{original} --inputs {npy} --labels {labels}",
        "{original} --inputs {npy} --results {npz}",
    ),
    "export": (
        "{model} {out}",
        "{model} {out} --compiled",
        "{model} {out} --dump",
        "{model} {out} --serve",
        "{model} {out} --board coral-micro --memories DTCM:1K,SDRAM:256K",
        "{model} {out} --typed",
        "{model} {out} --board nrf52dk --project zephyr",
    ),
    "firmware": ("{sources}",),
    "fit": ("{model} --board nrf52dk", "{model} --board {toml}", "{model} --ram 2K --time-limit 0.1 -o {out}"),
    "flash": (
        "{model} -t cortex-m4 --kernels cmsis-nn",
        "{original} -t cortex-m4 --flash-data {json}",
        "{original} --board nrf52dk --map {map}",
    ),
    "fold": ("{model}", "{model} -o {out}.tflite"),
    "gate": ("{model} --budget 4K --summary {out}.md", "{model} --board nano33ble"),
    "inspect": ("{model}", "{model} --check"),
    "json-schema": ("arena",),
    "plan": (
        "{model} --in-place --reorder --time-limit 0.1",
        "{model} --csv {out}.csv --time-limit 0.1",
        "{model} --memories SRAM:2K,PSRAM:4M --time-limit 0.1 -o {out}",
        "{model} --head-ram 1K --tail-ram 8K --time-limit 0.1",
    ),
    "profile": ("{model} --runs 1", "{model} --board nano33ble", "{model} -t cortex-m4 --node-data {out}.json"),
    "quantize": MODEL_AND_DATA,
    "releases": ("",),
    "resize": ("{model} -o {out}.tflite", "{model} --shape 0=3,1 -o {out}.tflite"),
    "run": (
        *("{model} --random", "{model} --inputs {npy}", "{model} --inputs {npz}", "{model} --inputs {raw}"),
        *(
            "{model} --random --checks tflm --outputs {out}.npz",
            "{original} --inputs {csv}",
            "{original} --inputs {npz}",
        ),
        *(
            "{window} --inputs {npy} --stream",
            "{window} --inputs {wav} --stream --hop 2",
            "{model} --random 1 --steps 3 --dump-tensors --outputs {out}.npz",
        ),
        "{window} --inputs {wav} --stream --frontend {model}",
        *(
            "{picture} --inputs {png}",
            "{picture} --inputs {jpg}",
            "{original} --inputs {wav}",
            "{original} --inputs {npy}",
        ),
    ),
    "stream": ("{model}", "{model} -o {out}.tflite", "{model} --hop 2 --axis 1", "{window} --hop 3"),
    "strip": ("{model}", "{model} -o {out}.tflite"),
    "tile": ("{model} --time-limit 0.1", "{model} --macs 100% --ram 1K --time-limit 0.1"),
    "versions": ("{model}", "{model} --tflm esphome -o {out}.tflite"),
    "wake-word": ("{model}", "{word} --manifest {json}"),
    "warm": ("{model}",),
    "device": ("run {model} --port exec:false --random 1", "calibrate {model} --port exec:false"),
}
"""What each command is run with. `{model}` is the damaged model, `{original}` a good one and `{out}` a new place; the
others may be damaged. A test compares the names with those of the application."""

LOG = """\
FULLY_CONNECTED took 2 ticks (0 ms).
"Event","Tag","Ticks"
0,FULLY_CONNECTED,8
"Unique Tag","Total ticks across all events with that tag."
FULLY_CONNECTED, 8
"total number of ticks", 8
[RecordingMicroAllocator] Arena allocation total 772 bytes
[RecordingMicroAllocator] 'Persistent buffer data' used 64 bytes with alignment overhead (requested 60 bytes for 2 \
allocations)
arena_used_bytes 772
Failed to resize buffer. Requested: 9, available 8, missing: 1
Didn't find op for builtin opcode 'SOFTMAX'
"""
MAP = """\
Memory Configuration

Name             Origin             Length             Attributes
FLASH            0x0000000000000000 0x0000000000080000 xr
RAM              0x0000000020000000 0x0000000000010000 xrw

Linker script and memory map

 .text.main     0x0000000000000000       0x10 libtensorflow-microlite.a(micro_interpreter.o)
.data           0x0000000020000000       0x40
"""
MANIFEST = {"type": "micro", "model": "m.tflite", "micro": {"tensor_arena_size": 1000, "feature_step_size": 10}}
SOURCES = {
    "tensorflow/lite/micro/micro_interpreter.cc": "/* a */\n#include <a.h>\nint a; // b\n",
    "tensorflow/lite/micro/micro_allocator.cc": "int a;\n",
    "tensorflow/lite/micro/micro_graph.cc": "int a;\n",
    "CMakeLists.txt": "-DTF_LITE_STATIC_MEMORY -DESP_NN",
    "dependencies.lock": "dependencies:\n  espressif/esp-nn:\n    version: 1.1.0\n",
}


class BadEnding(AssertionError):
    """A command ended with something else than a result or an error that says what is wrong."""


@functools.cache
def commands() -> Any:
    """The application."""
    return get_command(app)


def run(data: bytes, name: str, seed: int, mutate: Mutate) -> str:
    """Run one of a command's calls on a damaged model, with other files that the seed determines.

    Returns "result", or the kind of error.

    Raises:
        BadEnding: an error that is neither a `TflmError`, a usage error nor of a file; or that says nothing.
    """
    rng = random.Random(f"{name} {seed}")
    group = commands()
    options = {option for each in group.get_command(None, name).params for option in each.opts}
    call = rng.choice(CALLS[name]).split()
    call += [option for option in ("--json",) if option in options and rng.random() < 0.5]
    folder = Path(tempfile.mkdtemp())
    try:
        names = {part[1:].partition("}")[0] for part in call if part.startswith("{")}
        made = {each: str(_made(each, folder, data, rng, mutate)) for each in sorted(names)}
        return ending([name, *(part.format(**made) for part in call)])
    finally:
        shutil.rmtree(folder)


def ending(arguments: list[str]) -> str:
    """How a call ends, without what the application does about unexpected errors.

    Raises:
        BadEnding: as `run` says.
    """
    group = commands()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            with group.make_context("tflm", arguments) as context:
                TyperGroup.invoke(group, context)
            return "result"
        except tflm.TflmError as error:
            if not str(error).strip():
                raise BadEnding(f"a {type(error).__name__} that says nothing: {arguments}") from error
            return type(error).__name__
        except OSError as error:
            if error.filename is None:
                raise BadEnding(f"an OSError that names no file: {arguments}") from error
            return "OSError"
        except typer.Exit:
            return "result"
        except USAGE_ERROR:
            return "usage error"
        except Exception as error:
            raise BadEnding(f"{type(error).__name__}: {error}: tflm {' '.join(arguments)}") from error


def _made(name: str, folder: Path, data: bytes, rng: random.Random, mutate: Mutate) -> Path:
    """A file or folder of a call."""
    if name in ("model", "original"):
        return _written(folder / f"{name}.tflite", data if name == "model" else ORIGINAL.read_bytes())
    if name == "out":
        return folder / "out"
    if name in MODELS:
        return _written(folder / f"{name}.tflite", MODELS[name]())
    contents = _contents(name, _input_of(data), rng)
    if isinstance(contents, dict):
        for place, content in contents.items():
            (folder / name / place).parent.mkdir(parents=True, exist_ok=True)
            _written(folder / name / place, _perhaps_damaged(content, rng, mutate))
        return folder / name
    return _written(folder / f"data.{name}", _perhaps_damaged(contents, rng, mutate))


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def _perhaps_damaged(content: bytes, rng: random.Random, mutate: Mutate) -> bytes:
    if rng.random() < 0.2:
        return content
    for _ in range(rng.randint(1, 4)):
        content = mutate(content, rng) if rng.random() < 0.5 else _with_odd_text(content, rng)
    return content


ODD_TEXTS = (
    *("", "-", "0", "-1", "1e999", "nan", "inf", "9" * 30, "9" * 5000, "0.5", "true", "null", "[]", "{}", "[" * 20_000),
    *("\x00", "\n", ",", '"', "'", "\u0663", "\ud7ff", "label", "x" * 5000, "(", "True", "-0", "1_0", "\x85", ":"),
)


def _with_odd_text(content: bytes, rng: random.Random) -> bytes:
    """Put an odd text in place of some bytes; half of the times, of a number."""
    digits = [i for i, byte in enumerate(content[:4096]) if 48 <= byte < 58]
    at = rng.choice(digits) if digits and rng.random() < 0.5 else rng.randrange(min(len(content), 4096) + 1)
    return content[:at] + rng.choice(ODD_TEXTS).encode() + content[at + rng.choice([0, 1, 1, 4]) :]


def _input_of(data: bytes) -> np.ndarray[Any, Any]:
    """The first input of a model if it runs, else of the original."""
    for each in (data, ORIGINAL.read_bytes()):
        with contextlib.suppress(tflm.TflmError):
            interpreter = tflm.MicroInterpreter(tflm.Model(each), tflm.AllOpsResolver(), bytearray(1 << 16))
            interpreter.allocate_tensors()
            return np.array(interpreter.input(0).data)
    raise AssertionError("the original does not run")


def _contents(name: str, values: np.ndarray[Any, Any], rng: random.Random) -> bytes | dict[str, bytes]:
    """A good file of a kind, or the files of a folder, for an input."""
    if name == "folder":
        kinds = rng.sample(["npy", "csv", "wav", "png"], 2)
        files = {f"{c}/{i}.{kind}": _contents(kind, values, rng) for c in "ab" for i, kind in enumerate(kinds)}
        return {place: content for place, content in files.items() if isinstance(content, bytes)}
    if name == "sources":
        return {place: text.encode() for place, text in SOURCES.items()}
    samples = np.zeros((4, *values.shape), values.dtype)
    file = io.BytesIO()
    if name == "npy":
        np.save(file, rng.choice([samples, values, samples.astype(np.float64), np.zeros((0,), np.float32)]))
    elif name == "npz":
        if rng.random() < 0.5:
            np.savez(file, inputs=samples, labels=np.arange(4))
        else:
            np.savez(file, in_0_0=values, out_0_0=values)
    elif name == "wav":
        with wave.open(file, "wb") as sound:
            sound.setparams((1, 2, 16000, 0, "NONE", ""))
            sound.writeframes(bytes(2 * values.size))
    elif name in ("png", "jpg"):
        from PIL import Image

        Image.new("RGB", (8, 8), "red").save(file, {"png": "PNG", "jpg": "JPEG"}[name])
    else:
        row = ",".join("1" for _ in range(values.size))
        texts = {
            "csv": rng.choice([f"{row}\n{row}\n", f"{row},label\n".replace("1", "x") + f"{row},1\n" * 3]),
            "labels": "0 1 2 3",
            "log": LOG,
            "json": json.dumps(MANIFEST),
            "raw": "\0" * values.nbytes,
            "map": MAP,
            "toml": OWN_BOARD.read_text(),
        }
        return texts[name].encode()
    return file.getvalue()


def picture_model() -> bytes:
    """RELU over a picture of 8 x 8 pixels."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 8, 8, 3), TensorType.FLOAT32)
    y = main.tensor("y", (1, 8, 8, 3), TensorType.FLOAT32)
    main.operator(BuiltinOperator.RELU, [x], [y])
    main.output(y)
    return builder.build()


def word_model() -> bytes:
    """FULLY_CONNECTED from a slice of sound to a probability, as micro_wake_word accepts them."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    half = tflm.quantized(0.5)
    x = main.input("x", (1, 1, 40), TensorType.INT8, half)
    weights = main.constant("weights", np.ones((1, 40), np.int8), half)
    score, y = main.tensor("score", (1, 1), TensorType.INT8, half), main.tensor("y", (1, 1), TensorType.UINT8, half)
    main.operator(BuiltinOperator.FULLY_CONNECTED, [x, weights, -1], [score])
    main.operator(BuiltinOperator.QUANTIZE, [score], [y])
    main.output(y)
    return builder.build()


def window_model() -> bytes:
    """A convolution over a window of 8 frames."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    half = tflm.quantized(0.5)
    x, weights = main.input("x", (1, 8, 1, 4), TensorType.INT8, half), np.ones((2, 3, 1, 4), np.int8)
    y = main.tensor("y", (1, 6, 1, 2), TensorType.INT8, half)
    options = Conv2DOptions(padding=Padding.VALID, stride_h=1, stride_w=1)
    main.operator(BuiltinOperator.CONV_2D, [x, main.constant("weights", weights, half), -1], [y], options)
    main.output(y)
    return builder.build()


MODELS = {"picture": picture_model, "window": window_model, "word": word_model}
"""Good models of other forms than the original."""
