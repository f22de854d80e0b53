// What generated code uses of Zephyr.
#ifndef STAND_IN_ZEPHYR_KERNEL_H_
#define STAND_IN_ZEPHYR_KERNEL_H_

#include <stddef.h>
#include <stdint.h>

#define Z_GENERIC_SECTION(name) __attribute__((section(#name)))
struct k_thread {
  struct {
    size_t size;
  } stack_info;
};
typedef struct k_thread* k_tid_t;
#ifdef __cplusplus
extern "C" {
#endif
int32_t k_msleep(int32_t milliseconds);
uint32_t k_uptime_get_32(void);
uint32_t k_cycle_get_32(void);
int sys_clock_hw_cycles_per_sec(void);
k_tid_t k_current_get(void);
int k_thread_stack_space_get(const struct k_thread* thread, size_t* unused);
#ifdef __cplusplus
}
#endif

#endif  // STAND_IN_ZEPHYR_KERNEL_H_
