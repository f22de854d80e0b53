/* The serial port of the sketch. */
#include <Arduino.h>

#define WIRE_TICKS_PER_SECOND 1000000u

static int WireRead(void) {
  const unsigned long began = millis();
  while (!Serial.available()) {
    if (millis() - began > 10) {
      return -1;
    }
  }
  return Serial.read();
}

static void WireWrite(const uint8_t *bytes, uint32_t count) { Serial.write(bytes, count); }

static uint32_t WireTicks(void) { return (uint32_t)micros(); }
