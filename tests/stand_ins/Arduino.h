// What generated code uses of Arduino.
#ifndef STAND_IN_ARDUINO_H_
#define STAND_IN_ARDUINO_H_

#include <stddef.h>
#include <stdint.h>

struct SerialPort {
  void begin(int rate);
  void print(const char* text);
  int available();
  int read();
  size_t write(const uint8_t* bytes, size_t count);
  explicit operator bool() const;
};
extern SerialPort Serial;
void delay(unsigned long milliseconds);
unsigned long millis();
unsigned long micros();

#endif  // STAND_IN_ARDUINO_H_
