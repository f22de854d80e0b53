"""The machine code of kernels: from memory, from a file that an earlier process left, or from the compiler.

Files lie in the user's cache folder (`$TFLM_CACHE_DIR`, or tflm in `$XDG_CACHE_HOME` or ~/.cache), one for each kernel.
Their names have a hash of what they were made from: the sources that the kernel reaches, compiler and processor. A file
begins with the hash of its contents, and is used only if that is right and folder and file belong to the user.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import importlib.util
import os
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FunctionType

import llvmlite
import llvmlite.binding as llvm

from tflm.delegates.compiled.language import Inlined, Intrinsic, Kernel, called
from tflm.delegates.compiled.processor import processor

CACHE_VARIABLE = "TFLM_CACHE_DIR"
VECTORS = Path(__file__).with_name("vectors.py")
COMPILER_SOURCES = [Path(__file__).with_name(name) for name in ("compiler.py", "numba_compiler.py")]

_lock = threading.Lock()
_addresses: dict[str, int | None] = {}


def addresses(kernels: Iterable[Kernel]) -> dict[Kernel, int]:
    """The addresses of the kernels' entries; a kernel that can't be compiled has none, and a warning says so."""
    wanted = list(dict.fromkeys(kernels))
    with _lock:
        missing = [kernel for kernel in wanted if kernel.name not in _addresses]
        if missing:
            _load(missing)
        found = ((kernel, _addresses[kernel.name]) for kernel in wanted)
        return {kernel: address for kernel, address in found if address is not None}


def _load(kernels: list[Kernel]) -> None:
    folder = _cache_folder()
    objects: dict[Kernel, bytes | None] = {kernel: _read(folder, kernel) for kernel in kernels}
    if None in objects.values():
        with _locked(folder):  # another process may be compiling them: wait for it, and look again
            objects = {kernel: made or _read(folder, kernel) for kernel, made in objects.items()}
            missing = [kernel for kernel, made in objects.items() if made is None]
            for kernel, compiled in _compiled(missing, folder):
                objects[kernel] = compiled
                _write(folder, kernel, compiled)
    engine = _engine()
    for made in objects.values():
        if made is not None:
            engine.add_object_file(llvm.ObjectFileRef.from_data(made))
    engine.finalize_object()
    for kernel, made in objects.items():
        _addresses[kernel.name] = engine.get_function_address(kernel.symbol) if made is not None else None


def _compiled(kernels: list[Kernel], folder: Path | None) -> Iterator[tuple[Kernel, bytes]]:
    from tflm.delegates.compiled import compiler_process  # a process that finds all in files does without

    return compiler_process.compiled(kernels, folder)


@functools.cache
def _engine() -> llvm.ExecutionEngine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)


# --- Files -------------------------------------------------------------------------------------------------------


@functools.cache
def _cache_folder() -> Path | None:
    """The folder of the user's own; None where there is none that can be trusted or written."""
    given = os.environ.get(CACHE_VARIABLE)
    folder = Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tflm"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder if _is_own(os.stat(folder)) and os.access(folder, os.W_OK) else None
    except (OSError, RuntimeError):
        return None


def _is_own(status: os.stat_result) -> bool:
    """Whether the user owns it, and nobody else may write there."""
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


@contextlib.contextmanager
def _locked(folder: Path | None) -> Iterator[None]:
    """One process at a time."""
    if folder is None:
        yield
        return
    with open(folder / "lock", "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _read(folder: Path | None, kernel: Kernel) -> bytes | None:
    if folder is None:
        return None
    try:
        with open(_path(folder, kernel), "rb") as file:
            if not _is_own(os.fstat(file.fileno())):
                return None
            digest, made = file.read(32), file.read()
    except OSError:
        return None
    return made if hashlib.sha256(made).digest() == digest else None


def _write(folder: Path | None, kernel: Kernel, made: bytes) -> None:
    if folder is None:
        return
    with contextlib.suppress(OSError), tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        file.write(hashlib.sha256(made).digest() + made)
        file.close()
        os.replace(file.name, _path(folder, kernel))


def _path(folder: Path, kernel: Kernel) -> Path:
    return folder / f"{kernel.name}-{_key(kernel)}"


# --- What machine code is made from ------------------------------------------------------------------------------


def _key(kernel: Kernel) -> str:
    made_from = hashlib.sha256(_environment())
    for text in sorted(_sources(kernel.function)):
        made_from.update(text)
    return made_from.hexdigest()[:24]


@functools.cache
def _environment() -> bytes:
    return repr((llvmlite.__version__, _numba_version(), sys.version_info[:2], *processor())).encode()


def _numba_version() -> bytes:
    """What says numba's version; to import it, or the metadata of packages, would take longer than all the rest."""
    found = importlib.util.find_spec("numba")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).with_name("_version.py").read_bytes()


def _sources(function: FunctionType) -> set[bytes]:
    """The text of all modules that a function's code comes from, and the constants that it names."""
    texts, pending, seen = {_text(path) for path in COMPILER_SOURCES}, [function], {function}
    while pending:
        function = pending.pop()
        texts.add(_text(Path(function.__code__.co_filename)))
        for name, value in called(function):
            if isinstance(value, Intrinsic):
                texts.add(_text(VECTORS))
            elif isinstance(value, Inlined):
                if value.function not in seen:
                    seen.add(value.function)
                    pending.append(value.function)
            elif isinstance(value, (int, float, tuple)):
                texts.add(f"{name}={value!r}".encode())
    return texts


@functools.cache
def _text(path: Path) -> bytes:
    return path.read_bytes()
