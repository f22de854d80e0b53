"""Inner loops for Cortex-M without DSP instructions, where compilers run out of registers; see `dsp`."""

from __future__ import annotations

from typing import Any

LONG, SHORT = "THUMB_ASSEMBLY && LONG_MULTIPLY", "THUMB_ASSEMBLY"
"""Conditions: with SMLAL, and with the instructions of a Cortex-M0 alone."""

SHORT_BYTES, LONG_BYTES = 36, 28
"""Of the code for a round."""


def _short_sums(word: str, sum: str, upper: str) -> str:
    """Two products with each half of two words; the carry is the sign of what is below the upper half."""
    return (
        f"    ldmia r1!, {{r4, r5}}\n    muls r4, r3, r4\n    muls r5, r0, r5\n    adds r4, r4, r5\n"
        f"    add {sum}, {sum}, r4\n    asrs r4, r4, #16\n    adcs {upper}, {upper}, r4\n"
    )


def _short_loop(label: int, weights: str) -> str:
    """Rounds with the weights of one of two channels, of which a word in r0 has two."""
    rounds = f"    ldmia r2!, {{r0}}\n{weights}{_short_sums('', 'r12', 'r6')}{_short_sums('', 'lr', 'r7')}"
    return f"{label}:  .rept 4\n{rounds}    .endr\n    cmp r1, r8\n    bne {label}b\n"


def joint_sums_short(functions: Any) -> str:
    """r0: results; r1: words; r2: weights; r3: rounds, and in the lowest bit the channel."""
    first = "    sxtb r3, r0\n    lsls r0, r0, #8\n    asrs r0, r0, #24\n"
    second = "    lsls r3, r0, #16\n    asrs r3, r3, #24\n    asrs r0, r0, #24\n"
    loop_bytes = 4 * SHORT_BYTES + 8
    return (
        "    .syntax unified\n    push {r0, r4-r7, lr}\n    mov r4, r8\n    push {r4}\n"
        "    movs r5, #1\n    ands r5, r5, r3\n    lsrs r3, r3, #1\n    lsls r4, r3, #4\n    adds r4, r4, r1\n"
        "    mov r8, r4\n    rsbs r3, r3, #0\n    movs r4, #3\n    ands r3, r3, r4\n"
        f"    movs r4, #{SHORT_BYTES}\n    muls r3, r4, r3\n    movs r4, #{loop_bytes}\n    muls r5, r4, r5\n"
        "    adds r3, r3, r5\n    adr r4, 2f\n    adds r3, r3, r4\n    movs r6, #0\n    movs r7, #0\n"
        "    mov r12, r6\n    mov lr, r6\n    mov pc, r3\n    .p2align 2\n"
        f"{_short_loop(2, first)}    b 4f\n    nop\n{_short_loop(3, second)}"
        "4:  pop {r4}\n    mov r8, r4\n    pop {r0}\n    mov r5, r12\n    stmia r0!, {r5, r6}\n    mov r6, lr\n"
        "    stmia r0!, {r6, r7}\n    pop {r4-r7, pc}\n"
    )


def joint_sums_long(functions: Any) -> str:
    """As `joint_sums_short`, in 64 bits."""
    return (
        "    .syntax unified\n    push {r4-r11, lr}\n    and r4, r3, #1\n    add r2, r2, r4\n    lsr r3, r3, #1\n"
        f"    rsb r12, r3, #0\n    and r12, r12, #3\n    mov lr, #{LONG_BYTES}\n    adr.w r4, 2f\n"
        "    mla r12, r12, lr, r4\n    orr r12, r12, #1\n    add r3, r1, r3, lsl #4\n"
        "    mov r4, #0\n    mov r5, #0\n    mov r6, #0\n    mov r7, #0\n    bx r12\n    .p2align 2\n"
        "2:  .rept 4\n    ldrsb r12, [r2], #2\n    ldrsb lr, [r2], #2\n    ldmia r1!, {r8-r11}\n"
        "    smlal r4, r5, r8, r12\n    smlal r6, r7, r10, r12\n    smlal r4, r5, r9, lr\n    smlal r6, r7, r11, lr\n"
        "    .endr\n    cmp r1, r3\n    bne 2b\n    stmia r0, {r4-r7}\n    pop {r4-r11, pc}\n"
    )
