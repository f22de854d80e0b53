"""Inner loops in assembly for Cortex-M with DSP instructions. Their sums need all registers of the processor.

Each is the body of a function without prologue; the kernels contain the same function in plain C. For the latter, GCC
hoists loads and then keeps sums in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tflm.delegates.compiled.requantization import CLAMPS, CORRECTED, STEPPED
from tflm.delegates.compiled.single_rounding import FRACTION

Functions = Mapping[str, Callable[..., Any]]

CONDITION = "DSP_ASSEMBLY"
"""Preprocessor condition for these functions."""

FIRST, SECOND = ("r4", "r5", "r6", "r7"), ("r8", "r9", "r10", "r11")
"""Registers with the sums of four windows, for the first and for the second channel."""


def _round(pair: str) -> str:
    """Return two products of four windows and two channels, with code that loads the elements of the first two."""
    return (
        f"    ldr r3, [r1], #4\n{pair}    sxtb16 r2, r3\n    sxtb16 r3, r3, ror #8\n"
        "    smlad r4, r12, r2, r4\n    smlad r8, r12, r3, r8\n    smlad r5, lr, r2, r5\n    smlad r9, lr, r3, r9\n"
        "    ldrd r12, lr, [r0], #8\n"
        "    smlad r6, r12, r2, r6\n    smlad r10, r12, r3, r10\n    smlad r7, lr, r2, r7\n    smlad r11, lr, r3, r11\n"
    )


FAST_ROUND, FAST_BYTES = _round("    ldr.w lr, [r0, #4]\n    ldr r12, [r0], #8\n"), 56
SHORT_ROUND, SHORT_BYTES = _round("    ldrd r12, lr, [r0], #8\n"), 52
"""Rounds with code size. Single loads overlap, but take an instruction more."""

FAST, SHORT = 4, 4
"""Rounds of each kind in the unrolled loop, one after the other."""

FOUR_WINDOWS = (
    f"    .p2align 2\n2:  .rept {FAST}\n{FAST_ROUND}    .endr\n    .rept {SHORT}\n{SHORT_ROUND}    .endr\n"
    "    ldr r2, [sp]\n    cmp r0, r2\n    bne 2b\n"
)
"""Rounds of two products. r0: im2col tile, up to [sp]; r1: weights. `ENTRY` computes where to enter it."""

ENTRY = f"""\
    .p2align 2
    rsb r12, {{rounds}}, #0
    and r12, r12, #{FAST + SHORT - 1}
    mov lr, #{FAST_BYTES}
    adr.w {{rounds}}, 2f
    mla {{rounds}}, r12, lr, {{rounds}}
    subs r12, r12, #{FAST}
    it gt
    subgt {{rounds}}, {{rounds}}, r12, lsl #{(FAST_BYTES - SHORT_BYTES).bit_length() - 1}
    orr r12, {{rounds}}, #1
