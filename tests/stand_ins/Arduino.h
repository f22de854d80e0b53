// What generated code uses of Arduino.
#ifndef STAND_IN_ARDUINO_H_
#define STAND_IN_ARDUINO_H_

struct SerialPort {
  void begin(int rate);
  void print(const char* text);
  explicit operator bool() const;
};
extern SerialPort Serial;
void delay(unsigned long milliseconds);

#endif  // STAND_IN_ARDUINO_H_
