"""Generate the reference pages of the documentation from the code: `python tools/reference.py`.

A test fails if they are out of date.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
import typing
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import documentation
from typer.models import ArgumentInfo, OptionInfo, ParameterInfo

import tflm
from tflm import errors, memory
from tflm.boards import Board, boards, chips
from tflm.boards.sdks import sdk_shares
from tflm.cli import json_schema
from tflm.cli.app import NAMES, function_of, options
from tflm.cli.parameters import command, shown_help
from tflm.kernels import REGISTRATIONS
from tflm.runtime.micro_op_resolver import method_name
from tflm.schema import TensorType

DOCS = Path(__file__).parents[1] / "docs"
GALLERY = Path(__file__).parents[1] / "examples" / "gallery"

GENERATED = "<!-- Written by tools/reference.py from the code. Changes here are lost. -->"

STUB = Path(__file__).parents[1] / "tflm" / "runtime" / "resolver_methods.pyi"

STUB_INTRODUCTION = '''\
"""The methods of resolvers that add an operator each. Written by tools/reference.py; changes here are lost."""

from tflm.kernels import Registration

class ResolverMethods:'''

COMMANDS_INTRODUCTION = """\
`tflm COMMAND --help` shows the help on this page. `python -m tflm` is the same as `tflm`.
`tflm --install-completion` enables completion of commands, options, targets and planners (bash, zsh, fish).

| exit status | meaning |
| --- | --- |
| 0 | success |
| 1 | error, or a requested check failed (`--budget`, `--check`) |
| 2 | invalid arguments |
| 3 | it is not known whether the model fits |
| 70 | a bug in tflm |
| 141 | the program that reads the output stopped early, as `head` does |

A command replaces a file only if tflm wrote it and nobody changed it since, or with `--force`: the cache folder has the
hashes of the files that were written. It never replaces a file that it reads, except the model itself by `-o` with
`--force`. A file gets all of its new contents or keeps the old ones, and so does a folder with its files.
`gate --summary` appends to its file; `evaluate --results` and `wake-word --manifest` change theirs.

With status 1, a line on standard error says why; `tflm --debug COMMAND ...` adds a traceback. [JSON](json.md) describes
the output of `--json`. Tables are as wide as the terminal, or as `COLUMNS`; in a pipe, as 160 columns. Long names are
shortened in the middle; `--json` has them whole. `NO_COLOR` turns off colours and bold text. On a terminal,
commands that take longer than a second show a progress bar."""

API_INTRODUCTION = """\
All public names of `tflm`, by topic, with the planners and allocators of `tflm.memory`. The file format is in
`tflm.schema`, the interface of the `tflite-micro` package in `tflm.compat.tflite_micro.runtime`. The documentation
site (`make docs`) shows the signature and the docstring of each name; so does `help()` in Python."""

TOPICS: dict[str, tuple[str, ...]] = {
    "Running models": (
        *("Model", "verify", "MicroInterpreter", "MicroMutableOpResolver", "AllOpsResolver", "TfLiteTensor"),
        *("TfLiteEvalTensor", "MicroAllocator", "RecordingMicroAllocator", "MicroProfiler"),
    ),
    "Measuring": (
        *("measure_arena", "ArenaMeasurement", "Peak", "PlannedBuffer", "RecordedAllocation", "RecordedAllocationType"),
        *("measure_separate_arenas", "SeparateArenas"),
    ),
    "Boards": (
        *("fit", "Fit", "FitStep", "board_fit", "BoardFit", "check_device", "DeviceFinding", "flash", "Flash"),
        *("estimate", "Estimate"),
    ),
    "Smaller models": (
        *("plan", "ModelPlan", "tile", "TiledModel", "TiledStage", "fold", "strip", "compress", "CompressedModel"),
        *("CompressedTensor", "resize", "update_versions", "stream", "StreamedModel", "StreamedLayer"),
    ),
    "Quantization and data sets": (
        *("quantize", "QuantizedModel", "Alternative", "FloatOperator", "evaluate", "Evaluation", "calibrate_report"),
        "CalibrationReport",
    ),
    "Models as C": ("compile_model", "CompiledModel", "compile_models", "CompiledModels"),
    "Building models": ("ModelBuilder", "schema.SubgraphBuilder", "quantized"),
    "Operators": ("Registration", "KernelContext", "Node", "ethos_u"),
    "Planners": tuple(
        f"memory.{name}"
        for name in memory.__all__
        if callable(value := getattr(memory, name)) and value is not tflm.PlannedBuffer
    ),
    "Errors": tuple(name for name in tflm.__all__ if name in vars(errors)),
}
"""The pages of the API, and the names on each."""

OPERATORS_INTRODUCTION = """\
The types are those of an operator's main tensor, usually its first input. Other tensors have other types: for example,
operators with int8 and int16 inputs have int8 or int4 weights and int32 or int64 biases. If an operator does not
support a model's tensors or options, allocation raises an `OperatorError` that names the tensor. Types, shapes and
options are those of TFLM's reference kernels."""

