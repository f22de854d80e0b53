"""List what a newer TFLM changes in the sources on which this package's declarations are based.

    python tools/follow.py ../tflite-micro               # what differs, and what depends on it
    python tools/follow.py ../tflite-micro --record      # from now on, this tree is what declarations follow

`followed.json` has a hash for each structure, function and constant of the followed sources, but none of their text.
docs/releases.md says what to do about each kind of difference.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from c_pieces import hash_of, pieces_of

from tflm.kernels import REGISTRATIONS

HERE = Path(__file__).parent
RECORD = HERE / "followed.json"
PACKAGE = HERE.parent / "tflm"

MICRO = "tensorflow/lite/micro"
FOLDERS = (
    MICRO,
    f"{MICRO}/arena_allocator",
    f"{MICRO}/compression",
    f"{MICRO}/memory_planner",
    f"{MICRO}/tflite_bridge",
    f"{MICRO}/kernels",
    f"{MICRO}/kernels/cmsis_nn",
    f"{MICRO}/kernels/ethos_u",
    "tensorflow/lite/c",
    "tensorflow/lite/core/c",
    "tensorflow/lite/core/api",
    "tensorflow/lite/kernels",
    "tensorflow/lite/kernels/internal",
    "tensorflow/lite/kernels/internal/reference",
    "tensorflow/lite/kernels/internal/reference/integer_ops",
    "tensorflow/compiler/mlir/lite/core/api",
    "tensorflow/compiler/mlir/lite/core/c",
    "tensorflow/compiler/mlir/lite/kernels/internal",
    "signal/micro/kernels",
    "signal/src",
    "signal/src/kiss_fft_wrappers",
)
"""Folders whose sources the declarations follow."""

NO_SOURCE = re.compile(r"_test\.|test_|testing|mock_|fake_|_testdata|_generated_data")
PIN = f"{MICRO}/tools/make/ext_libs/cmsis_nn_download.sh"
PINNED = re.compile(r'ZIP_PREFIX_NN="(\w+)"')

REQUESTS = re.compile(
    "AllocatePersistentBuffer|RequestScratchBufferInArena|AllocateTemp\\w+|AllocateFromTail|Allocate\\w*Buffer"
)
DECLARATION = re.compile(r'(?:\bStruct|\.extend)\(\s*"([^"]+)"')
RESOLVER = "micro_mutable_op_resolver.h"
KINDS = {
    "structure": "structures: sizes in the arena",
    "request": "Prepare and Init: requests, refusals",
    "operator": "resolver entries",
    "pin": "pins of kernel libraries",
    "arithmetic": "arithmetic, and everything else",
}
"""Kinds of differences, and their meaning for this package."""

Pieces = dict[str, dict[str, str]]
"""Hashes by file, and by kind and name as in "structure TfLiteNode"."""


class Difference(NamedTuple):
    """A difference of a piece: "changed", "new" or "gone"."""

    kind: str
    what: str
    file: str
    name: str


def pieces_in(tree: Path) -> Pieces:
    """The pieces of a tree of TFLM.

    Raises:
        SystemExit: it has none of the folders.
    """
    found: Pieces = {}
    for folder in FOLDERS:
        for path in sorted((tree / folder).glob("*")):
            if path.suffix in (".h", ".cc", ".c") and not NO_SOURCE.search(path.name):
                text = path.read_text("utf-8", "replace")
                found[f"{folder}/{path.name}"] = {
                    f"{_kind(path.name, *key, tokens)} {key[1]}": hash_of(tokens)
                    for key, tokens in pieces_of(text).items()
                }
    if not found:
        raise SystemExit(f"{tree}: no TFLM; expected a tree with {MICRO}")
    if (tree / PIN).exists():
        found[PIN] = {"pin CMSIS-NN": hash_of(PINNED.findall((tree / PIN).read_text("utf-8")))}
    return found


def _kind(file: str, kind: str, name: str, tokens: Iterable[str]) -> str:
    if kind == "structure":
        return kind
    if file == RESOLVER:
        return "operator"
    last = name.split("::")[-1]
    is_request = last in ("Init", "Prepare") or last.endswith("Prepare") or any(map(REQUESTS.fullmatch, tokens))
    return "request" if is_request else "arithmetic"


def differences(before: Pieces, after: Pieces) -> Iterator[Difference]:
    """The differences between two trees; a piece that moved to another file is the same if its hash is equal."""
    moved_from, moved_to = _by_content(before), _by_content(after)
    for file in sorted(before.keys() | after.keys()):
        old, new = before.get(file, {}), after.get(file, {})
        for piece in sorted(old.keys() | new.keys()):
            kind, name = piece.split(" ", 1)
            if piece not in new:
                if (piece, old[piece]) not in moved_to:
                    yield Difference(kind, "gone", file, name)
            elif piece not in old:
                if (piece, new[piece]) not in moved_from:
                    yield Difference(kind, "new", file, name)
            elif old[piece] != new[piece]:
                yield Difference(kind, "changed", file, name)


def _by_content(pieces: Pieces) -> set[tuple[str, str]]:
    return {piece for of_file in pieces.values() for piece in of_file.items()}


# --- What depends on a piece -------------------------------------------------------------------------------------


def declared_structures() -> dict[str, list[str]]:
    """File and line of this package's declaration of each C structure, by name."""
    found: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text("utf-8")
        for match in DECLARATION.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            found.setdefault(match[1].rpartition(":")[2], []).append(f"{path.relative_to(PACKAGE.parent)}:{line}")
    return found


