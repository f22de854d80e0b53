// What generated code uses of Zephyr.
#ifndef STAND_IN_ZEPHYR_KERNEL_H_
#define STAND_IN_ZEPHYR_KERNEL_H_

#include <stdint.h>

#define Z_GENERIC_SECTION(name) __attribute__((section(#name)))
#ifdef __cplusplus
extern "C"
#endif
int32_t k_msleep(int32_t milliseconds);

#endif  // STAND_IN_ZEPHYR_KERNEL_H_
