"""Inner loops in assembly for Cortex-M with Helium, in place of those in `dsp`: 16 products of 8 bits in an
instruction.

The im2col tile contains bytes, one window after the other, each in the order of the weights. Weights of two channels
alternate, so that deinterleaving loads separate them; a remainder of fewer than 16 is gathered.
"""

from __future__ import annotations

from typing import NamedTuple

from tflm.c.kernels.dsp import FOUR, ONE, Functions, requantized, shift_of
from tflm.delegates.compiled.requantization import CLAMPS, CONSTANTS
from tflm.delegates.compiled.single_rounding import FRACTION

CONDITION = "HELIUM_ASSEMBLY"
"""Preprocessor condition for these functions."""

LANES = 16
"""Number of bytes in a vector."""

EVEN, ODD = ("r4", "r8"), ("r6", "r10")
"""Registers with the sums of two windows, for the first and for the second channel. `vmladava` needs even registers."""


def _rounds(sums: str, tile: tuple[str, ...], counts: tuple[str, str]) -> str:
    """Return code that adds the products of windows and the weights at r1 to sums.

    Args:
        sums: names of the registers with sums: for each window, those of the first and the second channel.
        tile: registers that point to windows.
        counts: registers with the number of full vectors, and of remaining elements. Both are clobbered; r1 points
            after the weights.
    """
    full, rest = counts
    pairs = list(zip(tile, zip(sums.split()[::2], sums.split()[1::2])))

    def products(load: str) -> str:
        return "".join(
            load.format(q=2 + i, at=at)
            + f"    vmladava.s8 {first}, q0, q{2 + i}\n    vmladava.s8 {second}, q1, q{2 + i}\n"
            for i, (at, (first, second)) in enumerate(pairs)
        )

    return (
        f"    wls lr, {full}, 4f\n"
        "3:  vld20.8 {q0, q1}, [r1]\n    vld21.8 {q0, q1}, [r1]!\n"
        + products(f"    vldrb.8 q{{q}}, [{{at}}], #{LANES}\n")
        + f"    le lr, 3b\n4:  cbz {rest}, 5f\n"
        f"    vctp.8 {rest}\n    add {full}, r1, {rest}, lsl #1\n    movs {rest}, #0\n"
        f"    vidup.u8 q3, {rest}, #2\n    adds {rest}, r1, #1\n"
        f"    vpstt\n    vldrbt.u8 q0, [r1, q3]\n    vldrbt.u8 q1, [{rest}, q3]\n"
        + products("    vpst\n    vldrbt.8 q{q}, [{at}]\n")
        + f"    mov r1, {full}\n5:\n"
    )