"""
"""Sets r12 to the address at which the unrolled loop is entered, for any number of rounds."""


def multiply_four(functions: Functions) -> str | None:
    """r0: im2col tile; r1: weights; r2: table; r3: outputs; on the stack: rounds, channels, step of outputs."""
    outputs = requantized(functions, {(20, 28): SECOND, (4, 12): FIRST})
    if outputs is None:
        return None
    copies = "".join(f"    mov {sum}, {sums[0]}\n" for sums in (FIRST, SECOND) for sum in sums[1:])
    return (
        "    push {r4-r11, lr}\n    sub sp, #32\n    ldrd r4, r5, [sp, #68]\n    ldr r6, [sp, #76]\n"
        "    add r7, r0, r4, lsl #4\n    strd r7, r0, [sp]\n    strd r2, r3, [sp, #8]\n"
        + ENTRY.format(rounds="r4")
        # Twice the step of outputs, plus 1 if there is a second channel.
        + "    lsl r6, r6, #1\n    add r6, r6, #1\n    lsrs r5, r5, #1\n    add r5, r2, r5, lsl #5\n"
        "    strd r6, r12, [sp, #16]\n    str r5, [sp, #24]\n    mov r0, r2\n    b 4f\n"
        "1:  ldrd r0, r2, [sp, #4]\n    ldr r4, [r2]\n    ldr r8, [r2, #16]\n"
        + copies
        + "    ldr pc, [sp, #20]\n"
        + FOUR_WINDOWS
        + "    ldr r0, [sp, #8]\n"
        + outputs
        + "    ldrd r2, r3, [sp, #12]\n    lsrs r3, r3, #1\n    add r12, r2, r3, lsl #1\n    bcc 5f\n"
        + "".join(f"    bfi {first}, {second}, #8, #8\n" for first, second in zip(FIRST, SECOND))
        + "    strh r5, [r2, r3]\n    strh r6, [r12]\n    strh r7, [r12, r3]\n    strh r4, [r2], #2\n"
        "    add r0, r0, #32\n    strd r0, r2, [sp, #8]\n"
        "4:  ldr r2, [sp, #24]\n    cmp r0, r2\n    bne 1b\n"
        "    ldr r3, [sp, #72]\n    lsls r3, r3, #31\n    beq 6f\n"
        "    ldr r3, [sp, #16]\n    sub r3, r3, #1\n    str r3, [sp, #16]\n    b 1b\n"
        "5:  strb r5, [r2, r3]\n    strb r6, [r12]\n    strb r7, [r12, r3]\n    strb r4, [r2]\n"
        "6:  add sp, #32\n    pop {r4-r11, pc}\n"
    )


def shift_of(functions: Functions, clamps: Sequence[str] = ("clipped",)) -> tuple[int | None, bool]:
    """Return the shift of a rounding, and whether sums are corrected; None if C has to round or to clamp.

    Args:
        clamps: names of the clamps that the assembly has.
    """
    is_clamped = any(functions["clamp"] is CLAMPS[name] for name in clamps)
    for is_corrected, family in enumerate((STEPPED, CORRECTED)):
        for shift, function in family.items():
            if function is functions["rounding"] and is_clamped:
                return shift, bool(is_corrected)
    return None, False


def _saturated(sum: str, shift: int) -> str:
    return f"    ssat {sum}, #8, {sum}" + f", asr #{shift}" * (shift > 0) + "\n"


def requantized(functions: Functions, sums: Mapping[tuple[int, int], tuple[str, ...]]) -> str | None:
    """Return the code that turns sums into outputs, by a table at r0; it clobbers r2, r3, r12 and lr. None if C has to
    do it.

    Args:
        sums: registers, by the offsets in the table of the significand (followed by the addend) and of the correction.
    """
    shift, is_corrected = shift_of(functions)
    if shift is None:
        return None
    code = ""
    for (place, correction), registers in sums.items():
        code += f"    ldrd r12, lr, [r0, #{place}]\n"
        if is_corrected:
            code += f"    ldr r2, [r0, #{correction}]\n"
            for each in registers:
                code += f"    and r3, r2, {each}, asr #31\n    add {each}, r3, {each}, lsl #{FRACTION}\n"
        code += "".join(f"    smmla {each}, {each}, r12, lr\n" for each in registers)
        code += "".join(_saturated(each, shift) for each in registers)
    return code


FOUR_CHANNELS = {(4, 12): ("r4",), (20, 28): ("r5",), (36, 44): ("r6",), (52, 60): ("r7",)}
"""Registers with the sums of four channels, for `requantized`."""


def set_fours(functions: Functions) -> str | None:
    """r0: input; r1: weights; r2: table; r3: outputs; on the stack: other arguments of
    `depthwise_convolution.set_fours`."""
    outputs = requantized(functions, FOUR_CHANNELS)
    if outputs is None:
        return None
    names = ("rows", "columns", "before", "between", "behind", "x_row", "x_step", "together", "zero_point")
    rows, columns, before, between, behind, x_row, x_step, together, zero_point = (
        f"[sp, #{48 + 4 * i}]" for i in range(len(names))
    )
    weights = "    ldr r10, [r1], #4\n    sxtb16 r11, r10, ror #8\n    sxtb16 r10, r10\n"
    return (
        "    push {r4-r11, lr}\n    sub sp, #12\n    strd r0, r2, [sp]\n    str r3, [sp, #8]\n"
        "1:  ldrd r3, r0, [sp]\n    ldr r4, [r0]\n    ldr r5, [r0, #16]\n    ldr r6, [r0, #32]\n    ldr r7, [r0, #48]\n"
        f"    ldr r2, {rows}\n    ldr lr, {before}\n    ldr r12, {x_step}\n"
        f"2:  cmp lr, #0\n    beq 4f\n    ldr r8, {zero_point}\n"
        f"3:\n{weights}"
        "    smlabb r4, r8, r10, r4\n    smlabt r6, r8, r10, r6\n    smlabb r5, r8, r11, r5\n"
        "    smlabt r7, r8, r11, r7\n    subs lr, #1\n    bne 3b\n"
        f"4:  subs r2, #1\n    bmi 6f\n    mov r0, r3\n    ldr lr, {columns}\n    ldr r8, {x_row}\n    add r3, r8\n"
        f"5:  ldr r8, [r0]\n    add r0, r12\n{weights}    sxtb16 r9, r8, ror #8\n    sxtb16 r8, r8\n"
        "    smlabb r4, r8, r10, r4\n    smlatt r6, r8, r10, r6\n    smlabb r5, r9, r11, r5\n"
        "    smlatt r7, r9, r11, r7\n    subs lr, #1\n    bne 5b\n"
        f"    cmp r2, #0\n    ite eq\n    ldreq lr, {behind}\n    ldrne lr, {between}\n    b 2b\n"
        "6:  ldr r0, [sp, #4]\n" + outputs + "    ldr r3, [sp, #8]\n    strb r5, [r3, #1]\n    strb r6, [r3, #2]\n"
        "    strb r7, [r3, #3]\n    strb r4, [r3], #4\n    add r0, #64\n    strd r0, r3, [sp, #4]\n"
        f"    ldr r3, [sp]\n    add r3, #4\n    str r3, [sp]\n    ldr r2, {together}\n    subs r2, #4\n"
        f"    str r2, {together}\n    bne 1b\n    add sp, #12\n    pop {{r4-r11, pc}}\n"
    )


def sums_of_one(functions: Functions) -> str:
    """r0: a window of the im2col tile; r1: weights; r2: rounds."""
    return _sums_of_pairs(16)


def sums_of_vector(functions: Functions) -> str:
    """r0: elements of 16 bits; r1: weights; r2: rounds."""
    return _sums_of_pairs(4)


def _sums_of_pairs(step_bytes: int) -> str:
    """Sums of two channels, with pairs of elements at this distance."""
    step = (
        f"    ldr r6, [r1], #4\n    ldr r12, [r0], #{step_bytes}\n    sxtb16 lr, r6\n    sxtb16 r6, r6, ror #8\n"
        "    smlad r4, r12, lr, r4\n    smlad r5, r12, r6, r5\n"
    )
    return (
        "    push {r4-r7, lr}\n    mov r4, #0\n    mov r5, #0\n    lsrs r3, r2, #2\n    beq 2f\n"
        f"1:  .rept 4\n{step}    .endr\n    subs r3, #1\n    bne 1b\n"
        f"2:  ands r2, r2, #3\n    beq 4f\n3:\n{step}    subs r2, #1\n    bne 3b\n"
        "4:  mov r0, r4\n    mov r1, r5\n    pop {r4-r7, pc}\n"
    )


def sums_of_cells(functions: Functions) -> str:
    """r0: elements of 16 bits; r1: weights, aligned to words; r2: rows; r3: cells; on the stack: other arguments of
    `wide_windows.sums_of_cells`. r0 and r3 are pushed for the next row."""
    count, x_row, x_step, between = (f"[sp, #{44 + 4 * i}]" for i in range(4))

    def pair(word: str, load: str = "ldr r9, [r0], #4", multiply: str = "smlad") -> str:
        return (
            f"    {load}\n    sxtb16 lr, {word}\n    sxtb16 {word}, {word}, ror #8\n"
            f"    {multiply} r4, r9, lr, r4\n    {multiply} r5, r9, {word}, r5\n"
        )

    word = "    ldr r6, [r1], #4\n"
    two = "    ldrd r6, r7, [r1], #8\n" + pair("r6") + pair("r7")
    four = "    ldmia r1!, {r6, r7, r8, r10}\n" + "".join(map(pair, ("r6", "r7", "r8", "r10")))
    return (
        f"    push {{r0, r3-r11, lr}}\n    mov r4, #0\n    mov r5, #0\n    ldr r11, {count}\n"
        f"1:  lsrs r12, r11, #3\n    beq 4f\n3:\n{four}    subs r12, #1\n    bne 3b\n"
        f"4:  lsls r12, r11, #29\n    beq 7f\n    bpl 5f\n{two}"
        # The shift sets the carry to bit 1 of the count, and the zero flag for an even count, which products keep.
        f"5:  lsls r12, r11, #31\n    bcc 6f\n{word}{pair('r6')}"
        f"6:  beq 7f\n{word}{pair('r6', 'ldrh r9, [r0], #2', 'smlabb')}"
        "7:  subs r3, #1\n    bne 8f\n    subs r2, #1\n    bne 9f\n"
        "    strd r4, r5, [sp]\n    pop {r0, r1, r4-r11, pc}\n"
        f"8:  ldr r12, {x_step}\n    add r0, r0, r12, lsl #1\n    lsrs r12, r11, #3\n    bne 3b\n    b 4b\n"
        f"9:  ldrd r0, r3, [sp]\n    ldr r12, {x_row}\n    ldr r10, {between}\n    add r0, r0, r12, lsl #1\n"
        "    str r0, [sp]\n    add r1, r10\n    b 1b\n"
    )


def fill_fours(functions: Functions) -> str:
    """r0: elements; r1: the window's place in the im2col tile; r2: number of elements / 4, at least 1."""
    return (
        "1:  ldr r3, [r0], #4\n    sxtb16 r12, r3\n    sxtb16 r3, r3, ror #8\n    str r3, [r1, #16]\n"
        "    str r12, [r1], #32\n    subs r2, #1\n    bne 1b\n    bx lr\n"
    )


