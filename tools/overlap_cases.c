/* Runs kernels of CMSIS-NN twice, with the output apart from the input and at a distance from it, and compares.
 *
 * Reads cases.bin: struct test_case one after the other. Writes results.bin: for each case a byte, 's' where the answers
 * are the same, 'd' where they differ, 'e' where the kernel returns an error. On a part it does so by semihosting.
 */

#include <stdint.h>
#include <string.h>

#include "arm_nnfunctions.h"

enum kind { CONV, DEPTHWISE, AVERAGE_POOL, MAX_POOL, ADD, MUL, MAXIMUM, MINIMUM, SOFTMAX, ADD_INT16, MUL_INT16 };

/* distance: of the input from the output, in bytes; side: which of two inputs lies there. */
struct test_case {
    int32_t kind, n, h, w, c, filter_h, filter_w, filter_c, out_h, out_w, out_c;
    int32_t stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, distance, side, seed;
};

#define LARGEST 40960 /* bytes of a tensor */
#define CHANNELS 512

/* As aligned as the arena of TFLM. */
#define ALIGNED __attribute__((aligned(16)))

static ALIGNED int8_t arena[3 * LARGEST];
static ALIGNED int8_t first[LARGEST], second[LARGEST], expected[LARGEST];
static ALIGNED int8_t filter[2 * LARGEST];
static int32_t bias[CHANNELS], multipliers[CHANNELS], shifts[CHANNELS];
static int32_t scratch[24576];
static int8_t results[16384];
static uint32_t state;

static uint32_t next_random(void)
{
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

static void fill(int8_t *bytes, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        bytes[i] = (int8_t)next_random();
    }
}

static int scale_shift(int32_t products)
{
    int shift = -6;
    while (products > 1) {
        products /= 4;
        shift--;
    }
    return shift;
}

static int run(const struct test_case *t, const int8_t *x, const int8_t *other, int8_t *y)
{
    const cmsis_nn_dims in = {t->n, t->h, t->w, t->c}, out = {t->n, t->out_h, t->out_w, t->out_c};
    const cmsis_nn_tile stride = {t->stride_w, t->stride_h}, pad = {t->pad_w, t->pad_h};
    const cmsis_nn_tile dilation = {t->dilation_w, t->dilation_h};
    const cmsis_nn_activation range = {-128, 127};
    const cmsis_nn_per_channel_quant_params quant = {multipliers, shifts};
    const cmsis_nn_dims bias_dims = {1, 1, 1, t->out_c};
    const int32_t count = t->n * t->h * t->w * t->c;
    cmsis_nn_context ctx = {scratch, sizeof scratch};
    switch (t->kind) {
    case CONV: {
        const cmsis_nn_dims weights = {t->out_c, t->filter_h, t->filter_w, t->filter_c};
        const cmsis_nn_conv_params params = {3, -2, stride, pad, dilation, range};
        return arm_convolve_wrapper_s8(&ctx, &params, &quant, &in, x, &weights, filter, &bias_dims, bias, &out, y);
    }
    case DEPTHWISE: {
        const cmsis_nn_dims weights = {1, t->filter_h, t->filter_w, t->out_c};
        const cmsis_nn_dw_conv_params params = {3, -2, t->out_c / t->c, stride, pad, dilation, range};
        return arm_depthwise_conv_wrapper_s8(&ctx, &params, &quant, &in, x, &weights, filter, &bias_dims, bias, &out, y);
    }
    case AVERAGE_POOL:
    case MAX_POOL: {
        const cmsis_nn_dims window = {1, t->filter_h, t->filter_w, 1};
        const cmsis_nn_pool_params params = {stride, pad, range};
        return t->kind == MAX_POOL ? arm_max_pool_s8(&ctx, &params, &in, x, &window, &out, y)
                                   : arm_avgpool_s8(&ctx, &params, &in, x, &window, &out, y);
    }
    case ADD:
        return t->side
            ? arm_elementwise_add_s8(other, x, 3, 1 << 30, 0, 5, 1 << 30, 0, 20, y, 1, 1 << 30, -19, -128, 127, count)
            : arm_elementwise_add_s8(x, other, 3, 1 << 30, 0, 5, 1 << 30, 0, 20, y, 1, 1 << 30, -19, -128, 127, count);
    case MUL:
        return t->side ? arm_elementwise_mul_s8(other, x, 3, 5, y, 1, 1 << 30, -5, -128, 127, count)
                       : arm_elementwise_mul_s8(x, other, 3, 5, y, 1, 1 << 30, -5, -128, 127, count);
#ifdef HAS_MAXIMUM
    case MAXIMUM:
        return t->side ? arm_maximum_s8(&ctx, other, &in, x, &in, y, &in) : arm_maximum_s8(&ctx, x, &in, other, &in, y, &in);
    case MINIMUM:
        return t->side ? arm_minimum_s8(&ctx, other, &in, x, &in, y, &in) : arm_minimum_s8(&ctx, x, &in, other, &in, y, &in);
#endif
    case ADD_INT16: {
        const int16_t *x1 = (const int16_t *)(t->side ? other : x), *x2 = (const int16_t *)(t->side ? x : other);
        int16_t *sum = (int16_t *)y;
        return arm_elementwise_add_s16(
            x1, x2, 0, 1 << 30, 0, 0, 1 << 30, 0, 12, sum, 0, 1 << 30, -11, -32768, 32767, count);
    }
    case MUL_INT16: {
        const int16_t *x1 = (const int16_t *)(t->side ? other : x), *x2 = (const int16_t *)(t->side ? x : other);
        return arm_elementwise_mul_s16(x1, x2, 0, 0, (int16_t *)y, 0, 1 << 30, -14, -32768, 32767, count);
    }
    default:
        arm_softmax_s8(x, t->n * t->h * t->w, t->c, 1 << 30, 24, -248, y);
        return 0;
    }
}

