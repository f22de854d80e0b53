"""A verified model over the bytes of a `.tflite` file."""

from __future__ import annotations

import functools
import mmap
import os
import stat
from typing import Any

from tflm.bounded_reading import MAX_MODEL_BYTES, read_stream
from tflm.errors import ArgumentError, ModelError
from tflm.hooks import model_html, version_findings
from tflm.schema import verifier
from tflm.schema.c_array import model_in_c
from tflm.schema.reader import IDENTIFIER, TEXT, format_of, read_model, require_no_folder, take_data_inside
from tflm.schema.tables import Buffer, Operator, OperatorCode, SubGraph, Tensor, code_name
from tflm.schema.tables import Model as Root
from tflm.schema.writer import write_model

CHECKS = ("all", "tflm")
"""How strictly a model may be checked."""


LARGEST_COPY = 16 << 20
"""Bytes of the largest file that is read whole: as much flash as large microcontrollers have, read in a few ms."""

FLEX_PREFIX = "Flex"
"""Prefix of the names of TensorFlow's operators, which only the host can run."""


class Model:
    """A fully verified model over bytes that are never copied.

    Args:
        data: anything with the buffer protocol that holds a `.tflite` file, or C source with one in an array of
            bytes, as `xxd -i` writes it. It must not be changed afterwards.
        checks: "all"; or "tflm" to also accept what TFLM accepts although the results are meaningless, such as a memory
            plan that overwrites values that are still needed.

    Attributes:
        data: the model's bytes, a read-only view: the file's, or those that C source declares.
        checks: the argument.
        root: the root table, `tflm.schema.Model`; every constant in it is a view into `data`.
        outside: paths in it of buffers and operators whose data is outside the flatbuffer, in the same file. TFLite and
            this package read it, TFLM does not: on a device the model computes garbage.

    Raises:
        ArgumentError: the data is a path; `from_file` takes those.
        ModelError: the first error, with table and field; `tflm.verify` returns all errors. For a file of another
            format, it says of which, and how to convert it.
        ValueError: unknown checks mode.
    """

    def __init__(self, data: Any, checks: str = "all"):
        if checks not in CHECKS:
            raise ValueError(f"checks are {' or '.join(map(repr, CHECKS))}, not {checks!r}")
        self.checks = checks
        self.data = _bytes_of(data)
        self.root = read_model(self.data)
        self.outside, errors = take_data_inside(self.root, self.data)
        if errors:
            raise errors[0]
        for finding in verifier.findings_in(self.root):
            if finding.level == "error" and not (finding.unsound and checks == "tflm"):
                raise finding

    @classmethod
    def of_tables(cls, root: Root, checks: str = "all") -> Model:
        """Return the model of tables that were made from those of a verified model; they are not verified again."""
        made = cls.__new__(cls)
        made.root, made.checks, made.outside = root, checks, ()
        return made

    @functools.cached_property
    def data(self) -> memoryview:
        """The model's bytes; those of a model made from tables are written when they are first read."""
        return memoryview(write_model(self.root))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], checks: str = "all") -> Model:
        """Load the model in the file at `path`.

        A file of up to `LARGEST_COPY` bytes is read, and a pipe to its end. A larger file is memory-mapped: until the
        model is no longer used, the file must not be changed, and to truncate it ends the process.

        Args:
            path: path of the file.
            checks: as for `Model`.

        Raises:
            ArgumentError: the argument is not a path, or the path of a folder.
            OSError: the file can't be opened.
            DataError: a pipe has more bytes than a model may have.
            ModelError: it is not a valid model.
        """
        if not isinstance(path, (str, os.PathLike)):
            raise ArgumentError(f"from_file takes a path, not {type(path).__name__}; tflm.Model(data) takes bytes")
        require_no_folder(path)
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return cls(read_stream(file, MAX_MODEL_BYTES, os.fspath(path)), checks)
            if status.st_size <= LARGEST_COPY:
                return cls(file.read(LARGEST_COPY), checks)
            return cls(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), checks)

    def __repr__(self) -> str:
        operators = sum(len(subgraph.operators or ()) for subgraph in self.subgraphs)
        what = f"{self.description[:60]!r}, " if self.description else ""
        return f"Model({what}{len(self.data)} bytes, operators: {operators}, subgraphs: {len(self.subgraphs)})"

    def _repr_html_(self) -> str:
        shown: str = model_html(self)
        return shown

    @property
    def description(self) -> str:
        """The description written by the file's producer; may be empty."""
        return self.root.description or ""

    @property
    def subgraphs(self) -> list[SubGraph]:
        """The subgraphs; the first is the one that `invoke` runs."""
        return self.root.subgraphs or []

    @property
    def operator_codes(self) -> list[OperatorCode]:
        """The operator codes of the model, each once."""
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
        return code_name(self.operator_code(operator))

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


def require_model(value: object) -> Model:
    """Check that a value is a `Model`, and return it.

    Raises:
        ArgumentError: it is something else, such as a path.
    """
    if isinstance(value, Model):
        return value
    if isinstance(value, (str, os.PathLike)):
        raise ArgumentError(f"expected a model, not a path: use tflm.Model.from_file({os.fspath(value)!r})")
    raise ArgumentError(f"expected a tflm.Model, not {type(value).__name__}: tflm.Model(data) makes one from bytes")


def verify(data: Any) -> list[ModelError]:
    """Find all errors and warnings in the bytes of a model, by their `level`; an empty list for a valid model.

    Args:
        data: the bytes of a `.tflite` file, anything with the buffer protocol.

    Raises:
        ArgumentError: the data is a path.
    """
    findings: list[ModelError] = []
    try:
        content = _bytes_of(data)
        root = read_model(content, findings)
        outside, errors = take_data_inside(root, content)
    except ModelError as error:
        return [*findings, error]
    findings += errors
    if not _has_error(findings):
        findings += verifier.findings_in(root)
    if _has_error(findings):
        return findings
    if outside:
        reason = "the data lies outside of the flatbuffer, where TFLM does not read it; tflm strip writes it inside"
        findings.append(ModelError(reason, table="Model", place=outside[0], level="warning"))
    return [*findings, *version_findings(root)]


def _has_error(findings: list[ModelError]) -> bool:
    return any(finding.level == "error" for finding in findings)


def _bytes_of(data: Any) -> memoryview:
    if isinstance(data, (str, os.PathLike)):
        raise ArgumentError(f"expected bytes, not a path: tflm.Model.from_file({os.fspath(data)!r}) reads a file")
    try:
        content = memoryview(data).cast("B").toreadonly()
    except (TypeError, ValueError, BufferError) as error:
        raise ModelError(f"a model is made from contiguous bytes, not from {type(data).__name__}: {error}") from None
    if content[4:8] == IDENTIFIER or format_of(content) != TEXT:
        return content
    return memoryview(model_in_c(content) or content)
