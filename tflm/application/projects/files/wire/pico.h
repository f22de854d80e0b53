/* USB, or the serial port that the SDK's standard input and output are. */
#include "pico/stdlib.h"
#include "pico/time.h"

#define WIRE_TICKS_PER_SECOND 1000000u

#ifdef __cplusplus
extern "C"
#endif
void *_sbrk(int bytes);
extern char __StackBottom, __HeapLimit;
#define WIRE_STACK_LOW &__StackBottom
#define WIRE_HEAP_FREE ((uint32_t)(&__HeapLimit - (char *)_sbrk(0)))

static int WireRead(void) {
  const int byte = getchar_timeout_us(10000);
  return byte < 0 ? -1 : byte;
}

static void WireWrite(const uint8_t *bytes, uint32_t count) {
  for (; count; --count) {
    putchar_raw(*bytes++);
  }
  stdio_flush();
}

static uint32_t WireTicks(void) { return time_us_32(); }