def multiply_four(functions: Functions) -> str | None:
    """r0: im2col tile; r1: weights; r2: table; r3: outputs; on the stack: rounds, channels, step of outputs."""
    outputs = requantized(functions, {(20, 28): ODD, (4, 12): EVEN})
    if outputs is None:
        return None
    return (
        "    push {r4-r11, lr}\n    sub sp, #44\n    ldr r4, [sp, #80]\n"
        f"    lsls r4, r4, #1\n    lsrs r6, r4, #4\n    and r7, r4, #{LANES - 1}\n    strd r6, r7, [sp, #8]\n"
        "    strd r1, r2, [sp, #16]\n    movs r6, #2\n    str r4, [sp, #28]\n    str r6, [sp, #36]\n    mov r9, r3\n"
        # Computes all channels of two windows, and then of the other two.
        "1:  ldr r4, [sp, #28]\n    add r5, r0, r4\n    strd r0, r5, [sp]\n    ldrd r1, r7, [sp, #16]\n"
        "    ldr r5, [sp, #84]\n    lsrs r5, r5, #1\n    add r5, r7, r5, lsl #5\n    str r5, [sp, #24]\n"
        "    movs r2, #1\n    str r2, [sp, #32]\n    str r9, [sp, #40]\n    ldr r11, [sp, #88]\n    add r11, r9\n"
        "    b 6f\n2:  ldrd r0, r5, [sp]\n    ldrd r12, r2, [sp, #8]\n    ldr r4, [r7]\n    ldr r6, [r7, #16]\n"
        "    mov r8, r4\n    mov r10, r6\n"
        + _rounds("r4 r6 r8 r10", ("r0", "r5"), ("r12", "r2"))
        + "    mov r0, r7\n"
        + outputs
        # A missing second channel is stored at the address of the first one, and then overwritten.
        + "    ldr r2, [sp, #32]\n    strb r6, [r9, r2]\n    strb r10, [r11, r2]\n    strb r4, [r9], #2\n"
        "    strb r8, [r11], #2\n    adds r7, #32\n6:  ldr r2, [sp, #24]\n    cmp r7, r2\n    bne 2b\n"
        "    ldr r2, [sp, #84]\n    ldr r3, [sp, #32]\n    ands r2, r3\n    beq 7f\n"
        "    add r2, r7, #32\n    str r2, [sp, #24]\n    movs r3, #0\n    str r3, [sp, #32]\n    b 2b\n"
        "7:  ldr r2, [sp, #36]\n    subs r2, #1\n    str r2, [sp, #36]\n    beq 8f\n    ldr r0, [sp, #4]\n"
        "    ldr r4, [sp, #28]\n    add r0, r4\n    ldr r9, [sp, #40]\n    ldr r2, [sp, #88]\n"
        "    add r9, r9, r2, lsl #1\n    b 1b\n8:  add sp, #44\n    pop {r4-r11, pc}\n"
    )


def sums_of_one(functions: Functions) -> str:
    """r0: a window of the im2col tile; r1: weights; r2: rounds."""
    return (
        f"    push {{r4, lr}}\n    movs r4, #0\n    mov r12, #0\n    lsrs r3, r2, #3\n    lsls r2, r2, #1\n"
        f"    ands r2, r2, #{LANES - 1}\n"
        + _rounds("r4 r12", ("r0",), ("r3", "r2"))
        + "    mov r0, r4\n    mov r1, r12\n    pop {r4, pc}\n"
    )


IN_PAIRS = "9:  .byte 0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15\n"
"""The order of elements in the weights."""


def fill_fours(functions: Functions) -> str:
    """r0: elements; r1: the window's place in the im2col tile; r2: number of elements / 4."""
    return (
        "    push {r4, lr}\n    adr r3, 9f\n    vldrb.8 q1, [r3]\n    lsls r2, r2, #2\n    wlstp.8 lr, r2, 2f\n"
        f"1:  vldrb.u8 q0, [r0, q1]\n    adds r0, #{LANES}\n    vstrb.8 q0, [r1], #{LANES}\n    letp lr, 1b\n"
        f"2:  pop {{r4, pc}}\n    .p2align 2\n{IN_PAIRS}"
    )


def fill_adjacent(functions: Functions) -> str:
    """r0: elements; r1: im2col tile; r2: step from a window to the next; r3: number of elements / 4.

    On the stack: size of a window in the tile."""
    return (
        "    push {r4-r7, lr}\n    adr r4, 9f\n    vldrb.8 q1, [r4]\n    lsls r3, r3, #2\n    movs r6, #4\n"
        "    ldr r7, [sp, #20]\n"
        "1:  mov r4, r0\n    mov r5, r1\n    wlstp.8 lr, r3, 3f\n"
        f"2:  vldrb.u8 q0, [r4, q1]\n    adds r4, #{LANES}\n    vstrb.8 q0, [r5], #{LANES}\n    letp lr, 2b\n"
        "3:  add r0, r2\n    add r1, r7\n    subs r6, #1\n    bne 1b\n"
        f"    pop {{r4-r7, pc}}\n    .p2align 2\n{IN_PAIRS}"
    )