BOARDS_INTRODUCTION = """\
These boards can be used with `--board`; `tflm boards [WORDS]` lists them. Sizes are the manufacturers', for the whole
chip. The [SDK](#sdks) leaves a part of that; your own program takes more. An arena is placed in one memory, or its
tail in another; `tflm arena MODEL --board NAME` shows which memory is large enough. Kernels and SDK are the board's
usual ones; `--kernels` and `--sdk` select others. [Sizing an arena](sizing_an_arena.md) explains how to find out
which kernels you have.

The clock and the usual optimization level are listed for parts with [timing data](firmware_budget.md#time).

The table is `tflm/boards/boards.csv`. For a board that is not in it, use the name of its chip, `--target PART --ram
SIZE`, or [a file](#a-board-of-your-own). Boards of an installed PlatformIO, and of the Zephyr tree that
`$ZEPHYR_BASE` names, are found as well if their chip is listed."""

SDKS_INTRODUCTION = """\
## SDKs

Memory in bytes that an SDK leaves to your program, and what it uses of that before your program begins. Figures are
for the chip, for a board, or for a family of parts. A range is an estimate, or differs by version and settings; a
model fits only if it does so at the worst end. *How* says where the sizes of memories come from: a linker script, or
a boot log of an empty program, which also shows what the SDK takes. Where it says *linker script* or *estimate*, what
the SDK takes is an estimate. The heap is the largest block for `malloc` or `heap_caps_malloc` before the SDK's tasks
are started, where it can exceed static data; starting takes *start-up* of it. `esp-idf+wifi` has Wi-Fi started. The
table is `tflm/boards/sdks.csv`."""

OWN_INTRODUCTION = """\
## A board of your own

`--board` takes a file. `examples/boards/my_board.toml`:"""

CHIPS_INTRODUCTION = """\
## Chips

A bare chip has its on-chip memories only. Part numbers such as `STM32F746ZGT6` work, too."""

NAMES_INTRODUCTION = """\
## Names

Case, hyphens, underscores, dots and spaces do not matter, and a unique beginning is enough. Vendors' names,
PlatformIO and Zephyr identifiers and Arduino FQBNs (with or without options) are accepted:"""

JSON_INTRODUCTION = """\
With `--json`, {commands} print one document on
standard output. Keys do not change; new ones may be added. Sizes are in bytes. `[]` stands for each element of a list,
`*` for each name; a key with `?` is optional. A *float* is a number, or one of the strings `"NaN"`, `"Infinity"` and
`"-Infinity"`, which JSON lacks.

`tflm json-schema COMMAND` prints the same as JSON Schema (2020-12). Its `$id` ends with a version, which increases when
a key is removed or changes its meaning, not when one is added.

If a check (`--budget`, `--check`) fails, the document is printed as well, and the exit status is 1."""

JSON_NOTES = {
    "arena": "With `--all-targets` there is an element of `models` for each model and target.",
    "profile": "The slowest operator is first.",
    "evaluate": "Shares are from 0 to 1. Keys about labels are present if samples have labels, those about a reference "
    "if one is given.",
}
"""Notes on documents."""

