"""How a model becomes C, from the text of options."""

from __future__ import annotations

from tflm.application.errors import OptionError
from tflm.application.models import bytes_from
from tflm.c.compile import MAX_CONSTANTS, CompileOptions
from tflm.c.kernel_choice import GENERATED
from tflm.targets import Target


def compile_options(
    ram: str | None = None,
    memories: str | None = None,
    kernels: str | None = None,
    target: Target | None = None,
    self_test: int = 0,
    max_constants: str | None = None,
) -> CompileOptions:
    """The options of `tflm compile`, which `tflm export --compiled` has, too; None for what was not given.

    Raises:
        OptionError: a text is invalid, or options exclude each other.
    """
    if ram is not None and memories is not None:
        raise OptionError("--ram is for one memory; give it, or --memories")
    return CompileOptions(
        ram=None if ram is None else bytes_from(ram),
        memories={} if memories is None else sizes_from(memories),
        self_test=self_test,
        kernels=kernels or GENERATED,
        target=target,
        max_constants=MAX_CONSTANTS if max_constants is None else bytes_from(max_constants),
    )


def sizes_from(text: str) -> dict[str, int]:
    """Parse names and sizes of memories, such as DTCM:64K,SRAM:256K.

    Raises:
        OptionError: the text is something else.
    """
    memories = {}
    for part in text.split(","):
        name, separator, size = part.strip().partition(":")
        if not name or not separator:
            raise OptionError(f"invalid memories {text!r} (expected e.g. DTCM:64K,SRAM:256K)")
        memories[name] = bytes_from(size)
    return memories
