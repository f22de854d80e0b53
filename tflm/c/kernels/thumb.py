"""Inner loops in assembly for Cortex-M without DSP instructions, for which compilers run out of registers; see
`dsp`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tflm.c.kernels.dsp import WINDOW, Functions, shift_of, with_signed_weights
from tflm.c.kernels.packed_sums import LARGEST_WORD_SUM
from tflm.delegates.compiled.single_rounding import FRACTION

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


# --- Windows in place, and FULLY_CONNECTED -----------------------------------------------------------------------

SUMS03, SUMS21 = ("r8", "r9"), ("r10", "r11")
"""Registers with the sums of the first and the fourth of four channels, and of the third and the second."""


def _short_product(x: str, sum: str) -> str:
    return f"    muls r5, {x}, r5\n    add {sum}, {sum}, r5\n"


def _long_product(x: str, sum: str) -> str:
    return f"    mla {sum}, r5, {x}, {sum}\n"


Product = Callable[[str, str], str]
"""Returns code that adds the product of r5 and an element to a sum."""

BYTES: dict[Product, Sequence[str]] = {
    _short_product: (
        "    uxtb r5, r4\n",
        "    lsls r5, r4, #16\n    asrs r5, r5, #24\n",
        "    lsrs r5, r4, #16\n    uxtb r5, r5\n",
        "    asrs r5, r4, #24\n",
    ),
    _long_product: (
        "    uxtb r5, r4\n",
        "    sbfx r5, r4, #8, #8\n",
        "    ubfx r5, r4, #16, #8\n",
        "    asrs r5, r4, #24\n",
    ),
}
"""Code that copies a byte of the word in r4 to r5; the first and the third byte are unsigned."""


def _word_times(product: Product, x: tuple[str, str], sums: tuple[Sequence[str], Sequence[str]]) -> str:
    """Multiply the outer and the inner bytes of the word at r1 by an element each, and add the products to sums."""
    code = "    ldmia r1!, {r4}\n"
    for element, places, both in zip(x, ((0, 3), (2, 1)), sums):
        code += "".join(BYTES[product][place] + product(element, sum) for place, sum in zip(places, both))
    return code


def _run(product: Product, *, has_offset: bool = False) -> str:
    """Return a subroutine from label 2 on, which adds the products of elements and words to the sums.

    r0: number of elements; r1: words; r2: elements; r3: 0 if no words are paired; r12: an offset that is added to
    elements. r1 and r2 point after the words and the elements then.
    """
    is_long = product is _long_product

    def load(place: int, x: str = "r3") -> str:
        code = f"    ldrsb {x}, [r2, #{place}]\n" if is_long else f"    ldrb {x}, [r2, #{place}]\n    sxtb {x}, {x}\n"
        return code + f"    add {x}, {x}, r12\n" * has_offset

    def fours(label: int, products: str) -> str:
        return f"{label}:\n{products}    adds r2, r2, #4\n    cmp r1, r6\n    bne {label}b\n"

    single = _word_times(product, ("r3", "r3"), (SUMS03, SUMS21))
    paired = "".join(_word_times(product, ("r3", "r7"), (sums, sums)) for sums in (SUMS03, SUMS21))
    in_pairs = "".join(load(k) + load(k + 2, "r7") + paired for k in range(2))
    in_order = "".join(load(k) + single for k in range(4))
    return (
        "2:  lsrs r6, r0, #2\n    lsls r6, r6, #4\n    lsls r0, r0, #2\n    adds r0, r0, r1\n    adds r6, r6, r1\n"
        f"    cmp r1, r6\n    beq 4f\n    cmp r3, #0\n    beq {7 if is_long else 4}f\n{fours(3, in_pairs)}"
        f"4:  cmp r1, r0\n    beq 6f\n5:\n{load(0)}    adds r2, r2, #1\n{single}    cmp r1, r0\n    bne 5b\n6:  bx lr\n"
        + (fours(7, in_order) + "    b 4b\n")
        * is_long
    )


PUSH = (
    "    .syntax unified\n    push {r0, r4-r7, lr}\n    mov r4, r8\n    mov r5, r9\n    mov r6, r10\n    mov r7, r11\n"
    "    push {r4-r7}\n    movs r4, #0\n    mov r8, r4\n    mov r9, r4\n    mov r10, r4\n    mov r11, r4\n"
)
POP = (
    "    ldr r0, [sp, #16]\n    mov r4, r8\n    mov r5, r9\n    mov r6, r10\n    mov r7, r11\n    stmia r0!, {r4-r7}\n"
    "    pop {r4-r7}\n    mov r8, r4\n    mov r9, r5\n    mov r10, r6\n    mov r11, r7\n    pop {r0, r4-r7, pc}\n"
)
"""Begin and end of a function that returns sums, which are 0 at first."""


def sums_of_run(functions: Functions) -> str:
    """r0: results; r1: words of weights; r2: elements; r3: number of elements."""
    shift = LARGEST_WORD_SUM.bit_length() - 1
    return (
        f"{PUSH}    mov r0, r3\n    bl 2f\n"
        f"    movs r0, #1\n    lsls r0, r0, #{shift}\n    add r8, r8, r0\n    add r10, r10, r0\n"
        f"{POP}{_run(_short_product)}"
    )


def _sums_of_window(product: Product) -> str:
    row, cells_left = "[sp]", "[sp, #4]"
    rows, cells, length, between, x_row, x_step, paired = (f"[sp, #{48 + 4 * i}]" for i in range(len(WINDOW)))
    return with_signed_weights(
        f"{PUSH}    sub sp, #8\n    str r2, {row}\n    rsbs r3, r3, #0\n    mov r12, r3\n"
        f"7:  ldr r3, {rows}\n    subs r3, r3, #1\n    bmi 9f\n    str r3, {rows}\n    ldr r2, {row}\n"
        f"    ldr r3, {x_row}\n    adds r3, r3, r2\n    str r3, {row}\n    ldr r4, {cells}\n"
        f"1:  str r4, {cells_left}\n    ldr r0, {length}\n    ldr r3, {paired}\n    bl 2f\n"
        f"    ldr r3, {x_step}\n    adds r2, r2, r3\n    ldr r4, {cells_left}\n    subs r4, r4, #1\n    bne 1b\n"
        f"    ldr r0, {between}\n    lsls r0, r0, #2\n    adds r1, r1, r0\n    b 7b\n"
        f"9:  add sp, #8\n{POP}{_run(product, has_offset=True)}"
    )


def sums_of_window_short(functions: Functions) -> str:
    """r0: results; r1: words of weights; r2: elements; r3: zero point; then what `windows_in_place` passes."""
    return _sums_of_window(_short_product)


def sums_of_window_long(functions: Functions) -> str:
    """The same as `sums_of_window_short`, with MLA."""
    return _sums_of_window(_long_product)