GALLERY_INTRODUCTION = """\
Each example is a program of one screen in `examples/gallery/` that draws the picture above its code. They need the
extra `plot`; the planner's needs hypothesis as well."""

COMMON_TYPES = (
    TensorType.FLOAT32,
    TensorType.INT8,
    TensorType.INT16,
    TensorType.INT32,
    TensorType.INT64,
    TensorType.UINT8,
    TensorType.BOOL,
)
"""Types with a column of their own."""

ANY_TYPE = {
    **dict.fromkeys(
        ("ASSIGN_VARIABLE", "IF", "READ_VARIABLE", "RESHAPE", "SHAPE", "SQUEEZE", "WHILE", "ethos-u"), "any"
    ),
    **dict.fromkeys(("CALL_ONCE", "VAR_HANDLE"), "has no tensor of data"),
}
"""Operators that don't declare types, and why."""


# --- Commands ----------------------------------------------------------------------------------------------------


def commands() -> str:
    """The page of all commands."""
    parts = [
        "# Commands",
        GENERATED,
        COMMANDS_INTRODUCTION,
        "Options before the command:\n\n" + _parameter_table(options),
    ]
    for name in NAMES:
        parts += _command(name, command(function_of(name)))
    return _page(parts)


def _command(name: str, function: Callable[..., Any]) -> Iterator[str]:
    text, _, examples = inspect.cleandoc(function.__doc__ or "").partition("\b\n")
    lines = [line.strip() for line in examples.splitlines()[1:]]
    arguments = " ".join(info.metavar or "" for _, info, _ in _parameters(function) if isinstance(info, ArgumentInfo))
    yield f"## tflm {name}"
    yield text.strip()
    yield _fenced("sh", lines)
    yield f"`tflm {name} [OPTIONS] {arguments}`"
    yield _parameter_table(function)


def _parameters(function: Callable[..., Any]) -> Iterator[tuple[str, ParameterInfo, Any]]:
    hints = typing.get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        hint = hints[name]
        if (
            typing.get_origin(hint) is not Annotated
        ):  # Python 3.10 makes parameters with the default None optional once more
            hint = typing.get_args(hint)[0]
        info, *_ = hint.__metadata__
        yield name, info, parameter.default


def _parameter_table(function: Callable[..., Any]) -> str:
    rows = ["| | |", "| --- | --- |"]
    for name, info, default in _parameters(function):
        text = shown_help(info.help or "")
        if isinstance(info, OptionInfo):
            # Inside Annotated, typer takes the first name for a default.
            first = [info.default] if isinstance(info.default, str) else []
            names = [*first, *(info.param_decls or ())] or ["--" + name.replace("_", "-")]
            shown = ", ".join(f"`{each}`" for each in names) + (f" `{info.metavar}`" if info.metavar else "")
            if default not in (None, False, inspect.Parameter.empty):
                text += f" Default: `{default}`."
        else:
            shown = f"`{info.metavar}`"
        rows.append(f"| {shown} | {_cell(text)} |")
    return "\n".join(rows)


# --- API ---------------------------------------------------------------------------------------------------------


def api() -> str:
    """Return the page that lists all public names, by topic."""
    parts = ["# API", GENERATED, API_INTRODUCTION, _targets()]
    for topic, names in TOPICS.items():
        page = _topic_page(topic)
        rows = [f"| [`tflm.{name}`]({page}#{_anchor(name)}) | {_cell(_summary(name))} |" for name in names]
        parts += [f"## {topic}", "\n".join(["| name | |", "| --- | --- |", *rows])]
    return _page(parts)


def api_topic(topic: str) -> str:
    """Return the page of a topic: each name with a summary, which the site replaces by the whole docstring."""
    parts = [f"# {topic}", GENERATED, "The [API](api.md) lists all names."]
    for name in TOPICS[topic]:
        value = _value(name)
        parts += [f"## {_heading(name)}", _summary(name), f"<!-- ::: {value.__module__}.{value.__qualname__} -->"]
    return _page(parts)


def _value(name: str) -> Any:
    return functools.reduce(getattr, name.split("."), tflm)


