"""Inner loops in assembly for Cortex-M without DSP instructions, for which compilers run out of registers; see
`dsp`."""

from __future__ import annotations

from tflm.c.kernels.dsp import Functions, shift_of
from tflm.c.kernels.steps import FRACTION

LONG, SHORT = "THUMB_ASSEMBLY && LONG_MULTIPLY", "THUMB_ASSEMBLY && !LONG_MULTIPLY"
"""Preprocessor conditions: processors with SMLAL, and those with only the instructions of a Cortex-M0."""

SHORT_BYTES, LONG_BYTES = 36, 28
"""Code size of a round."""


def _short_sums(word: str, sum: str, upper: str) -> str:
    """Add two products with each half of two words. The carry is the sign of the part below the upper half."""
    return (
        f"    ldmia r1!, {{r4, r5}}\n    muls r4, r3, r4\n    muls r5, r0, r5\n    adds r4, r4, r5\n"
        f"    add {sum}, {sum}, r4\n    asrs r4, r4, #16\n    adcs {upper}, {upper}, r4\n"
    )


def _short_loop(label: int, weights: str) -> str:
    """Return rounds with the weights of one of two channels; the word in r0 contains two weights of each."""
    rounds = f"    ldmia r2!, {{r0}}\n{weights}{_short_sums('', 'r12', 'r6')}{_short_sums('', 'lr', 'r7')}"
    return f"{label}:  .rept 4\n{rounds}    .endr\n    cmp r1, r8\n    bne {label}b\n"


FIRST_WEIGHTS = "    sxtb r3, r0\n    lsls r0, r0, #8\n    asrs r0, r0, #24\n"
SECOND_WEIGHTS = "    lsls r3, r0, #16\n    asrs r3, r3, #24\n    asrs r0, r0, #24\n"
"""Code for each of two channels that extracts two weights from the word in r0 to r3 and r0."""

LOOP_BYTES = 4 * SHORT_BYTES + 8
"""Distance from the loop of the first channel to that of the second."""

BOTH_LOOPS = f"{_short_loop(2, FIRST_WEIGHTS)}    b 4f\n    nop\n{_short_loop(3, SECOND_WEIGHTS)}"
"""The loops begin at labels 2 and 3, and end at label 4."""


def packed_sums_short(functions: Functions) -> str:
    """r0: results; r1: words; r2: weights; r3: twice the rounds, plus the index of the channel."""
    return (
        "    .syntax unified\n    push {r0, r4-r7, lr}\n    mov r4, r8\n    push {r4}\n"
        "    movs r5, #1\n    ands r5, r5, r3\n    lsrs r3, r3, #1\n    lsls r4, r3, #4\n    adds r4, r4, r1\n"
        "    mov r8, r4\n    rsbs r3, r3, #0\n    movs r4, #3\n    ands r3, r3, r4\n"
        f"    movs r4, #{SHORT_BYTES}\n    muls r3, r4, r3\n    movs r4, #{LOOP_BYTES}\n    muls r5, r4, r5\n"
        "    adds r3, r3, r5\n    adr r4, 2f\n    adds r3, r3, r4\n    movs r6, #0\n    movs r7, #0\n"
        f"    mov r12, r6\n    mov lr, r6\n    mov pc, r3\n    .p2align 2\n{BOTH_LOOPS}"
        "4:  pop {r4}\n    mov r8, r4\n    pop {r0}\n    mov r5, r12\n    stmia r0!, {r5, r6}\n    mov r6, lr\n"
        "    stmia r0!, {r6, r7}\n    pop {r4-r7, pc}\n"
    )


def _output(sum: str, shift: int, is_corrected: bool) -> str:
    """Turn a sum into an output at r7, with the significand in r4 and r5, the addend in r6 and the correction at [sp,
    #24]."""
    correction = "    asrs r1, r0, #31\n    ldr r2, [sp, #24]\n    ands r1, r1, r2\n"
    correction += f"    lsls r0, r0, #{FRACTION}\n    adds r0, r0, r1\n"
    return (
        f"    mov r0, {sum}\n{correction * is_corrected}    uxth r1, r0\n    asrs r0, r0, #16\n    movs r2, r1\n"
        "    muls r2, r4, r2\n    lsrs r2, r2, #16\n    movs r3, r0\n    muls r3, r4, r3\n    adds r2, r2, r3\n"
        "    muls r1, r5, r1\n    muls r0, r5, r0\n    asrs r3, r2, #16\n    adds r0, r0, r3\n    uxth r2, r2\n"
        "    adds r1, r1, r2\n    asrs r1, r1, #16\n    adds r0, r0, r1\n    adds r0, r0, r6\n"
        + f"    asrs r0, r0, #{shift}\n"
        * (shift > 0)
        + "    sxtb r1, r0\n    cmp r1, r0\n    beq 6f\n    asrs r0, r0, #31\n    movs r1, #127\n    eors r0, r0, r1\n"
        "6:  strb r0, [r7]\n"
    )


