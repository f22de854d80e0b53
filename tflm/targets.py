"""Machines that firmware runs on: data models, and parts with their extensions.

TFLM places C structures in the arena, whose sizes depend on the machine and its compiler. A structure is declared once,
by its fields, in the module that uses it:

    TFLITE_EVAL_TENSOR = Struct("TfLiteEvalTensor", data=POINTER, dims=POINTER, type=TFLITE_TYPE)

and `TFLITE_EVAL_TENSOR.size(target)` is `sizeof` on `target`: each field starts at the next multiple of its
alignment, and the size is rounded up to the largest alignment. A field that only some TFLM builds have is declared
`Since` a commit, `Until` one, or `When` TFLM is built with an option; `size(target, release)` takes that into account.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from tflm.errors import ArgumentError
from tflm.releases import TODAY, Release


@dataclass(frozen=True)
class Target:
    """A machine: its data model, and what its kernels can use.

    Attributes:
        name: its name for `--target` and `by_name`.
        description: its parts and compilers.
        pointer_size: bytes of a pointer and of size_t.
        short_enums: whether an enum takes the smallest integer that holds its values (1, 2 or 4 bytes) or always an
            int of 4 bytes.
        int64_alignment, double_alignment: alignment in bytes of 64-bit integers and doubles.
        family: the family of kernel libraries for it: "cortex-m" or "espressif"; empty for mere data models.
        extensions: extensions by which libraries select code: "dsp" and "mve" of Cortex-M, "esp32s3", "esp32p4".
    """

    name: str
    description: str
    pointer_size: int
    short_enums: bool
    int64_alignment: int = 8
    double_alignment: int = 8
    family: str = ""
    extensions: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"Target({self.name!r}, {self.description!r})"


HOST = Target("host", "x86-64 and other 64-bit machines (LP64)", pointer_size=8, short_enums=False)
HOST_WHEEL = Target(
    "host-wheel",
    "the tflite-micro package for Python: host with compression support, from a recent source",
    pointer_size=8,
    short_enums=False,
)
CORTEX_M = Target("cortex-m", "32-bit Arm Cortex-M, arm-none-eabi-gcc", pointer_size=4, short_enums=True)
RISCV32 = Target("riscv32", "32-bit RISC-V (ilp32)", pointer_size=4, short_enums=False)
XTENSA = Target("xtensa", "Xtensa LX (ESP32, HiFi DSPs)", pointer_size=4, short_enums=False)

TARGETS: dict[str, Target] = {target.name: target for target in (HOST, CORTEX_M, RISCV32, XTENSA, HOST_WHEEL)}
"""The data models. Functions accept any other `Target` as well."""


def _part(model: Target, family: str, name: str, description: str, *extensions: str) -> Target:
    return replace(model, name=name, description=description, family=family, extensions=frozenset(extensions))


_cortex_m = functools.partial(_part, CORTEX_M, "cortex-m")
_esp32_xtensa = functools.partial(_part, XTENSA, "espressif")
_esp32_riscv = functools.partial(_part, RISCV32, "espressif")

PARTS: dict[str, Target] = {
    target.name: target
    for target in (
        _cortex_m("cortex-m0", "Arm Cortex-M0"),
        _cortex_m("cortex-m0plus", "Arm Cortex-M0+"),
        _cortex_m("cortex-m3", "Arm Cortex-M3"),
        _cortex_m("cortex-m4", "Arm Cortex-M4", "dsp"),
        _cortex_m("cortex-m7", "Arm Cortex-M7", "dsp"),
        _cortex_m("cortex-m23", "Arm Cortex-M23"),
        _cortex_m("cortex-m33", "Arm Cortex-M33 with the DSP extension", "dsp"),
        _cortex_m("cortex-m52", "Arm Cortex-M52 with Helium", "dsp", "mve"),
        _cortex_m("cortex-m55", "Arm Cortex-M55 with Helium", "dsp", "mve"),
        _cortex_m("cortex-m85", "Arm Cortex-M85 with Helium", "dsp", "mve"),
        _esp32_xtensa("esp32", "Espressif ESP32 (Xtensa LX6)"),
        _esp32_xtensa("esp32s2", "Espressif ESP32-S2 (Xtensa LX7)"),
        _esp32_xtensa("esp32s3", "Espressif ESP32-S3 (Xtensa LX7 with vectors)", "esp32s3"),
        _esp32_riscv("esp32c3", "Espressif ESP32-C3 (RISC-V)"),
        _esp32_riscv("esp32c5", "Espressif ESP32-C5 (RISC-V)"),
        _esp32_riscv("esp32c6", "Espressif ESP32-C6 (RISC-V)"),
        _esp32_riscv("esp32h2", "Espressif ESP32-H2 (RISC-V)"),
        _esp32_riscv("esp32p4", "Espressif ESP32-P4 (RISC-V with vectors)", "esp32p4"),
        _part(HOST, "risc-v", "k210", "Kendryte K210 (64-bit RISC-V)"),
    )
}
"""Parts that kernel libraries distinguish. A part without an optional extension is
`dataclasses.replace(part, extensions=frozenset())`."""


def by_name(name: str) -> Target:
    """Return a data model or part by name.

    Raises:
        ArgumentError: the name is unknown; the message lists the known ones.
    """
    known = TARGETS | PARTS
    if name not in known:
        raise ArgumentError(f"unknown target {name!r}; use one of {', '.join(known)}")
    return known[name]


def require_target(value: object) -> Target:
    """Return a target, or the one with this name.

    Raises:
        ArgumentError: it is neither a target nor the name of one.
    """
    if isinstance(value, Target):
        return value
    if isinstance(value, str):
        return by_name(value)
    raise ArgumentError(f"{value!r} is not a target; use a Target, or one of {', '.join(TARGETS | PARTS)}")


class CType(Protocol):
    """Something that has a size and an alignment, in bytes, on every target, in every release of TFLM."""

    def size(self, target: Target, release: Release = TODAY) -> int:
        """Return `sizeof` of it."""

    def alignment(self, target: Target, release: Release = TODAY) -> int:
        """Return `alignof` of it."""


@dataclass(frozen=True)
class Integer(CType):
    """A type whose alignment is its size on every target."""

    bytes: int

    def size(self, target: Target, release: Release = TODAY) -> int:
        return self.bytes

    alignment = size


@dataclass(frozen=True)
class TargetSized(CType):
    """A type that takes its size, and its alignment, from fields of the target (a number stands for itself)."""

    size_from: str | int
    alignment_from: str

    def size(self, target: Target, release: Release = TODAY) -> int:
        return self.size_from if isinstance(self.size_from, int) else int(getattr(target, self.size_from))

    def alignment(self, target: Target, release: Release = TODAY) -> int:
        return int(getattr(target, self.alignment_from))


@dataclass(frozen=True)
class EnumType(CType):
    """A C enum, or an enum class without a fixed type, with values from 0 to `largest`."""

    largest: int

    def size(self, target: Target, release: Release = TODAY) -> int:
        if not target.short_enums:
            return 4
        return next(size for size in (1, 2, 4) if self.largest < 2 ** (8 * size))

    alignment = size


@dataclass(frozen=True)
class Array(CType):
    """`count` elements in a row."""

    element: CType
    count: int

    def size(self, target: Target, release: Release = TODAY) -> int:
        return self.count * self.element.size(target, release)

    def alignment(self, target: Target, release: Release = TODAY) -> int:
        return self.element.alignment(target, release)


@dataclass(frozen=True)
class When(CType):
    """A type that exists only in builds with an option, such as "compression" of weights."""

    option: str
    type: CType

    def size(self, target: Target, release: Release = TODAY) -> int:
        return self.type.size(target, release) if self.option in release.options else 0

    def alignment(self, target: Target, release: Release = TODAY) -> int:
        return self.type.alignment(target, release) if self.option in release.options else 1


@dataclass(frozen=True)
class Since(CType):
    """A type that was added in a TFLM commit."""

    commit: str
    type: CType

    def size(self, target: Target, release: Release = TODAY) -> int:
        return self.type.size(target, release) if release.holds(self.commit) else 0

    def alignment(self, target: Target, release: Release = TODAY) -> int:
        return self.type.alignment(target, release) if release.holds(self.commit) else 1


@dataclass(frozen=True)
class Until(CType):
    """A type that was removed in a TFLM commit."""

    commit: str
    type: CType

    def size(self, target: Target, release: Release = TODAY) -> int:
        return 0 if release.holds(self.commit) else self.type.size(target, release)

    def alignment(self, target: Target, release: Release = TODAY) -> int:
        return 1 if release.holds(self.commit) else self.type.alignment(target, release)


class Struct(CType):
    """A C structure, or a C++ class, by its fields in order. A pointer to a vtable is a field like any other."""

    def __init__(self, name: str, /, **fields: CType):
        self.name = name
        self.fields: Mapping[str, CType] = fields

    def size(self, target: Target, release: Release = TODAY) -> int:
        """Bytes that the structure takes on `target`; 1 for one without fields, as in C++."""
        return self._layout(target, release)[0]

    def alignment(self, target: Target, release: Release = TODAY) -> int:
        """Alignment of the structure on `target`, in bytes."""
        return self._layout(target, release)[1]

    def extend(self, name: str, /, **fields: CType) -> Struct:
        """A class derived from this one. Base and fields are laid out as one, for its base is not plain data."""
        return Struct(name, **self.fields, **fields)

    def end_of(self, field: str, target: Target, release: Release = TODAY) -> int:
        """Bytes from the start of the structure to the end of a field."""
        return self._field_ends(target, release)[field]

    @functools.cache  # noqa: B019  # structures are module constants
    def _layout(self, target: Target, release: Release) -> tuple[int, int]:
        alignment = max((field.alignment(target, release) for field in self.fields.values()), default=1)
        return align_up(max(1, *self._field_ends(target, release).values()), alignment), alignment

    @functools.cache  # noqa: B019  # structures are module constants
    def _field_ends(self, target: Target, release: Release) -> dict[str, int]:
        ends, end = {}, 0
        for name, field in self.fields.items():
            end = align_up(end, field.alignment(target, release)) + field.size(target, release)
            ends[name] = end
        return ends

    def __repr__(self) -> str:
        return f"Struct({self.name!r})"


class Either(Struct):
    """A structure that TFLM declares twice, for builds with an option and for those without."""

    def __init__(self, option: str, declared: Struct, otherwise: Struct):
        super().__init__(declared.name, **declared.fields)
        self.option, self._declared, self._otherwise = option, declared, otherwise

    def size(self, target: Target, release: Release = TODAY) -> int:
        return self._of(release).size(target, release)

    def alignment(self, target: Target, release: Release = TODAY) -> int:
        return self._of(release).alignment(target, release)

    def end_of(self, field: str, target: Target, release: Release = TODAY) -> int:
        return self._of(release).end_of(field, target, release)

    def _of(self, release: Release) -> Struct:
        return self._declared if self.option in release.options else self._otherwise


BOOL = Integer(1)
INT8 = UINT8 = Integer(1)
INT16 = UINT16 = Integer(2)
INT = INT32 = UINT32 = FLOAT = Integer(4)
INT64 = TargetSized(8, "int64_alignment")
DOUBLE = TargetSized(8, "double_alignment")
POINTER = SIZE_T = TargetSized("pointer_size", "pointer_size")


def align_up(value: int, alignment: int) -> int:
    """Return the smallest multiple of `alignment` that is at least `value`."""
    return -(-value // alignment) * alignment


def align_down(value: int, alignment: int) -> int:
    """Return the largest multiple of `alignment` that is at most `value`."""
    return value // alignment * alignment