# --- FULLY_CONNECTED ---------------------------------------------------------------------------------------------

HALF_LANES = 0x5555
"""Mask of every other byte of a vector."""

PLACES = "    .p2align 2\n9:  .byte 0, 0, 1, 1, 4, 4, 5, 5, 8, 8, 9, 9, 12, 12, 13, 13\n"
"""Offsets of the first elements of pairs, each for two channels."""

SIXTEEN = (
    "    vld40.8 {q0, q1, q2, q3}, [r1]\n    vld41.8 {q0, q1, q2, q3}, [r1]\n    vld42.8 {q0, q1, q2, q3}, [r1]\n"
    "    vld43.8 {q0, q1, q2, q3}, [r1]!\n    vldrb.u8 q4, [r2, q7]\n    vldrb.u8 q5, [r9, q7]\n"
    f"    adds r2, #{LANES}\n    adds r9, #{LANES}\n    veor q0, q0, q6\n    veor q2, q2, q6\n"
    "    vpsteet\n    vmladavat.s8 r4, q0, q4\n    vmladavae.s8 r6, q0, q4\n"
    "    vmladavae.s8 r6, q2, q5\n    vmladavat.s8 r4, q2, q5\n"
    "    vpsteet\n    vmladavat.s8 r8, q3, q4\n    vmladavae.s8 r10, q3, q4\n"
    "    vmladavae.s8 r10, q1, q5\n    vmladavat.s8 r8, q1, q5\n"
)
"""Multiply 16 elements at r2, and at r9, which is two behind, by words at r1 that `dense.paired_words` made.

A vector has one byte of each word: weights of two channels in turn. Those of the first and the third channel have 128
added; flipping the highest bit undoes that."""


def sum_of_bytes(functions: Functions) -> str:
    """r0: elements; r1: number of elements."""
    return (
        "    push {r4, lr}\n    movs r2, #0\n    wlstp.8 lr, r1, 2f\n"
        f"1:  vldrb.8 q0, [r0], #{LANES}\n    vaddva.s8 r2, q0\n    letp lr, 1b\n2:  mov r0, r2\n    pop {{r4, pc}}\n"
    )


def sum_of_products(functions: Functions) -> str:
    """r0: elements; r1: weights; r2: number of elements."""
    return _products_of(("r1",), "r2")


def sums_of_two(functions: Functions) -> str:
    """r0: elements; r1, r2: weights of two channels; r3: number of elements."""
    return _products_of(("r1", "r2"), "r3")


def _products_of(rows: tuple[str, ...], count: str) -> str:
    """Return a function that multiplies elements at r0 by rows of weights, and returns the sum of each row."""
    products = "".join(
        f"    vldrb.8 q1, [{row}], #{LANES}\n    vmladava.s8 {sum}, q0, q1\n" for row, sum in zip(rows, ("r4", "r6"))
    )
    return (
        f"    push {{r4-r6, lr}}\n    movs r4, #0\n    movs r6, #0\n    wlstp.8 lr, {count}, 2f\n"
        f"1:  vldrb.8 q0, [r0], #{LANES}\n{products}    letp lr, 1b\n"
        "2:  mov r0, r4\n    mov r1, r6\n    pop {r4-r6, pc}\n"
    )


