"""Memory in which everything after some address can be made inaccessible."""

from __future__ import annotations

import ctypes
import mmap
import sys

PROT_NONE = 0
PAGE_NOACCESS = 1


class GuardedMemory:
    """Memory of `guarded` bytes. After `close`, an access to the byte after them ends the process."""

    def __init__(self, size: int, guarded: int):
        page = mmap.PAGESIZE
        self._border = -(-guarded // page) * page
        memory = mmap.mmap(-1, -(-(self._border + size) // page) * page)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self._behind = len(memory) - self._border
        start = self._border - guarded
        self.buffer = memoryview(memory)[start : start + size]

    def close(self) -> None:
        """Make the memory after the guarded bytes inaccessible."""
        forbid(ctypes.c_void_p(self._address + self._border), ctypes.c_size_t(self._behind))


def forbid(start: ctypes.c_void_p, size: ctypes.c_size_t) -> None:
    """Make pages inaccessible."""
    if sys.platform == "win32":
        before = ctypes.c_uint32(0)
        if not ctypes.WinDLL("kernel32").VirtualProtect(start, size, PAGE_NOACCESS, ctypes.byref(before)):
            raise ctypes.WinError()
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(start, size, PROT_NONE):
        raise OSError(ctypes.get_errno(), "mprotect")
