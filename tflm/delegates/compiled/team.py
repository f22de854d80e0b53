"""Teams: threads that share the bands of operators while a program runs.

The thread that invokes publishes the parts of a job, and takes them one by one, as workers do. It waits for parts that
workers have taken, but never for a worker to arrive: if none does, it does all the work. The shared memory consists of
words, each in its own cache line:

    open    whether the program runs; workers leave when it does not
    ticket  the number of the job, and how many parts are left: who decrements it has taken a part
    done    finished parts of the job
    parts   the address of pairs: the address of a kernel's entry, and of its arguments
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import numpy as np

from tflm.compiler.language import Kernel, emitted
from tflm.compiler.methods import bind_method, call_entry, words_of
from tflm.compiler.processor import processor
from tflm.delegates.compiled.images import aligned

WORDS_OF_A_LINE = 8
OPEN, TICKET, DONE, PARTS = range(0, 4 * WORDS_OF_A_LINE, WORDS_OF_A_LINE)
PART_BITS = 16
"""Number of bits for the part in a ticket. The bits above contain the number of the job."""


class _Words:
    """Machine code operations on a team's shared memory."""

    def __init__(self, builder: Any, team: Any):
        from llvmlite import ir

        self.ir, self.b, self.i64 = ir, builder, ir.IntType(64)
        self.words = builder.inttoptr(team, self.i64.as_pointer())

    def place(self, word: int) -> Any:
        return self.b.gep(self.words, [self.i64(word)])

    def load(self, word: int) -> Any:
        return self.b.load_atomic(self.place(word), "acquire", 8)

    def store(self, value: Any, word: int) -> None:
        self.b.store_atomic(value, self.place(word), "release", 8)

    def wait(self) -> None:
        """Tell the processor that this loop waits."""
        if processor().is_x86:
            kind = self.ir.FunctionType(self.ir.VoidType(), [])
            name = "llvm.x86.sse2.pause"
            self.b.call(self.b.module.globals.get(name) or self.ir.Function(self.b.module, kind, name), [])

    def take_part(self) -> Any:
        """Run a part if one is left, and return whether one was."""
        b, i64 = self.b, self.i64
        ticket = self.load(TICKET)
        left = b.and_(ticket, i64((1 << PART_BITS) - 1))
        is_left = b.icmp_signed(">", left, i64(0))
        with b.if_then(is_left):
            # The parts belong to the ticket if it has not changed when it is taken.
            parts = b.inttoptr(self.load(PARTS), i64.as_pointer())
            taken = b.cmpxchg(self.place(TICKET), ticket, b.sub(ticket, i64(1)), "acq_rel", "acquire")
            with b.if_then(b.extract_value(taken, 1)):
                pair = b.gep(parts, [b.mul(b.sub(left, i64(1)), i64(2))])
                entry_type = self.ir.FunctionType(i64, [i64])
                entry = b.inttoptr(b.load(pair), entry_type.as_pointer())
                b.call(entry, [b.load(b.gep(pair, [i64(1)]))])
                b.atomic_rmw("add", self.place(DONE), i64(1), "acq_rel")
        return is_left

    def repeat(self, body: Callable[[], Any]) -> None:
        """Repeat a body until it returns false."""
        b = self.b
        head, end = b.append_basic_block(), b.append_basic_block()
        b.branch(head)
        b.position_at_end(head)
        b.cbranch(body(), head, end)
        b.position_at_end(end)


@emitted
def run_together(builder: Any, team: int, parts: int, count: int) -> None:
    """Run the parts of a job, with the workers of a team."""
    words = _Words(builder, team)
    b, i64 = builder, words.i64
    words.store(parts, PARTS)
    words.store(i64(0), DONE)
    number = b.add(b.lshr(words.load(TICKET), i64(PART_BITS)), i64(1))
    words.store(b.or_(b.shl(number, i64(PART_BITS)), count), TICKET)
    words.repeat(words.take_part)

    def is_waiting() -> Any:
        words.wait()
        return b.icmp_signed("<", words.load(DONE), count)

    words.repeat(is_waiting)


@emitted
def assist(builder: Any, team: int) -> None:
    """Take parts of the jobs of a team until its program ends."""
    words = _Words(builder, team)

    def is_open() -> Any:
        words.take_part()
        words.wait()
        return builder.icmp_signed("!=", words.load(OPEN), words.i64(0))

    words.repeat(is_open)


RELEASES_LOCK = call_entry.of(releases_lock=1)
KERNELS = (run_together, assist, RELEASES_LOCK)
"""The kernels that a team needs."""


class Team:
    """The shared memory of one program's team.

    Args:
        threads: number of threads that share its operators, including the one that invokes.
        available: the addresses of `KERNELS`.
    """

    def __init__(self, threads: int, available: dict[Kernel, int]):
        self.workers = threads - 1
        self._words = aligned((4 * WORDS_OF_A_LINE,), np.int64)
        self._call = words_of(available[assist], [self.address])
        self._assist = bind_method(RELEASES_LOCK, available[RELEASES_LOCK], self._call)

    @property
    def address(self) -> int:
        """The address of the shared memory."""
        return self._words.ctypes.data

    def help(self) -> None:
        """Take parts until the program ends."""
        self._assist()

    def run(self, program: Callable[[], int]) -> int:
        """Run a program, whose status is returned, with the workers of this process."""
        self._words[OPEN] = 1
        try:
            _workers.call(self.help, self.workers)
            return program()
        finally:
            self._words[OPEN] = 0


class _Workers:
    """Threads that are started on first use, and wait for work until the process ends."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._lock, self._count = threading.Lock(), 0

    def call(self, function: Callable[[], None], times: int) -> None:
        """Let up to `times` workers call a function as soon as they are free."""
        if self._count < times:
            with self._lock:
                while self._count < times:
                    threading.Thread(target=self._work, name="tflm worker", daemon=True).start()
                    self._count += 1
        for _ in range(times):
            self._calls.put(function)

    def _work(self) -> None:
        while True:
            function = self._calls.get()
            function()
            del function  # this would keep a team alive


_workers = _Workers()


def _forget_workers() -> None:
    """Discard the teams in a fork, which does not inherit its parent's threads."""
    global _workers
    _workers = _Workers()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_workers)
