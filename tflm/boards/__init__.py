"""Boards: part, usual kernel library, RAM by bank, flash, clock."""

from __future__ import annotations

from tflm.boards.names import by_name, completions, is_guess
from tflm.boards.table import Bank, Board, boards, chips

__all__ = ["Bank", "Board", "boards", "by_name", "chips", "completions", "is_guess"]
