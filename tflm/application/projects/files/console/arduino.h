#include <Arduino.h>

static inline void Print(const char *text) { Serial.print(text); }

/* Waits until a computer has opened the serial port of the board, but at most five seconds. */
static inline void StartConsole(void) {
  Serial.begin(115200);
  for (int i = 0; i < 50 && !Serial; ++i) {
    delay(100);
  }
}

static inline void Pause(void) { delay(1000); }
