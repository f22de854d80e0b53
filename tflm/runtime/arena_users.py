"""Track which interpreters have a model in which memory, to warn if they overwrite each other."""

from __future__ import annotations

import warnings
import weakref
from functools import partial
from typing import NamedTuple

import numpy as np

from tflm.errors import ArenaShared
from tflm.memory.arena import Arena

REASON = (
    "the arena overlaps that of another interpreter that is still there: each overwrites the tensors of the other. "
    "To share an arena, pass one allocator, tflm.MicroAllocator(arena), to all interpreters; otherwise delete the first"
)


class _User(NamedTuple):
    interpreter: weakref.ref[object]
    tail: Arena
    head: Arena


_users: dict[int, _User] = {}
"""Memory in use, by the identity of the interpreter. Each operation on it is atomic, so that no thread or forked
process can hang."""


def register(interpreter: object, tail: Arena, head: Arena) -> None:
    """Remember that an interpreter has placed a model, and warn if one with another allocator has in the same bytes.

    Two heads in the same memory are fine if the tails are elsewhere: nothing in a head outlives an invoke.

    Args:
        interpreter: its memory is free again when it is garbage-collected.
        tail, head: memory of its allocator; the same arena unless they are separate.
    """
    key = id(interpreter)
    if key in _users:
        return
    others = list(_users.values())
    _users[key] = _User(weakref.ref(interpreter, partial(_forget, key)), tail, head)
    shared = any(user.tail is tail for user in others)  # the allocator, which was warned of with its first interpreter
    if not shared and any(_overlap(user, tail, head) for user in others):
        warnings.warn(REASON, ArenaShared, stacklevel=4)  # of the caller of allocate_tensors


def _forget(key: int, _: object) -> None:
    _users.pop(key, None)


def _overlap(user: _User, tail: Arena, head: Arena) -> bool:
    pairs = ((tail, user.tail), (tail, user.head), (head, user.tail))
    return any(np.may_share_memory(ours.bytes, theirs.bytes) for ours, theirs in pairs)