def fill_adjacent(functions: Functions) -> str:
    """r0: elements; r1: im2col tile; r2: step from a window to the next; r3: number of elements / 4."""
    return (
        "    push {r4-r11, lr}\n    add r12, r0, r2\n    add lr, r12, r2\n    add r2, lr, r2\n"
        "1:  ldr r4, [r0], #4\n    ldr r5, [r12], #4\n    ldr r6, [lr], #4\n    ldr r7, [r2], #4\n"
        "    sxtb16 r8, r4\n    sxtb16 r9, r5\n    sxtb16 r10, r6\n    sxtb16 r11, r7\n    stmia r1!, {r8-r11}\n"
        "    sxtb16 r4, r4, ror #8\n    sxtb16 r5, r5, ror #8\n    sxtb16 r6, r6, ror #8\n    sxtb16 r7, r7, ror #8\n"
        "    stmia r1!, {r4-r7}\n    subs r3, #1\n    bne 1b\n    pop {r4-r11, pc}\n"
    )


# --- FULLY_CONNECTED ---------------------------------------------------------------------------------------------

UPPER = 1 << 24
"""Factor of the upper of two packed sums: 2^`packed_sums.WORD_UPPER`."""


def sum_of_bytes(functions: Functions) -> str:
    """r0: elements; r1: number of elements."""
    return (
        "    push {r4-r6, lr}\n    mov r2, #0\n    mov r3, #0x80808080\n    mov r12, #0\n    lsrs r6, r1, #3\n"
        "    beq 2f\n    sub r2, r2, r6, lsl #10\n"
        "1:  ldr r4, [r0], #4\n    ldr r5, [r0], #4\n    eors r4, r3\n    eors r5, r3\n"
        "    usada8 r2, r4, r12, r2\n    usada8 r2, r5, r12, r2\n    subs r6, #1\n    bne 1b\n"
        "2:  ands r1, #7\n    beq 4f\n3:  ldrsb r4, [r0], #1\n    subs r1, #1\n    add r2, r4\n    bne 3b\n"
        "4:  mov r0, r2\n    pop {r4-r6, pc}\n"
    )