def _four_outputs(functions: Functions, table: str, limits: tuple[str, str]) -> str | None:
    """Return code that turns the sums of four channels in q4 into outputs in q0, and clobbers r6. None if C has to do
    it.

    Args:
        table: register with the address of the channels' constants, which is advanced past them.
        limits: offsets of the lowest and the highest output on the stack.
    """
    shift, is_corrected = shift_of(functions, ("clipped", "limits"))
    if shift is None:
        return None
    code = "".join(f"    vld4{k}.32 {{q0, q1, q2, q3}}, [{table}]" + "!" * (k == 3) + "\n" for k in range(4))
    code += "    vadd.i32 q4, q4, q0\n"
    if is_corrected:
        code += "    vshr.s32 q0, q4, #31\n    vand q0, q0, q3\n"
        code += f"    vshl.i32 q4, q4, #{FRACTION}\n    vadd.i32 q4, q4, q0\n"
    code += "    vmulh.s32 q4, q4, q1\n    vadd.i32 q4, q4, q2\n" + f"    vshr.s32 q4, q4, #{shift}\n" * (shift > 0)
    code += "    vqmovnb.s32 q0, q4\n    vqmovnb.s16 q0, q0\n"
    if functions["clamp"] is not CLAMPS["clipped"]:
        for place, limit in zip(limits, ("vmax", "vmin")):
            code += f"    ldr r6, {place}\n    vdup.8 q1, r6\n    {limit}.s8 q0, q0, q1\n"
    return code


def multiply_vector(functions: Functions) -> str | None:
    """r0: elements; r1: words of weights; r2: table; r3: outputs; then what `dense.multiply_vector` takes."""
    x, table, outputs, left, rest, rounds, lower = (f"[sp, #{4 * i}]" for i in range(7))
    depth, _, activation_min, activation_max, x_sum = (f"[sp, #{132 + 4 * i}]" for i in range(5))
    four_outputs = _four_outputs(functions, "r0", (activation_min, activation_max))
    if four_outputs is None:
        return None
    return (
        f"    push {{r4-r11, lr}}\n    vpush {{d8-d15}}\n    sub sp, #32\n    str r0, {x}\n    strd r2, r3, {table}\n"
        f"    ldrd r4, r3, {depth}\n    str r3, {left}\n    and r5, r4, #{LANES - 1}\n    lsrs r6, r4, #4\n"
        f"    strd r5, r6, {rest}\n    ldrd r4, r7, {x_sum}\n    muls r7, r4, r7\n"
        # Weights beyond the last multiple of 16 keep the 128 that was added to them.
        f"    add r2, r0, r6, lsl #4\n    movs r8, #0\n    wlstp.8 lr, r5, 2f\n1:  vldrb.8 q0, [r2], #{LANES}\n"
        f"    vaddva.s8 r8, q0\n    letp lr, 1b\n2:  add r8, r7, r8, lsl #7\n    strd r8, r7, {lower}\n"
        f"    adr r3, 9f\n    vldrb.u8 q7, [r3]\n    vmov.i8 q6, #0x80\n"
        f"3:  movw r3, #{HALF_LANES}\n    vmsr p0, r3\n    ldr r2, {x}\n    add r9, r2, #2\n    ldr r12, {rounds}\n"
        "    movs r4, #0\n    movs r6, #0\n    mov r8, r4\n    mov r10, r4\n    wls lr, r12, 5f\n"
        f"4:\n{SIXTEEN}    le lr, 4b\n5:  mov r5, r8\n    mov r7, r10\n    ldr r0, {rest}\n    cmp r0, #0\n    beq 8f\n"
        f"    bics r0, #3\n    beq 7f\n    add r0, r1, r0, lsl #2\n6:\n{FOUR}    cmp r1, r0\n    bne 6b\n"
        f"7:  ldr r0, {rest}\n    ands r0, #3\n    beq 8f\n    add r0, r1, r0, lsl #2\n6:\n{ONE}    cmp r1, r0\n"
        f"    bne 6b\n8:  ldrd r8, r9, {lower}\n    sub r4, r8\n    sub r6, r8\n    sub r7, r9\n    sub r5, r9\n"
        "    vmov.32 q4[0], r4\n    vmov.32 q4[1], r7\n    vmov.32 q4[2], r6\n    vmov.32 q4[3], r5\n"
        f"    ldr r0, {table}\n{four_outputs}    str r0, {table}\n    ldr r0, {left}\n    vctp.32 r0\n"
        f"    ldr r3, {outputs}\n    vpst\n    vstrbt.32 q0, [r3]\n    adds r3, #4\n    str r3, {outputs}\n"
        f"    subs r0, #4\n    str r0, {left}\n    bgt 3b\n    add sp, #32\n    vpop {{d8-d15}}\n"
        f"    pop {{r4-r11, pc}}\n{PLACES}"
    )