def _heading(name: str) -> str:
    return "class " * inspect.isclass(_value(name)) + name.rpartition(".")[2]


def _anchor(name: str) -> str:
    return documentation.anchor(_heading(name))


def _summary(name: str) -> str:
    return " ".join((inspect.getdoc(_value(name)) or "").partition("\n\n")[0].split())


def _topic_page(topic: str) -> str:
    return f"api_{topic.lower().replace(' ', '_')}.md"


def _targets() -> str:
    rows = [
        f"| `tflm.targets.{_constant_name(target)}` | `{name}` | {target.description} |"
        for name, target in (tflm.targets.TARGETS | tflm.targets.PARTS).items()
    ]
    head = ["| target | by name | |", "| --- | --- | --- |"]
    return "## Targets\n\n" + "\n".join(head + rows)


def _constant_name(target: tflm.targets.Target) -> str:
    constants = (name for name, value in vars(tflm.targets).items() if value is target)
    return next(constants, f'PARTS["{target.name}"]')


# --- Operators ---------------------------------------------------------------------------------------------------


def operators() -> str:
    """The page of all operators, and the types that they take."""
    names = sorted(REGISTRATIONS, key=lambda name: (not name.isupper(), name))
    head = ["", *(type.name.lower() for type in COMMON_TYPES), "others", "version", "added by"]
    rows = [_row(head), _row(["---", *[":---:"] * len(COMMON_TYPES), "---", "---", "---"])]
    for name in names:
        registration = REGISTRATIONS[name]
        marks = ["•" if type in registration.types else "" for type in COMMON_TYPES]
        others = " ".join(type.name.lower() for type in registration.types if type not in COMMON_TYPES)
        versions = {registration.min_version, registration.max_version}
        version = " to ".join(map(str, sorted(versions)))
        rows.append(_row([name, *marks, others or ANY_TYPE.get(name, ""), version, f"`{method_name(name)}`"]))
    return _page(["# Operators", GENERATED, OPERATORS_INTRODUCTION, "\n".join(rows)])


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


# --- Boards ------------------------------------------------------------------------------------------------------


def board_table() -> str:
    """The page of all boards and chips."""
    shown = _memory_table(boards().values(), ["board", "", "part", "usual kernels", "SDK", *MEMORIES, ""])
    bare = _memory_table(chips().values(), ["chip", "part", "usual kernels", "SDK", *MEMORIES])
    names = [_row(["board", "other names"]), _row(["---", "---"])]
    names += [
        _row([f"`{b.name}`", " ".join(f"`{alias}`" for alias in b.aliases)]) for b in boards().values() if b.aliases
    ]
    return _page(
        [
            "# Boards",
            GENERATED,
            BOARDS_INTRODUCTION,
            shown,
            CHIPS_INTRODUCTION,
            bare,
            SDKS_INTRODUCTION,
            _sdk_table(),
            OWN_INTRODUCTION,
            _fenced("toml", (DOCS.parent / "examples/boards/my_board.toml").read_text(encoding="utf-8").splitlines()),
            NAMES_INTRODUCTION,
            "\n".join(names),
        ]
    )


MEMORIES = ["RAM, fastest first", "flash", "clock"]
SDK_COLUMNS = [
    "SDK",
    "for",
    "static data",
    "heap",
    "RAM taken",
    "start-up",
    "flash for a program",
    "code",
    "how",
    "source",
]


def _sdk_table() -> str:
    rows = [_row(SDK_COLUMNS), _row(["---"] * len(SDK_COLUMNS))]
    for places, share in sdk_shares():
        static, heap = (
            ", ".join(f"{name} {size}" for name, size in each.items()) for each in (share.static, share.heap)
        )
        program = (
            f"{share.program}"
            if share.program
            else f"all but {share.reserved_bytes:,}"
            if share.reserved_bytes
            else "all"
        )
        taken = str(share.ram), str(share.startup) if share.startup.high else ""
        source = f"{share.source}, {share.date}"
        rows.append(_row([f"`{share.sdk}`", places, static, heap, *taken, program, str(share.code), share.how, source]))
    return "\n".join(rows)