def modules_by_stem(pieces: Pieces) -> dict[str, set[str]]:
    """By the stem of a source, modules of the same name, and those of the operators that it registers."""
    found: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        if "testing" not in path.parts:
            found.setdefault(path.stem, set()).add(str(path.relative_to(PACKAGE.parent)))
    operators = {name.replace("_", "").lower(): name for name in REGISTRATIONS}
    for file, of_file in pieces.items():
        if not file.startswith((f"{MICRO}/kernels/", "signal/micro/kernels/")):
            continue
        for piece in of_file:
            register = re.search(r"Register_?(\w+)$", piece)
            name = operators.get(register[1].replace("_", "").lower()) if register else None
            if name is not None:
                module = REGISTRATIONS[name].prepare.__module__.replace(".", "/") + ".py"
                found.setdefault(stem_of(file), set()).add(module)
    return found


ALIASES = {
    "tensorflow/lite/core/c/common": "tensor",
    "tensorflow/lite/c/common": "tensor",
    "tensorflow/lite/kernels/internal/common": "fixed_point",
    "tensorflow/lite/kernels/internal/types": "elementwise",
    "runtime_shape": "elementwise",
    "process_broadcast_shapes": "elementwise",
    "requantize": "requantization",
    "strided_slice_logic": "strided_slice",
    "mean": "reduce",
    "min": "maximum_minimum",
    "max": "maximum_minimum",
    "l2normalization": "normalization",
    "ethosu": "custom",
    "irfft": "fft",
    "rfft": "fft",
    "rfft_float": "fft",
    "fft_auto_scale": "fft",
    "fft_auto_scale_kernel": "fft",
    "kiss_fft_float": "fft",
    "kiss_fft_int32": "fft",
    "irfft_float": "fft",
    "irfft_int32": "fft",
    "rfft_int32": "fft",
    "log": "filter_bank",
    "square_root": "filter_bank",
    "square_root_32": "filter_bank",
    "square_root_64": "filter_bank",
    "pcan_argc_fixed": "filter_bank",
    "decode_state": "decode",
    "decode_state_huffman": "decode",
    "decode_state_lut": "decode",
    "decode_state_prune": "decode",
    "memory_helpers": "micro_allocator",
    "builtin_op_data": "parameters",
    "tflite_types": "enums",
    "recording_single_arena_buffer_allocator": "simple_memory_allocator",
    "lstm_cell": "unidirectional_sequence_lstm",
    "quantization_util": "fixed_point",
    "cppmath": "fixed_point",
    "padding": "geometry",
    "depthwise_conv": "convolution",
    "conv": "convolution",
    "kernel_util": "requests",
    "flatbuffer_conversions": "options",
    "micro_interpreter_graph": "micro_graph",
    "micro_interpreter_context": "micro_context",
    "single_arena_buffer_allocator": "simple_memory_allocator",
    "persistent_arena_buffer_allocator": "simple_memory_allocator",
    "non_persistent_arena_buffer_allocator": "simple_memory_allocator",
    "recording_micro_allocator": "micro_allocator",
    "micro_allocation_info": "lifetimes",
    "binary_function": "arithmetic",
    "broadcast_loop": "elementwise",
    "lstm_eval": "unidirectional_sequence_lstm",
    "lstm_shared": "unidirectional_sequence_lstm",
    "delay": "frames",
    "framer": "frames",
    "overlap_add": "frames",
    "stacker": "frames",
    "window": "frames",
    "energy": "filter_bank",
    "filter_bank_log": "filter_bank",
    "filter_bank_spectral_subtraction": "filter_bank",
    "filter_bank_square_root": "filter_bank",
    "pcan": "filter_bank",
    "kiss_fft": "fft",
    "kiss_fft_int16": "fft",
    "circular_buffer": "custom",
    "detection_postprocess": "custom",
    "ethos_u": "custom",
    "basic_classifier": "custom",
    "l2_normalization": "normalization",
    "softmax": "normalization",
    "conv_2d": "convolution",
    "depthwise_conv_2d": "convolution",
    "transpose_conv": "convolution",
    "relu": "activations",
    "prelu": "activations",
    "hard_swish": "activations",
    "elu": "activations",
    "logistic": "activations",
    "tanh": "activations",
    "leaky_relu": "activations",
    "greedy_memory_planner": "planners",
    "linear_memory_planner": "planners",
    "batch_matmul": "fully_connected",
}
"""Modules for sources with other names, by the stem or the whole path."""


