"""A verified model over the bytes of a `.tflite` file."""

from __future__ import annotations

import mmap
import os
from typing import Any

from tflm.errors import ModelError
from tflm.schema import verifier
from tflm.schema.enums import BuiltinOperator
from tflm.schema.reader import read_model
from tflm.schema.tables import Buffer, Operator, OperatorCode, SubGraph, Tensor


class Model:
    """A model that was checked from end to end when it was made, over bytes that are never copied.

    Args:
        data: anything with the buffer protocol that holds a `.tflite` file. It must not be changed afterwards.

    Attributes:
        data: the file's bytes, a read-only view.
        root: the root table, `tflm.schema.Model`; every constant in it is a view into `data`.

    Raises:
        ModelError: on the first thing that is wrong, naming the table and the field. `tflm.verify` gives them all.
    """

    def __init__(self, data: Any):
        self.data = _bytes_of(data)
        self.root = read_model(self.data)
        for finding in verifier.findings_in(self.root):
            raise finding

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Model:
        """The model in the file at `path`, which is mapped into memory, not read.

        Raises:
            OSError: the file can't be opened.
            ModelError: it is not a good model.
        """
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise ModelError(f"{os.fspath(path)} is empty")
            return cls(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    @property
    def description(self) -> str:
        """What the writer of the file says of it; may be empty."""
        return self.root.description or ""

    @property
    def subgraphs(self) -> list[SubGraph]:
        """The subgraphs; the first is the one that `invoke` runs."""
        return self.root.subgraphs or []

    @property
    def operator_codes(self) -> list[OperatorCode]:
        """The operators that the model uses, each once."""
        return self.root.operator_codes or []

    @property
    def buffers(self) -> list[Buffer]:
        """The constants; by custom the first is empty."""
        return self.root.buffers or []

    def operator_code(self, operator: Operator) -> OperatorCode:
        """The code of an operator, which has its version."""
        return self.operator_codes[operator.opcode_index]

    def operator_name(self, operator: Operator) -> str:
        """`FULLY_CONNECTED` and the like for a builtin operator, the name it was given for a custom one."""
        code = self.operator_code(operator)
        builtin = verifier.builtin_code(code)
        return (code.custom_code or "") if builtin is BuiltinOperator.CUSTOM else builtin.name

    def constant(self, tensor: Tensor) -> memoryview | None:
        """The bytes of a constant tensor, a view into the file; None for a tensor that lives in the arena."""
        data = self.buffers[tensor.buffer].data
        return memoryview(data) if data else None

    def metadata(self, name: str) -> memoryview | None:
        """The bytes of the metadata entry called `name`, the last one if there are several, or None."""
        found = None
        for entry in self.root.metadata or ():
            if entry.name == name:
                found = memoryview(self.buffers[entry.buffer].data or b"")
        return found


def verify(data: Any) -> list[ModelError]:
    """Everything that is wrong with the bytes of a model; an empty list for a good one.

    Args:
        data: the bytes of a `.tflite` file, anything with the buffer protocol.
    """
    findings: list[ModelError] = []
    try:
        root = read_model(_bytes_of(data), findings)
    except ModelError as error:
        return [*findings, error]
    return findings or list(verifier.findings_in(root))


def _bytes_of(data: Any) -> memoryview:
    try:
        return memoryview(data).cast("B").toreadonly()
    except (TypeError, ValueError, BufferError) as error:
        raise ModelError(f"a model is made from contiguous bytes, not from {type(data).__name__}: {error}") from None