static char result(const struct test_case *t)
{
    const int32_t size = t->kind == ADD_INT16 || t->kind == MUL_INT16 ? 2 : 1;
    const int32_t in = size * t->n * t->h * t->w * t->c, out = size * t->n * t->out_h * t->out_w * t->out_c;
    int8_t *y = arena + LARGEST, *x = y + t->distance;
    state = (uint32_t)t->seed;
    if (in > LARGEST || out > LARGEST || t->distance < -LARGEST || t->distance > LARGEST || t->out_c > CHANNELS) {
        return 'e';
    }
    fill(first, in);
    fill(second, in);
    fill(filter, t->out_c * t->filter_h * t->filter_w * t->filter_c);
    for (int32_t i = 0; i < t->out_c; i++) {
        bias[i] = (int32_t)(next_random() % 2001) - 1000;
        multipliers[i] = (1 << 30) + (int32_t)(next_random() << 4);
        shifts[i] = scale_shift(t->filter_h * t->filter_w * t->filter_c);
    }
    memset(expected, 0, sizeof expected);
    if (run(t, first, second, expected) != 0) {
        return 'e';
    }
    memset(arena, 0, sizeof arena);
    memcpy(x, first, (size_t)in);
    if (run(t, x, second, y) != 0) {
        return 'e';
    }
    return memcmp(y, expected, (size_t)out) == 0 ? 's' : 'd';
}

#ifdef __arm__

enum { SYS_OPEN = 1, SYS_CLOSE = 2, SYS_WRITE = 5, SYS_READ = 6, SYS_EXIT = 0x18 };

static int semihosting(int operation, const void *block)
{
    register int r0 __asm("r0") = operation;
    register const void *r1 __asm("r1") = block;
    __asm volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

static int open_file(const char *name, int mode)
{
    const uintptr_t block[] = {(uintptr_t)name, (uintptr_t)mode, strlen(name)};
    return semihosting(SYS_OPEN, block);
}

static int transfer(int operation, int file, void *bytes, uint32_t count)
{
    const uintptr_t block[] = {(uintptr_t)file, (uintptr_t)bytes, count};
    return semihosting(operation, block) == 0;
}

static void close_file(int file)
{
    const uintptr_t block[] = {(uintptr_t)file};
    semihosting(SYS_CLOSE, block);
}

#define READ_BINARY 1
#define WRITE_BINARY 5
#define read_file(file, bytes, count) transfer(SYS_READ, file, bytes, count)
#define write_file(file, bytes, count) transfer(SYS_WRITE, file, bytes, count)

#else

#include <stdio.h>

static FILE *open_file(const char *name, const char *mode) { return fopen(name, mode); }
static int read_file(FILE *file, void *bytes, uint32_t count) { return fread(bytes, count, 1, file) == 1; }
static int write_file(FILE *file, void *bytes, uint32_t count) { return fwrite(bytes, count, 1, file) == 1; }
static void close_file(FILE *file) { fclose(file); }

#define READ_BINARY "rb"
#define WRITE_BINARY "wb"

#endif

int main(void)
{
    struct test_case next;
    uint32_t count = 0;
    __auto_type cases = open_file("cases.bin", READ_BINARY);
    while (count < sizeof results && read_file(cases, &next, sizeof next)) {
        results[count++] = (int8_t)result(&next);
    }
    __auto_type answers = open_file("results.bin", WRITE_BINARY);
    const int written = write_file(answers, results, count);
    close_file(answers);
    return !written;
}

#ifdef __arm__

extern uint32_t stack_top;

void reset(void)
{
    *(volatile uint32_t *)0xE000ED88 |= 0xF << 20; /* CPACR: the floating-point unit and Helium */
    __asm volatile("dsb\n isb");
    main();
    semihosting(SYS_EXIT, (const void *)0x20026);
}

static void fault(void)
{
    semihosting(SYS_EXIT, (const void *)0x20023);
}

__attribute__((section(".vectors"), used)) static const void *const vectors[] = {
    &stack_top, reset, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault,
};

#endif