def stem_of(file: str) -> str:
    """The name of the module for a source: its name without suffixes of variants, or another."""
    stem = file.rpartition(".")[0]
    short = _short_stem(file)
    return ALIASES.get(stem, ALIASES.get(short, short))


def _short_stem(file: str) -> str:
    return re.sub(r"(_common|_reference|_utils|_impl|_int8|_int16)+$", "", Path(file).stem)


def dependents(
    difference: Difference, structures: Mapping[str, list[str]], modules: Mapping[str, set[str]]
) -> list[str]:
    """The declarations that follow a piece: files of this package, of structures with the line."""
    if difference.kind == "pin":
        return ["tflm/libraries/pins.py"]
    if difference.kind == "operator":
        return ["tflm/kernels/__init__.py"]
    found = list(structures.get(difference.name.split("::")[-1], [])) if difference.kind == "structure" else []
    if "/cmsis_nn/" in difference.file:
        found = [place for place in found if "cmsis" in place] + ["tflm/libraries/cmsis_nn.py"]
    return found or sorted(modules.get(stem_of(difference.file), ()))


def report(found: list[Difference], pieces: Pieces) -> Iterator[str]:
    """Differences by kind, each with what depends on it."""
    structures, modules = declared_structures(), modules_by_stem(pieces)
    for kind, title in KINDS.items():
        of_kind = [difference for difference in found if difference.kind == kind]
        if of_kind:
            yield f"{title}: {len(of_kind)}"
            for each in of_kind:
                places = ", ".join(dependents(each, structures, modules)) or "no declaration"
                yield f"  {each.what:7} {each.file}: {each.name} -> {places}"
    yield f"{len(found)} pieces differ" if found else "nothing differs"


def main() -> None:
    """Compare or record a tree; the exit status is 1 if something differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path, help="a tree of TFLM, such as a clone")
    parser.add_argument("--record", action="store_true", help="write the tree's hashes to FILE, in place of comparing")
    parser.add_argument("--against", type=Path, default=RECORD, metavar="FILE", help="hashes (default: %(default)s)")
    options = parser.parse_args()
    pieces = pieces_in(options.tree)
    if options.record:
        options.against.write_text(json.dumps(pieces, indent=0, sort_keys=True) + "\n")
        return
    found = list(differences(json.loads(options.against.read_text()), pieces))
    print("\n".join(report(found, pieces)))
    raise SystemExit(1 if found else 0)


if __name__ == "__main__":
    main()