def _pairs_times(x_pairs: tuple[str, str]) -> str:
    """Multiply four elements, in a word of even and a word of odd ones, by four words at r1."""
    code = "    ldmia r1!, {r8-r11}\n"
    for x, word03, word21 in zip(x_pairs, ("r8", "r10"), ("r9", "r11")):
        code += (
            f"    uxtb16 lr, {word03}\n    sxtb16 {word03}, {word03}, ror #8\n"
            f"    smlad r4, lr, {x}, r4\n    smladx r5, {word03}, {x}, r5\n"
            f"    uxtb16 lr, {word21}\n    sxtb16 {word21}, {word21}, ror #8\n"
            f"    smlad r6, lr, {x}, r6\n    smladx r7, {word21}, {x}, r7\n"
        )
    return code


FOUR_ELEMENTS = "    ldr r12, [r2], #4\n    sxtb16 r3, r12\n    sxtb16 r12, r12, ror #8\n"
"""Load four elements at r2: the even ones into r3, the odd ones into r12."""

FOUR = FOUR_ELEMENTS + _pairs_times(("r3", "r12"))
"""Multiply four elements by words with pairs of weights."""


def _word_times(word: str, x: str, half: str) -> str:
    """Multiply an element, which is a half of a word, by a word of weights."""
    return (
        f"    uxtb16 lr, {word}\n    sxtb16 {word}, {word}, ror #8\n"
        f"    smlab{half} r4, lr, {x}, r4\n    smlat{half} r6, lr, {x}, r6\n"
        f"    smlat{half} r5, {word}, {x}, r5\n    smlab{half} r7, {word}, {x}, r7\n"
    )


