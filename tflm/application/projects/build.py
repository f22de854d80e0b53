"""The contents of a project, from which the values of its templates follow."""

from __future__ import annotations

from typing import NamedTuple

from tflm.application.compiled_fit import CompiledFit
from tflm.application.export import names_of
from tflm.application.machine import Machine
from tflm.application.projects.parts import BoardIds, ids_of
from tflm.boards import Bank
from tflm.firmware.board_fit import BoardFit, Placement
from tflm.schema.enums import TensorType
from tflm.schema.model import Model

MIN_STACK = 2 << 10
"""Bytes of stack in a linker script if the model's stack is unknown."""

STACK_OF_MAIN = 1 << 10
"""Bytes of stack for main and printing, in addition to TFLM's."""


HEADERS = """
    assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdarg stdbool stddef stdint
    stdio stdlib string tgmath time wchar wctype
"""

LIBRARIES = "tflm gemmlowp ruy flatbuffers kissfft cmsis cmsis_nn cmsis_device stm32 pico_sdk firmware"
"""Folders of CMake and of its downloads."""

TAKEN_NAMES = frozenset({"main", "startup", "board", "console", *HEADERS.split(), *LIBRARIES.split()})
"""Names of other files and targets of a project, and of headers: a model of this name gets a longer one."""


def project_names(stem: str, origin: str) -> dict[str, str]:
    """Values for the templates of a project, as of `names_of`, with names that are not taken."""
    names = names_of(stem, origin)
    return names_of(f"{stem}_model", origin) if names["name"] in TAKEN_NAMES else names


NOT_BUILT = (
    "Projects of this kind have not been built: tests compile their sources with stand-ins for the SDK's headers."
)
"""For READMEs of projects whose SDK the tests lack."""


class Build(NamedTuple):
    """The contents of a project.

    Attributes:
        model, machine: the model, and the firmware's machine.
        names: values for templates.
        found: the fit of the model on the board; None without a board, and for a model as C.
        dump: whether all tensors are preserved and printed; the arena is then in one piece.
        compiled: the fit of the model as C on the board; None without a board, and for TFLM.
    """

    model: Model
    machine: Machine
    names: dict[str, str]
    found: BoardFit | None
    dump: bool = False
    compiled: CompiledFit | None = None

    @property
    def name(self) -> str:
        """The identifier in names of targets and files."""
        return self.names["name"]

    @property
    def kernels(self) -> str:
        """The kernel library without its version."""
        return self.machine.kernels.name.partition("@")[0]

    @property
    def chip(self) -> str:
        """The name of the board's chip, or of the bare chip; empty if unknown."""
        board = self.machine.board
        return "" if board is None else board.chip or board.name

    @property
    def ids(self) -> BoardIds:
        """The board's identifiers in build systems."""
        return ids_of(self.machine.board)

    @property
    def placements(self) -> tuple[Placement, ...]:
        """The placement of the arena, or of the RAM of a model as C; empty without a board or if it does not fit."""
        if self.compiled is not None and self.compiled.fits_ram:
            return tuple(Placement("ram", *each) for each in zip(self.compiled.blocks, self.compiled.banks))
        if self.found is None or self.dump or not self.found.fits_ram:
            return ()
        return self.found.placements

    @property
    def usual_bank(self) -> Bank | None:
        """The memory of all other variables: the one with TFLM's static RAM or the stack, or the chip's largest."""
        if self.compiled is not None:
            chosen = self.compiled.stack_bank
        elif self.found is not None:
            chosen = self.found.firmware_bank
        else:
            return None
        board = self.machine.board
        assert board is not None
        return chosen or max(board.on_chip_ram, key=lambda bank: bank.bytes)

    @property
    def stack_bytes(self) -> int:
        """Bytes to leave for the stack."""
        bound = None if self.compiled is None else self.compiled.stack_bytes
        if self.found is not None:
            bound = self.found.firmware_ram.stack_bytes
        return bound + STACK_OF_MAIN if bound else MIN_STACK

    def uses(self, *types: TensorType) -> bool:
        """Whether an input or output has one of these types."""
        main = self.model.subgraphs[0]
        tensors = main.tensors or []
        return any(tensors[i].type in types for i in [*(main.inputs or ()), *(main.outputs or ())])


def is_esp(build: Build) -> bool:
    """Whether the part is one of Espressif's."""
    return build.machine.target.family == "espressif"