# --- Depthwise convolutions of 3 x 3 -----------------------------------------------------------------------------

EIGHT = 8
"""Number of channels in a vector with lanes of 16 bits."""

ROW_POINTERS = ("r0", "r4", "r5")


def _to_outputs(shift: int, is_corrected: bool) -> str:
    """Turn sums of even and of odd channels, in q4 and q5, into outputs in the lower bytes of q0.

    q7 contains the addresses of the first channels in the table.
    """
    code = ""
    for sums, place in (("q4", 0), ("q5", 4 * CONSTANTS)):
        if is_corrected:
            code += (
                f"    vshr.s32 q0, {sums}, #31\n    vldrw.u32 q1, [q7, #{place + 12}]\n    vand q0, q0, q1\n"
                f"    vshl.i32 {sums}, {sums}, #{FRACTION}\n    vadd.i32 {sums}, {sums}, q0\n"
            )
        code += (
            f"    vldrw.u32 q0, [q7, #{place + 4}]\n    vldrw.u32 q1, [q7, #{place + 8}]\n"
            f"    vmulh.s32 {sums}, {sums}, q0\n    vadd.i32 {sums}, {sums}, q1\n"
        )
        code += f"    vshr.s32 {sums}, {sums}, #{shift}\n" * (shift > 0)
    return code + "    vqmovnb.s32 q0, q4\n    vqmovnt.s32 q0, q5\n    vqmovnb.s16 q0, q0\n"


def _taps(element: str) -> str:
    """Add the products of nine taps; r0, r4 and r5 point to the rows."""
    code = ""
    for tap in range(9):
        code += f"    mov r6, {ROW_POINTERS[tap // 3]}\n" if tap % 3 == 0 else "    add r6, r8\n"
        code += element + (
            "    vldrb.s16 q1, [r1, q6]\n    adds r1, #1\n    vmullb.s16 q2, q0, q1\n    vmullt.s16 q3, q0, q1\n"
            "    vadd.i32 q4, q4, q2\n    vadd.i32 q5, q5, q3\n"
        )
    return code


_inside = "    vldrb.s16 q0, [r6]\n"
_inside_or_outside = f"    lsls r12, r12, #1\n    bcs 2f\n{_inside}    b 3f\n2:  vdup.16 q0, r2\n3:\n"
"""Set q0 to the elements of a tap; r12 has a bit for each tap outside of the image."""


def set_eights(functions: Functions) -> str | None:
    """r0: first tap; r1: weights; r2: table; r3: outputs; on the stack: other arguments of
    `depthwise_convolution.set_eights`."""
    shift, is_corrected = shift_of(functions)
    if shift is None:
        return None
    return (
        "    push {r4-r8, lr}\n    vpush {d8-d15}\n    ldrd r12, r8, [sp, #88]\n"
        "    add r4, r0, r12\n    add r5, r4, r12\n"
        "    movs r6, #0\n    vidup.u16 q6, r6, #8\n    movs r6, #0\n    vidup.u16 q0, r6, #1\n"
        "    vadd.i16 q6, q6, q0\n    movs r6, #0\n    vidup.u32 q7, r6, #8\n    vshl.i32 q7, q7, #2\n"
        "    vadd.i32 q7, q7, r2\n    ldr r2, [sp, #104]\n    ldr lr, [sp, #96]\n"
        f"1:  ldr r12, [sp, #100]\n    vldrw.u32 q4, [q7]\n    vldrw.u32 q5, [q7, #{4 * CONSTANTS}]\n"
        "    lsls r12, r12, #23\n    bne 4f\n"
        + _taps(_inside)
        + "    b 5f\n4:\n"
        + _taps(_inside_or_outside)
        + f"5:  adds r1, #{9 * EIGHT - 9}\n    adds r0, #{EIGHT}\n    adds r4, #{EIGHT}\n    adds r5, #{EIGHT}\n"
        + _to_outputs(shift, is_corrected)
        + f"    mov r12, #{EIGHT * 4 * CONSTANTS}\n    vadd.i32 q7, q7, r12\n    vstrb.16 q0, [r3], #{EIGHT}\n"
        "    subs lr, #1\n    bne 1b\n    vpop {d8-d15}\n    pop {r4-r8, pc}\n"
    )


