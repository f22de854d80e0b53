"""The budget of a board: the flash and RAM that a model and TFLM take, and what is left."""

from __future__ import annotations

from dataclasses import dataclass

from tflm.errors import FirmwareError
from tflm.firmware.board_fit import BoardFit
from tflm.firmware.flash import flash
from tflm.report import json_property
from tflm.schema.model import Model


@dataclass(frozen=True)
class BoardBudget:
    """Flash and RAM that a model and a release build of TFLM take on a board, without the board's SDK.

    Attributes:
        board: name of the board.
        model_bytes: size of the model file.
        program_range_bytes: lowest and highest size of TFLM and its kernels; equal if measured, None if unknown for
            these kernels.
        flash_available_bytes: the board's flash; None if unknown.
        arena_bytes: the smallest arena.
        static_ram_bytes: TFLM's static RAM besides the arena; None if not measured.
        stack_bytes: upper bound of the stack, without interrupts; None if unknown.
        ram_available_bytes: the board's RAM, all banks.
        note: the source of the figures, or why there are none.
    """

    board: str
    model_bytes: int
    program_range_bytes: tuple[int, int] | None
    flash_available_bytes: int | None
    arena_bytes: int
    static_ram_bytes: int | None
    stack_bytes: int | None
    ram_available_bytes: int
    note: str

    @json_property
    def flash_left_bytes(self) -> int | None:
        """Lowest flash left for the application; negative if it does not fit, None if unknown."""
        if self.program_range_bytes is None or self.flash_available_bytes is None:
            return None
        return self.flash_available_bytes - self.model_bytes - self.program_range_bytes[1]

    @json_property
    def ram_left_bytes(self) -> int | None:
        """RAM left for the application after arena, static RAM and, if known, the stack."""
        if self.static_ram_bytes is None:
            return None
        return self.ram_available_bytes - self.arena_bytes - self.static_ram_bytes - (self.stack_bytes or 0)


def board_budget(model: Model, fit: BoardFit) -> BoardBudget:
    """The budget of a model on a board, from its measured arena."""
    board = fit.board
    ram = sum(bank.bytes for bank in board.ram)
    arena = fit.measured.minimum_arena_bytes
    try:
        found = flash(model, target=board.target, kernels=fit.measured.kernels)
    except FirmwareError as error:
        note = f"unknown: {error}"
        return BoardBudget(board.name, fit.model_bytes, None, board.flash_bytes, arena, None, None, ram, note)
    measured = found.data_bytes is not None and found.bss_bytes is not None
    return BoardBudget(
        board=board.name,
        model_bytes=found.model_bytes,
        program_range_bytes=found.flash_range_bytes,
        flash_available_bytes=board.flash_bytes,
        arena_bytes=arena,
        static_ram_bytes=(found.data_bytes or 0) + (found.bss_bytes or 0) if measured else None,
        stack_bytes=found.stack_bytes,
        ram_available_bytes=ram,
        note=found.note,
    )