IN_ORDER = "    ldmia r1!, {r8-r11}\n" + "".join(
    _word_times(f"r{8 + k}", ("r3", "r12")[k % 2], "bt"[k // 2]) for k in range(4)
)
"""Multiply four elements, as of `_pairs_times`, by words that each have the weights of one element."""

ONE_WORD = "    ldr r8, [r1], #4\n" + _word_times("r8", "r12", "b")
"""Multiply an element in r12 by the word at r1."""

ONE = "    ldrsb r12, [r2], #1\n" + ONE_WORD
"""Multiply one element."""


def _run(count: str) -> str:
    """Add the products of elements at r2 and the words at r1 to the sums; r3 and a place on the stack contain their
    number."""
    return (
        "    bics r0, r3, #3\n    beq 3f\n    add r0, r1, r0, lsl #2\n    tst r3, #4\n    bne 2f\n"
        f"    .p2align 2\n1:\n{FOUR}2:\n{FOUR}    cmp r1, r0\n    bne 1b\n"
        f"3:  ldr r3, {count}\n    ands r3, r3, #3\n    beq 5f\n4:\n{ONE}    subs r3, #1\n    bne 4b\n5:\n"
    )


def sums_of_run(functions: Functions) -> str:
    """r0: results; r1: words of weights; r2: elements; r3: number of elements."""
    return (
        "    push {r0, r3-r11, lr}\n    mov r4, #0\n    mov r5, #0\n    mov r6, #0\n    mov r7, #0\n"
        + _run("[sp, #4]")
        + f"    ldr r0, [sp]\n    mov r12, #{UPPER}\n"
        f"    add r4, #{UPPER // 2}\n    asr r8, r4, #31\n    smlal r4, r8, r5, r12\n    strd r4, r8, [r0]\n"
        f"    add r6, #{UPPER // 2}\n    asr r9, r6, #31\n    smlal r6, r9, r7, r12\n    strd r6, r9, [r0, #8]\n"
        "    add sp, #8\n    pop {r4-r11, pc}\n"
    )


FIRST_SUMS = "    ldr r4, [r0]\n    ldr r7, [r0, #16]\n    ldr r6, [r0, #32]\n    ldr r5, [r0, #48]\n"
"""Set the sums of four channels to their constants in the table at r0."""


def _set_four(functions: Functions, table: str, y: str, channels: str) -> str | None:
    """Return code that stores the outputs of four channels, or of those that are left; it goes to label 10 if more are
    left. Places on the stack contain the addresses and the number of channels."""
    outputs = requantized(functions, {(4, 12): ("r4",), (52, 60): ("r5",), (36, 44): ("r6",), (20, 28): ("r7",)})
    if outputs is None:
        return None
    return (
        f"    ldr r0, {table}\n{outputs}    ldr r2, {channels}\n    ldr r3, {y}\n    subs r2, #4\n    bmi 1f\n"
        "    strb r7, [r3, #1]\n    strb r6, [r3, #2]\n    strb r5, [r3, #3]\n    strb r4, [r3], #4\n    beq 2f\n"
        f"    str r2, {channels}\n    str r3, {y}\n    add r0, #64\n    str r0, {table}\n    b 10b\n"
        "1:  strb r4, [r3]\n    adds r2, #2\n    it pl\n    strbpl r7, [r3, #1]\n    it gt\n"
        "    strbgt r6, [r3, #2]\n2:\n"
    )


def multiply_vector(functions: Functions) -> str | None:
    """r0: elements; r1: words of weights; r2: table; r3: outputs; then what `dense.multiply_vector` takes."""
    depth, channels, _, _, x_sum, upper, lower = (f"[sp, #{48 + 4 * i}]" for i in range(7))
    end = _set_four(functions, "[sp, #4]", "[sp, #8]", channels)
    if end is None:
        return None
    return (
        "    push {r4-r11, lr}\n    sub sp, #12\n    str r0, [sp]\n    strd r2, r3, [sp, #4]\n"
        f"10: ldrd r2, r0, [sp]\n{FIRST_SUMS}    ldr r8, {x_sum}\n    ldr r9, {lower}\n    mls r4, r8, r9, r4\n"
        f"    mls r6, r8, r9, r6\n    ldr r9, {upper}\n    mls r7, r8, r9, r7\n    mls r5, r8, r9, r5\n"
        f"    ldr r3, {depth}\n{_run(depth)}{end}    add sp, #12\n    pop {{r4-r11, pc}}\n"
    )


FOUR_AT_R0 = "    ldr r9, [r0], #4\n    sxtb16 r8, r9\n    sxtb16 r9, r9, ror #8\n"
"""Load four elements at r0: the even ones into r8, the odd ones into r9."""


def sum_of_products(functions: Functions) -> str:
    """r0: elements; r1: weights; r2: number of elements."""
    return _products_of(("r1",), "r2")


def sums_of_two(functions: Functions) -> str:
    """r0: elements; r1, r2: weights of two channels; r3: number of elements."""
    return _products_of(("r1", "r2"), "r3")


def _products_of(rows: tuple[str, ...], count: str) -> str:
    """Return a function that multiplies elements at r0 by rows of weights, and returns the sum of each row."""
    sums = ("r4", "r5")
    four, one = FOUR_AT_R0, "    ldrsb r8, [r0], #1\n"
    for row, sum in zip(rows, sums):
        four += (
            f"    ldr r7, [{row}], #4\n    sxtb16 r6, r7\n    sxtb16 r7, r7, ror #8\n"
            f"    smlad {sum}, r8, r6, {sum}\n    smlad {sum}, r9, r7, {sum}\n"
        )
        one += f"    ldrsb r7, [{row}], #1\n    smlabb {sum}, r8, r7, {sum}\n"
    return (
        f"    push {{r4-r9, lr}}\n    mov r4, #0\n    mov r5, #0\n    bics r12, {count}, #3\n    beq 3f\n"
        f"    add r12, r0, r12\n    tst {count}, #4\n    bne 2f\n1:\n{four}2:\n{four}    cmp r0, r12\n    bne 1b\n"
        f"3:  ands {count}, #3\n    beq 5f\n4:\n{one}    subs {count}, #1\n    bne 4b\n"
        "5:  mov r0, r4\n    mov r1, r5\n    pop {r4-r9, pc}\n"
    )


def sum_of_rows(functions: Functions) -> str:
    """r0: elements; r1: weights; r2: rows; r3: elements of a row; then the steps from a row to the next."""
    one = "    ldrsb r8, [r0], #1\n    ldrsb r5, [r1], #1\n    smlabb r4, r8, r5, r4\n"
    return (
        "    push {r4-r11, lr}\n    ldrd r10, r11, [sp, #36]\n    mov r4, #0\n    subs r10, r3\n    subs r11, r3\n"
        "    cbz r2, 6f\n1:  bics r12, r3, #3\n    beq 3f\n    add r12, r0\n"
        f"2:\n{FOUR_AT_R0}    ldr r6, [r1], #4\n    sxtb16 r5, r6\n    sxtb16 r6, r6, ror #8\n"
        "    smlad r4, r8, r5, r4\n    smlad r4, r9, r6, r4\n    cmp r0, r12\n    bne 2b\n"
        # The shift sets the carry to bit 1 of the count, and the sign to bit 0.
        f"3:  lsls r12, r3, #31\n    bcc 4f\n{one}{one}4:  bpl 5f\n{one}"
        "5:  add r0, r10\n    add r1, r11\n    subs r2, #1\n    bne 1b\n6:  mov r0, r4\n    pop {r4-r11, pc}\n"
    )


def sum_of_row_weights(functions: Functions) -> str:
    """r0: weights; r1: rows; r2: weights of a row; r3: step from a row to the next."""
    one = "    ldrsb r6, [r0], #1\n    add r4, r6\n"
    return (
        "    push {r4-r7, lr}\n    mov r4, #0\n    mov r5, #0x10001\n    subs r3, r2\n    cbz r1, 6f\n"
        "1:  bics r12, r2, #3\n    beq 3f\n    add r12, r0\n"
        "2:  ldr r7, [r0], #4\n    sxtb16 r6, r7\n    sxtab16 r6, r6, r7, ror #8\n    smlad r4, r6, r5, r4\n"
        "    cmp r0, r12\n    bne 2b\n"
        # The shift sets the carry to bit 1 of the count, and the sign to bit 0.
        f"3:  lsls r12, r2, #31\n    bcc 4f\n{one}{one}4:  bpl 5f\n{one}"
        "5:  add r0, r3\n    subs r1, #1\n    bne 1b\n6:  mov r0, r4\n    pop {r4-r7, pc}\n"
    )


WINDOW = ("rows", "cells", "length", "between", "x_row", "x_step", "paired")
"""Arguments on the stack of `windows_in_place.sums_of_window`; those of `set_window` begin with the same."""

ROWS, CELLS, LENGTH, BETWEEN, X_ROW, X_STEP_OF_CELLS, PAIRED, PRODUCTS, OUTPUTS, CHANNELS = (
    f"[sp, #{72 + 4 * i}]" for i in range(len(WINDOW) + 3)
)
ROWS_LEFT, OFFSETS, CELLS_LEFT, FIRST_ROW, FIRST_WORD, FOURS, SINGLES = (
    f"[sp, #{place}]" for place in (0, 8, 12, 16, 20, 24, 28)
)
"""On the stack: rows that are left and the pointer to the next one, two halves that are added to elements, cells that
are left, the first row and its words, and the bytes of a cell's words for groups of four elements and for others."""


def with_signed_weights(code: str) -> str:
    """Return code for words whose weights are all signed, without an offset."""
    return code.replace("uxt", "sxt").replace("ubfx", "sbfx")


FOUR_WITHOUT_OFFSET = (
    f"    ldr r12, [r2], #4\n    ldr lr, {OFFSETS}\n    sxtab16 r3, lr, r12\n    sxtab16 r12, lr, r12, ror #8\n"
)
"""Like `FOUR_ELEMENTS`, without the zero point of the elements."""


def _window(begin: str, end: str) -> str:
    """Return a function with a window's sums of four channels in r4 to r7. r0: first argument; r1: words of weights;
    r2: elements; r3: their zero point.

    Args:
        begin: code that sets the sums; r0 and r2 as above.
        end: code from label 9 on.
    """
    pairs = FOUR_WITHOUT_OFFSET + _pairs_times(("r3", "r12"))
    return with_signed_weights(
        "    push {r0, r4-r11, lr}\n    sub sp, #32\n    rsb r3, r3, #0\n    pkhbt r3, r3, r3, lsl #16\n"
        f"    str r3, {OFFSETS}\n    str r2, {FIRST_ROW}\n    str r1, {FIRST_WORD}\n"
        f"    ldr r3, {LENGTH}\n    and r4, r3, #3\n    bic r3, #3\n    lsl r3, #2\n    lsl r4, #2\n"
        f"    strd r3, r4, {FOURS}\n{begin}    ldr r3, {ROWS}\n    cmp r3, #0\n    beq 9f\n"
        f"1:  ldr r8, {X_ROW}\n    ldr r12, {CELLS}\n    add r8, r2\n    strd r3, r8, {ROWS_LEFT}\n"
        f"5:  str r12, {CELLS_LEFT}\n    ldr r0, {FOURS}\n    ldr r3, {PAIRED}\n    cmp r0, #0\n    beq 3f\n"
        "    cmp r3, #0\n    beq 6f\n    tst r0, #16\n    add r0, r1\n    bne 4f\n"
        f"    .p2align 2\n2:\n{pairs}4:\n{pairs}    cmp r1, r0\n    bne 2b\n"
        f"3:  ldr r0, {SINGLES}\n    cbz r0, 7f\n    ldrsh r3, {OFFSETS}\n    add r0, r1\n"
        f"2:  ldrsb r12, [r2], #1\n    add r12, r3\n{ONE_WORD}    cmp r1, r0\n    bne 2b\n"
        f"7:  ldr r12, {CELLS_LEFT}\n    ldr r8, {X_STEP_OF_CELLS}\n    subs r12, #1\n    add r2, r8\n    bne 5b\n"
        f"    ldr r0, {BETWEEN}\n    ldrd r3, r2, {ROWS_LEFT}\n    add r1, r1, r0, lsl #2\n    subs r3, #1\n"
        f"    bne 1b\n    b 9f\n6:  add r0, r1\n2:\n{FOUR_WITHOUT_OFFSET}{IN_ORDER}    cmp r1, r0\n    bne 2b\n"
        f"    b 3b\n9:\n{end}"
    )


def sums_of_window(functions: Functions) -> str:
    """r0: results; r1: words of weights; r2: elements; r3: zero point; then what `windows_in_place` passes."""
    return _window(
        "    mov r4, #0\n    mov r5, #0\n    mov r6, #0\n    mov r7, #0\n",
        "    add sp, #32\n    pop {r0}\n    stmia r0, {r4-r7}\n    pop {r4-r11, pc}\n",
    )


def set_window(functions: Functions) -> str | None:
    """r0: table; otherwise the arguments of `windows_in_place.set_window`, in their order."""
    table = "[sp, #32]"
    end = _set_four(functions, table, OUTPUTS, CHANNELS)
    if end is None:
        return None
    again = (
        f"    b 11f\n10: ldr r1, {FIRST_WORD}\n    ldr r8, {PRODUCTS}\n    ldr r0, {table}\n    ldr r2, {FIRST_ROW}\n"
        f"    add r1, r1, r8, lsl #2\n    str r1, {FIRST_WORD}\n11:\n"
    )
    return _window(again + FIRST_SUMS, end + "    add sp, #36\n    pop {r4-r11, pc}\n")


# --- Depthwise convolutions of 3 x 3 -----------------------------------------------------------------------------

END, STEP, RUN, REST, HAS_LEFT, HAS_RIGHT, X_STEP, IMAGE_END = range(12, 44, 4)
"""Stack offsets of a loop's end, and of the first fields of `depthwise_convolution.Image`."""

U0, BIAS, SIGNIFICAND, BELOW, LEFT, RIGHT, IMAGE = (IMAGE_END + 40 + 4 * place for place in (0, 5, 6, 8, 9, 10, 11))
"""Stack offsets of the arguments of `depthwise_convolution.rows_by_one`, from the fifth on, above the saved registers.
"""


def _column(spare: str) -> str:
    """Load the elements of the next column: those of the first two rows to r2, that of the third one to r3."""
    return (
        f"    ldrsb r2, [r0]\n    ldrsb {spare}, [r0, r12]\n    ldrsb r3, [r0, r12, lsl #1]\n    add r0, r0, lr\n"
        f"    pkhbt r2, r2, {spare}, lsl #16\n"
    )


def _first_tap(sum: str) -> str:
    return f"    ldr {sum}, [sp, #{BIAS}]\n    smlad {sum}, r2, r7, {sum}\n    smlabb {sum}, r3, r10, {sum}\n"


def _second_tap(sum: str) -> str:
    return f"    smlad {sum}, r2, r8, {sum}\n    smlabt {sum}, r3, r10, {sum}\n"


def _third_tap(sum: str) -> str:
    return f"    smlad {sum}, r2, r9, {sum}\n    smlabb {sum}, r3, r11, {sum}\n"


Output = Callable[[str], str]
"""Returns code that turns the sum in a register into an output; it clobbers r2 and r3."""


def _rows(functions: Functions, row: Callable[[Output], str]) -> str | None:
    """Return a function over rows. r0: elements; r1: outputs; r2: rows; r3: step from a row of a window to the next.

    r0: elements; r1: outputs; r2: rows; r3: from a row of a window to the next. Other arguments are on the stack. In
    the code of a row, r7 to r11 contain weights, r12 the step of rows, and lr that of columns.
    """
    shift, is_corrected = shift_of(functions)
    if shift is None:
        return None

    def output(sum: str) -> str:
        below = (
            f"    ldr r2, [sp, #{BELOW}]\n    and r2, r2, {sum}, asr #31\n    add {sum}, r2, {sum}, lsl #{FRACTION}\n"
        )
        product = f"    ldrd r2, r3, [sp, #{SIGNIFICAND}]\n    smmla {sum}, {sum}, r2, r3\n"
        return below * is_corrected + product + _saturated(sum, shift)

    return (
        "    push {r4-r11, lr}\n    sub sp, #44\n    str r2, [sp, #8]\n    mov r12, r3\n"
        f"    ldr r2, [sp, #{IMAGE}]\n    ldmia r2, {{r4-r10}}\n    add r2, sp, #{STEP}\n    stmia r2, {{r4-r10}}\n"
        f"    mov lr, r4\n    add r2, sp, #{U0}\n    ldmia r2, {{r7-r11}}\n"
        "1:  strd r0, r1, [sp]\n"
        + row(output)
        + f"9:  ldrd r0, r1, [sp]\n    ldrd r2, r3, [sp, #{X_STEP}]\n    add r0, r0, r2\n    add r1, r1, r3\n"
        "    ldr r2, [sp, #8]\n    subs r2, #1\n    str r2, [sp, #8]\n    bne 1b\n"
        "    add sp, #44\n    pop {r4-r11, pc}\n"
    )


def _if_argument(place: int) -> str:
    """Skip to the label that follows if an argument is 0."""
    return f"    ldr r2, [sp, #{place}]\n    cmp r2, #0\n    beq "


LOOP = f"    ldr r2, [sp, #{RUN}]\n    add r2, r2, r0\n    str r2, [sp, #{END}]\n    cmp r0, r2\n    beq 5f\n"
LOOP_END = f"    ldr r2, [sp, #{END}]\n    cmp r0, r2\n    bne 4b\n"
"""Begin and end of a loop from label 4 to label 5 over `RUN` bytes of elements."""


def rows_by_one(functions: Functions) -> str | None:
    """Windows one column apart: three sums are computed at a time, in turn."""

    def row(output: Output) -> str:
        def turn(first: str, second: str, third: str) -> str:
            taps = _third_tap(first) + _second_tap(second) + _first_tap(third)
            return f"{_column(third)}{taps}{output(first)}    strb {first}, [r0, r1]\n"

        def end(sum: str) -> str:
            right = f"    ldr r2, [sp, #{RIGHT}]\n    add {sum}, {sum}, r2\n    add r0, r0, lr\n"
            return f"{_if_argument(HAS_RIGHT)}9f\n{right}{output(sum)}    strb {sum}, [r0, r1]\n    b 9f\n"

        turns = turn("r5", "r4", "r6"), turn("r4", "r6", "r5"), turn("r6", "r5", "r4")
        return (
            f"    sub r1, r1, r0\n    sub r1, r1, lr, lsl #1\n{_if_argument(HAS_LEFT)}2f\n    ldr r5, [sp, #{LEFT}]\n"
            f"    b 3f\n2:\n{_column('r5')}{_first_tap('r5')}    sub r1, r1, lr\n"
            f"3:\n{_column('r4')}{_second_tap('r5')}{_first_tap('r4')}{LOOP}4:\n{''.join(turns)}{LOOP_END}"
            f"5:  ldr r2, [sp, #{REST}]\n    cmp r2, #1\n    beq 6f\n    bhi 7f\n{end('r5')}"
            f"6:\n{turns[0]}{end('r4')}7:\n{turns[0]}{turns[1]}{end('r6')}"
        )

    return _rows(functions, row)


def rows_by_two(functions: Functions) -> str | None:
    """Windows two columns apart: a column belongs to two windows at most."""

    def row(output: Output) -> str:
        window = (
            f"{_column('r6')}{_second_tap('r4')}{_column('r6')}{_third_tap('r4')}{_first_tap('r5')}{output('r4')}"
            "    strb r4, [r1]\n    add r1, r1, lr\n    mov r4, r5\n"
        )
        right = f"{_column('r6')}{_second_tap('r4')}    ldr r2, [sp, #{RIGHT}]\n    add r4, r4, r2\n"
        return (
            f"{_if_argument(HAS_LEFT)}2f\n    ldr r4, [sp, #{LEFT}]\n{window}    b 3f\n"
            f"2:\n{_column('r6')}{_first_tap('r4')}3:\n{LOOP}4:\n{window}{LOOP_END}"
            f"5:\n{_if_argument(HAS_RIGHT)}9f\n{right}{output('r4')}    strb r4, [r1]\n"
        )

    return _rows(functions, row)
