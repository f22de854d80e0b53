"""How a model becomes C, from the text of options."""

from __future__ import annotations

from tflm.application.errors import OptionError
from tflm.application.models import bytes_from
from tflm.c.kernel_choice import GENERATED
from tflm.c.planner import MAX_CONSTANTS, CompileOptions
from tflm.targets import Target


def compile_options(
    ram: str | None,
    memories: str | None,
    kernels: str | None,
    target: Target | None,
    self_test: int = 0,
    max_constants: str | None = None,
    optimize: str | None = None,
) -> CompileOptions:
    """The options of `tflm compile`, which `tflm export --compiled` has, too; None for what was not given.

    Raises:
        OptionError: a text is invalid, or options exclude each other.
    """
    if ram is not None and memories is not None:
        raise OptionError("use either --ram, for one memory, or --memories")
    if optimize is not None and (ram is not None or memories is not None):
        raise OptionError("--optimize chooses the RAM; leave out --ram and --memories, or --optimize")
    return CompileOptions(
        ram=None if ram is None else bytes_from(ram),
        memories={} if memories is None else sizes_from(memories),
        self_test=self_test,
        kernels=kernels or GENERATED,
        target=target,
        max_constants=MAX_CONSTANTS if max_constants is None else bytes_from(max_constants),
        optimize=optimize,
    )


EXAMPLE = "DTCM:64K,SRAM:256K"


def sizes_from(text: str) -> dict[str, int]:
    """Parse names and sizes of memories, such as DTCM:64K,SRAM:256K.

    Raises:
        OptionError: the text is something else.
    """
    memories = {name: bytes_from(size) for name, size in pairs_from(text, "memories", EXAMPLE) if size}
    if len(memories) < len(text.split(",")):
        raise OptionError(f"invalid memories {text!r} (expected e.g. {EXAMPLE})")
    return memories


def pairs_from(text: str, what: str, example: str) -> list[tuple[str, str]]:
    """Parse names, each with what follows its colon, if anything.

    Raises:
        OptionError: a name is missing, or given twice.
    """
    pairs = [(name.strip(), value.strip()) for name, _, value in (part.partition(":") for part in text.split(","))]
    names = [name.lower() for name, _ in pairs]
    if not all(names):
        raise OptionError(f"invalid {what} {text!r} (expected e.g. {example})")
    twice = next((name for name, key in zip(dict(pairs), names) if names.count(key) > 1), None)
    if twice is not None:
        raise OptionError(f"invalid {what} {text!r}: {twice} is named twice")
    return pairs
