/* The serial port of the console. */
#include <zephyr/device.h>
#include <zephyr/drivers/uart.h>
#include <zephyr/kernel.h>

#define WIRE_TICKS_PER_SECOND ((uint32_t)sys_clock_hw_cycles_per_sec())

static const struct device *const kPort = DEVICE_DT_GET(DT_CHOSEN(zephyr_console));

static int WireRead(void) {
  unsigned char byte;
  const uint32_t began = k_uptime_get_32();
  while (uart_poll_in(kPort, &byte) < 0) {
    if (k_uptime_get_32() - began > 10) {
      return -1;
    }
  }
  return byte;
}

static void WireWrite(const uint8_t *bytes, uint32_t count) {
  for (; count; --count) {
    uart_poll_out(kPort, *bytes++);
  }
}

static uint32_t WireTicks(void) { return k_cycle_get_32(); }

#if defined(CONFIG_THREAD_STACK_INFO) && defined(CONFIG_INIT_STACKS)
static uint32_t StackOfThread(void) {
  size_t unused = 0;
  const struct k_thread *thread = k_current_get();
  return k_thread_stack_space_get(thread, &unused) ? NOT_OBSERVED : (uint32_t)(thread->stack_info.size - unused);
}
#define WIRE_STACK_USED StackOfThread()
#endif