def _memory_table(known: Iterable[Board], heads: list[str]) -> str:
    rows = [_row(heads), _row(["---"] * len(heads))]
    for board in known:
        ram = " + ".join(f"{bank.name} {_size(bank.bytes)}" for bank in board.ram)
        part = f"`{board.target.name}`" + (f", {board.npu}" if board.npu else "")
        flash = "" if board.flash_bytes is None else _size(board.flash_bytes)
        clock = "" if board.mhz is None else f"{board.mhz:g} MHz, `{board.optimization}`"
        said = [board.description] if board.source else []
        source = [f"[source]({board.source})"] if board.source else []
        rows.append(_row([f"`{board.name}`", *said, part, f"`{board.kernels}`", board.sdk, ram, flash, clock, *source]))
    return "\n".join(rows)


def _size(size: int) -> str:
    for unit, factor in (("M", 1 << 20), ("K", 1 << 10)):
        if size % factor == 0:
            return f"{size // factor:,}{unit}"
    return f"{size:,}"


# --- JSON ---------------------------------------------------------------------------------------------------------


def json_documents() -> str:
    """The page of what `--json` prints."""
    names = ", ".join(f"`{command}`" for command in json_schema.commands())
    parts = ["# JSON", GENERATED, JSON_INTRODUCTION.format(commands=names)]
    for document, keys in json_schema.documents().items():
        rows = [_row(["key", "type", ""]), _row(["---"] * 3)]
        rows += [_row([f"`{key.path}`", _type_name(key.type), _cell(key.meaning)]) for key in keys]
        parts.append("## " + ", ".join(f"tflm {name}" for name in document.split(", ")))
        parts += [JSON_NOTES[document]] if document in JSON_NOTES else []
        parts.append("\n".join(rows))
    return _page(parts)


def _type_name(kind: str) -> str:
    """A type in words: list of integer or null."""
    words = [f"{'list of ' * each.count('[]')}{each.replace('[]', '')}" for each in kind.split("|")]
    return " or ".join(re.sub("'(.*)'", r'`"\1"`', word) for word in words)


# --- Gallery ------------------------------------------------------------------------------------------------------


def gallery() -> str:
    """The page of examples: each with its picture, the command that runs it, and its code."""
    parts = ["# Gallery", GENERATED, GALLERY_INTRODUCTION]
    for path in sorted(GALLERY.glob("*.py")):
        docstring, code = path.read_text(encoding="utf-8").removeprefix('"""').split('"""\n\n', 1)
        title, _, text = docstring.partition("\n\n")
        title = title.removesuffix(".")
        parts += [f"## {title}", text.strip(), f"![{title}](images/gallery/{path.stem}.svg)"]
        parts += [f"`python examples/gallery/{path.name}`", _fenced("python", code.splitlines())]
    return _page(parts)


# --- All of them -------------------------------------------------------------------------------------------------


def _fenced(language: str, lines: Iterable[str]) -> str:
    return "\n".join([f"```{language}", *lines, "```"])


def _cell(text: str) -> str:
    return re.sub(r"<(\w+)>", r"\\<\1\\>", text.replace("|", "\\|"))


def _page(parts: Iterable[str]) -> str:
    return "\n\n".join(parts) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "commands.md": commands,
    "api.md": api,
    **{_topic_page(topic): functools.partial(api_topic, topic) for topic in TOPICS},
    "operators.md": operators,
    "boards.md": board_table,
    "json.md": json_documents,
    "gallery.md": gallery,
}


def resolver_methods() -> str:
    """The stub that declares the resolver's methods, which exist at run time only."""
    methods = (
        f"    def {method_name(operator)}(self, registration: Registration | None = None) -> None: ..."
        for operator in REGISTRATIONS
    )
    return "\n".join([STUB_INTRODUCTION, *methods, ""])


def main() -> None:
    """Write all pages."""
    STUB.write_text(resolver_methods(), encoding="utf-8")
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
        print(DOCS / name, file=sys.stderr)


if __name__ == "__main__":
    main()