# --- Other depthwise convolutions --------------------------------------------------------------------------------

_with_vector = "    vmul.i32 q2, q0, q1\n    vadd.i32 q4, q4, q2\n"


class Reads(NamedTuple):
    """How four channels read the input.

    Attributes:
        taps: code that adds products of the elements at r7 and the weights in q1.
        next: code that moves r0 to the elements of the next four channels.
    """

    taps: str
    next: str


_repeated = (
    "    ldr r6, [sp]\n    subs r6, #1\n    bne 8f\n    ldr r7, {next}\n    add r0, r7\n    ldr r6, {repeats}\n"
    "8:  str r6, [sp]\n"
)

SPREADS = {
    "each": Reads("    vldrb.s32 q0, [r7]\n" + _with_vector, "    adds r0, #4\n"),
    "pairs": Reads("    vldrb.s32 q0, [r7, q5]\n" + _with_vector, _repeated),
    "copies": Reads("    ldrsb r6, [r7]\n    vmla.s32 q4, q1, r6\n", _repeated),
}
"""By the spread of `depthwise_convolution`."""


def set_fours(functions: Functions, spread: str) -> str | None:
    """r0: input; r1: weights; r2: table; r3: outputs; on the stack: other arguments of
    `depthwise_convolution.set_fours`."""
    rows, columns, before, between, behind, x_row, x_step, together, zero_point, repeats, next, *limits = (
        f"[sp, #{72 + 4 * i}]" for i in range(13)
    )
    outputs = _four_outputs(functions, "r2", (limits[0], limits[1]))
    if outputs is None:
        return None
    weights = "    vldrb.s32 q1, [r1], #4\n"
    return (
        f"    push {{r4-r11, lr}}\n    vpush {{d8-d11}}\n    sub sp, #4\n    ldr r12, {x_step}\n"
        f"    ldr r8, {zero_point}\n    ldr r9, {together}\n    ldr r10, {x_row}\n    ldr r11, {columns}\n"
        f"    movs r6, #0\n    vidup.u32 q5, r6, #1\n    vshr.u32 q5, q5, #1\n    ldr r6, {repeats}\n    str r6, [sp]\n"
        f"1:  vmov.i32 q4, #0\n    mov r4, r0\n    ldr r5, {rows}\n    ldr r6, {before}\n"
        f"2:  wls lr, r6, 4f\n3:\n{weights}    vmla.s32 q4, q1, r8\n    le lr, 3b\n"
        f"4:  subs r5, #1\n    bmi 6f\n    mov r7, r4\n    add r4, r10\n    wls lr, r11, 7f\n"
        f"5:\n{weights}{SPREADS[spread].taps}    add r7, r12\n    le lr, 5b\n"
        f"7:  ldr r6, {between}\n    cmp r5, #0\n    bne 2b\n    ldr r6, {behind}\n    b 2b\n"
        f"6:\n{outputs}    vstrb.32 q0, [r3], #4\n{SPREADS[spread].next.format(next=next, repeats=repeats)}"
        "    subs r9, #4\n    bne 1b\n    add sp, #4\n    vpop {d8-d11}\n    pop {r4-r11, pc}\n"
    )
