#include "pico/stdlib.h"

static inline void Print(const char *text) { printf("%s", text); }

/* Waits until a computer has opened the serial port of the board. */
static inline void StartConsole(void) {
  stdio_init_all();
  while (!stdio_usb_connected()) {
    sleep_ms(100);
  }
}

static inline void Pause(void) { sleep_ms(1000); }