def multiply_four(functions: Functions) -> str | None:
    """r0: im2col tile; r1: weights; r2: table; r3: outputs; on the stack: rounds, channels, step of outputs."""
    shift, is_corrected = shift_of(functions)
    if shift is None:
        return None
    outputs = "    ldr r1, [sp, #68]\n    adds r7, r7, r1\n".join(
        _output(sum, shift, is_corrected) for sum in ("r12", "r9", "lr", "r10")
    )
    return (
        "    .syntax unified\n    push {r4-r7, lr}\n    mov r4, r8\n    mov r5, r9\n    mov r6, r10\n    push {r4-r6}\n"
        "    sub sp, #28\n    str r0, [sp]\n    str r1, [sp, #4]\n    str r2, [sp, #8]\n    str r3, [sp, #12]\n"
        "    movs r4, #0\n    str r4, [sp, #16]\n    ldr r3, [sp, #60]\n    lsls r4, r3, #4\n    adds r4, r4, r0\n"
        "    mov r8, r4\n    rsbs r3, r3, #0\n    movs r4, #3\n    ands r3, r3, r4\n"
        f"    movs r4, #{SHORT_BYTES}\n    muls r3, r4, r3\n    adr r4, 2f\n    adds r3, r3, r4\n"
        "    str r3, [sp, #20]\n"
        "1:  ldr r1, [sp]\n    ldr r2, [sp, #4]\n    ldr r3, [sp, #20]\n    ldr r5, [sp, #16]\n    lsrs r5, r5, #1\n"
        f"    bcc 5f\n    adds r3, #{LOOP_BYTES}\n5:  movs r6, #0\n    movs r7, #0\n    mov r12, r6\n    mov lr, r6\n"
        f"    mov pc, r3\n    .p2align 2\n{BOTH_LOOPS}"
        "4:  ldr r5, [sp, #16]\n    lsrs r4, r5, #1\n    bcc 5f\n    str r2, [sp, #4]\n"
        "5:  adds r5, r5, #1\n    str r5, [sp, #16]\n    ldr r4, [sp, #8]\n    ldmia r4!, {r0, r1, r2, r3}\n"
        "    str r4, [sp, #8]\n    str r3, [sp, #24]\n    mov r4, r12\n    lsls r5, r6, #16\n    subs r4, r4, r5\n"
        "    adds r4, r4, r0\n    mov r12, r4\n    adds r6, r6, r0\n    mov r9, r6\n    mov r5, lr\n"
        "    lsls r6, r7, #16\n    subs r5, r5, r6\n    adds r5, r5, r0\n    mov lr, r5\n    adds r7, r7, r0\n"
        "    mov r10, r7\n    uxth r4, r1\n    asrs r5, r1, #16\n    movs r6, r2\n    ldr r7, [sp, #12]\n"
        "    adds r0, r7, #1\n    str r0, [sp, #12]\n"
        f"{outputs}    ldr r5, [sp, #16]\n    ldr r4, [sp, #64]\n    cmp r5, r4\n    beq 7f\n    b 1b\n"
        "7:  add sp, #28\n    pop {r4-r6}\n    mov r8, r4\n    mov r9, r5\n    mov r10, r6\n    pop {r4-r7, pc}\n"
    )


def packed_sums_long(functions: Functions) -> str:
    """The same as `packed_sums_short`, with sums of 64 bits."""
    return (
        "    .syntax unified\n    push {r4-r11, lr}\n    and r4, r3, #1\n    add r2, r2, r4\n    lsr r3, r3, #1\n"
        f"    rsb r12, r3, #0\n    and r12, r12, #3\n    mov lr, #{LONG_BYTES}\n    adr.w r4, 2f\n"
        "    mla r12, r12, lr, r4\n    orr r12, r12, #1\n    add r3, r1, r3, lsl #4\n"
        "    mov r4, #0\n    mov r5, #0\n    mov r6, #0\n    mov r7, #0\n    bx r12\n    .p2align 2\n"
        "2:  .rept 4\n    ldrsb r12, [r2], #2\n    ldrsb lr, [r2], #2\n    ldmia r1!, {r8-r11}\n"
        "    smlal r4, r5, r8, r12\n    smlal r6, r7, r10, r12\n    smlal r4, r5, r9, lr\n    smlal r6, r7, r11, lr\n"
        "    .endr\n    cmp r1, r3\n    bne 2b\n    stmia r0, {r4-r7}\n    pop {r4-r11, pc}\n"
    )
