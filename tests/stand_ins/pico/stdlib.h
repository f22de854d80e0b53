// What generated code uses of the Pico SDK.
#ifndef STAND_IN_PICO_STDLIB_H_
#define STAND_IN_PICO_STDLIB_H_

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
bool stdio_init_all(void);
bool stdio_usb_connected(void);
void sleep_ms(uint32_t milliseconds);
int getchar_timeout_us(uint32_t microseconds);
int putchar_raw(int byte);
void stdio_flush(void);
#ifdef __cplusplus
}
#endif

#endif  // STAND_IN_PICO_STDLIB_H_
