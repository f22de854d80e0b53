"""Whether a model as C, without TFLM's interpreter, fits a board."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tflm.boards import Bank, Board, boards, chips
from tflm.errors import TflmError
from tflm.firmware.board_fit import banks_for
from tflm.report import json_key, with_thousands
from tflm.schema.model import Model
from tflm.targets import Target

if TYPE_CHECKING:
    from tflm.c.compile import CompiledModel


@dataclass(frozen=True)
class CompiledFit:
    """How a model as C fits a board; sizes in bytes.

    Attributes:
        board: the board.
        compiled: the model as C.
        reserve_bytes: RAM that is left to the application.
    """

    board: Board
    compiled: CompiledModel
    reserve_bytes: int = 0

    @property
    def ram_bytes(self) -> int:
        """The block of RAM that the model needs."""
        return self.compiled.ram_bytes

    @property
    def stack_bytes(self) -> int | None:
        """A bound of an invoke's stack; None if it is unknown, or the part is no Cortex-M."""
        return self.compiled.stack_bytes if self.board.target.family == "cortex-m" else None

    @property
    def constant_bytes(self) -> int:
        """Tables in flash."""
        return self.compiled.constant_bytes

    @property
    def code_bytes(self) -> int | None:
        """Kernels in flash, with the optimization that makes them larger; None if a kernel or the part is unknown."""
        return code_bytes_on(self.board.target, self.compiled.code_bytes)

    @property
    def blocks(self) -> tuple[int, ...]:
        """Bytes of the blocks of RAM that the model needs: one, or one in each of its memories."""
        return tuple(self.compiled.memories.values()) or (self.ram_bytes,)

    @property
    def banks(self) -> tuple[Bank, ...]:
        """The memory of each block: the fastest that fits, or the named one; none if not everything fits."""
        return self._banks[:-1]

    @property
    def stack_bank(self) -> Bank | None:
        """The memory of stack and reserve; None if not everything fits."""
        return self._banks[-1] if self._banks else None

    @property
    def _banks(self) -> tuple[Bank, ...]:
        """The memories of the blocks, then that of stack, reserve and the SDK's RAM."""
        others, memories = self._other_bytes, self.board.memories
        if not self.compiled.memories:
            return tuple(banks_for([self.ram_bytes, others], memories, for_last=self.board.sdk_banks) or ())
        left = {bank.name: bank.bytes - self.compiled.memories.get(bank.name, 0) for bank in memories}
        named = {bank.name: bank for bank in memories}
        is_known = self.compiled.memories.keys() <= named.keys() and min(left.values()) >= 0
        stack = next((bank for bank in self.board.sdk_banks if left[bank.name] >= others), None)
        if not is_known or stack is None:
            return ()
        return (*(named[name] for name in self.compiled.memories), stack)

    @property
    def _other_bytes(self) -> int:
        share = self.board.share
        return (self.stack_bytes or 0) + self.reserve_bytes + (0 if share is None else share.ram.high)

    @property
    def fits_ram(self) -> bool:
        """Whether block, stack, reserve and the SDK's RAM fit the RAM."""
        return bool(self._banks)

    @property
    def fits_flash(self) -> bool:
        """Whether constants, kernels and the SDK fit the flash; true if the flash is unknown."""
        share, program = self.board.share, self.board.program
        taken = self.constant_bytes + (self.code_bytes or 0) + (0 if share is None else share.code.high)
        return program is None or taken <= program.low

    @property
    def fits(self) -> bool:
        """Whether the model fits RAM and flash."""
        return self.fits_ram and self.fits_flash

    @property
    def missing_bytes(self) -> int:
        """Bytes that the largest memory lacks; 0 if the model fits the RAM."""
        if self.fits_ram:
            return 0
        return self.ram_bytes + self._other_bytes - max(bank.bytes for bank in self.board.memories)


def code_bytes_on(target: Target, measured: Mapping[tuple[str, str], int] | None) -> int | None:
    """Bytes of kernels on a part: those of the measured part with the same instructions.

    Args:
        measured: bytes by part and optimization; None if a kernel was not measured.
    """
    if measured is None or target.family != "cortex-m":
        return None
    stand_in = "cortex-m0plus"
    if "dsp" in target.extensions:
        stand_in = "cortex-m4"
    if "mve" in target.extensions:
        stand_in = "cortex-m55"
    return max(size for (part, _), size in measured.items() if part == stand_in)


def compiled_fit(model: Model, board: Board, *, name: str = "model", reserve: int = 0) -> CompiledFit:
    """Compile a model to C, and check how it fits a board.

    Args:
        name: the prefix of its functions; a C identifier.
        reserve: bytes of RAM that the application needs.

    Raises:
        TflmError: the model cannot be compiled.
    """
    from tflm.c.compile import compile_model  # for few hints

    return CompiledFit(board, compile_model(model, name), reserve)


def compiled_fit_or_none(model: Model, board: Board, *, reserve: int) -> CompiledFit | None:
    """Return the same as `compiled_fit`, or None for a model that cannot be compiled."""
    try:
        return compiled_fit(model, board, reserve=reserve)
    except TflmError:
        return None


def compiled_verdict(found: CompiledFit) -> str:
    """Describe the memory that a model as C needs on a board, and whether it fits."""
    if found.fits:
        where = " and ".join(bank.name for bank in found.banks)
        verdict = f"fits {found.board.name} as C without an interpreter, in {where}"
    else:
        missing = [f"{with_thousands(found.missing_bytes)} of RAM"] * (not found.fits_ram)
        missing += ["flash"] * (not found.fits_flash)
        verdict = f"does not fit {found.board.name} as C without an interpreter either: lacks {' and '.join(missing)}"
    return f"{verdict}: {sizes_text(found)}"


def sizes_text(found: CompiledFit) -> str:
    """The sizes of a model as C, in a line."""
    sizes = [f"{with_thousands(found.ram_bytes)} of RAM"]
    if found.stack_bytes is not None:
        sizes.append(f"at most {found.stack_bytes:,} B of stack")
    sizes.append(f"{with_thousands(found.constant_bytes)} of constants")
    if found.code_bytes is not None:
        sizes.append(f"{found.code_bytes:,} B of kernels")
    return ", ".join(sizes)


def compile_command(path: Path | str, found: CompiledFit) -> str:
    """The command that writes the C files; a project for the board, if the model fits it."""
    if found.fits and found.board.name in (boards().keys() | chips().keys()):
        return shlex.join(["tflm", "export", str(path), "firmware/", "--board", found.board.name, "--compiled"])
    return shlex.join(["tflm", "compile", str(path), "firmware/"])


COMPILED_FIGURES = (
    json_key("fits", bool, "whether it fits RAM and flash"),
    json_key(
        "memory",
        str | None,
        "the memory of its RAM; null if it fits none",
        lambda found: found.banks[0].name if found.banks else None,
    ),
    json_key("missing_bytes", int, "bytes that the largest memory lacks; 0 if it fits"),
    json_key("ram_bytes", int, "RAM besides the stack"),
    json_key("stack_bytes", int | None, "bound of its stack; null if it is unknown"),
    json_key("constant_bytes", int, "constants in flash"),
    json_key("code_bytes", int | None, "code of its kernels; null if it is unknown"),
)
"""The figures of a model as C."""
