"""Advice if no change makes a model fit a board: other boards, and changes that only its author can make."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tflm.boards import Board, boards
from tflm.firmware.board_fit import BoardFit, BoardRefusal, fits_of
from tflm.quantization.outline import estimated_int8_arena
from tflm.quantization.repairs import is_float
from tflm.report import shortened
from tflm.schema.model import Model

SUGGESTED_BOARDS = 3
LONGEST_NAME = 48


def boards_that_would_do(smallest: BoardFit, model: Model) -> Iterator[Board]:
    """The boards with the least RAM of their own that a model fits, with their usual kernels and the same reserve.

    Args:
        smallest: what the model takes of another board.
        model: the model.
    """
    head = sum(buffer.bytes for buffer in smallest.measured.peak.buffers if buffer.kind != "scratch")
    large_enough = [board for board in boards().values() if max(bank.bytes for bank in board.on_chip_ram) > head]
    by_ram = sorted(large_enough, key=lambda board: sum(bank.bytes for bank in board.on_chip_ram))
    fitting = (
        found.board
        for found in fits_of(model, by_ram, reserve=smallest.reserve_bytes)
        if not isinstance(found, BoardRefusal) and found.fits and found.on_chip
    )
    yield from itertools.islice(fitting, SUGGESTED_BOARDS)


def advice(model: Model, original: BoardFit, smallest: BoardFit) -> Iterator[str]:
    """Changes that would make a model smaller, but that only its author can make, with figures."""
    if not smallest.fits_flash:
        yield f"the file needs {smallest.missing_flash.high:,} B less, or more flash"
    if is_float(model):
        yield _int8_advice(model, original)
    if smallest.fits_ram:
        return
    peak = original.measured.peak
    if peak is None or not peak.buffers:
        return
    largest = max(peak.buffers, key=lambda buffer: buffer.bytes)
    yield (
        f"memory peaks at operator {peak.operator_index} {peak.operator} with {peak.bytes:,} B: halving the "
        f"channels of {shortened(largest.name, LONGEST_NAME)!r} saves {largest.bytes // 2:,} B there"
    )


def _int8_advice(model: Model, original: BoardFit) -> str:
    measured = original.measured
    arena = estimated_int8_arena(model, target=measured.target, kernels=measured.kernels)
    needs = "less" if arena is None else f"about {arena:,} B"
    return (
        f"as int8 the model would need {needs}, and a quarter of the flash for its weights: "
        "tflm quantize MODEL --inputs DATA -o int8.tflite"
    )
