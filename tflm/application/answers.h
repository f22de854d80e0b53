// $origin
#ifndef ${guard}_CONSOLE_H_
#define ${guard}_CONSOLE_H_

#include <stdarg.h>
#include <stdio.h>

$console

#ifndef Say
/* Prints a line. */
__attribute__((format(printf, 1, 2))) static inline void Say(const char *format, ...) {
  char line[160];
  va_list values;
  va_start(values, format);
  vsnprintf(line, sizeof(line), format, values);
  va_end(values);
  Print(line);
  Print("\n");
}
#endif

/* A real number in parts, to print it without the floating point of printf. */
typedef struct {
  const char *sign;
  long whole;
  long millionths;
} Decimal;

#define DECIMAL "%s%ld.%06ld"

static inline Decimal ToDecimal(float value) {
  Decimal decimal = {value < 0 ? "-" : "", 0, 0};
  const float size = value < 0 ? -value : value;
  if (size >= 0 && size < 2e9f) {
    decimal.whole = (long)size;
    decimal.millionths = (long)((size - (float)decimal.whole) * 1e6f + 0.5f);
    decimal.whole += decimal.millionths / 1000000;
    decimal.millionths %= 1000000;
  } else {
    decimal.sign = size > 0 ? (value < 0 ? "less than -" : "more than ") : "not a number: ";
    decimal.whole = size > 0 ? 2000000000 : 0;
  }
  return decimal;
}

/* An element that stands for itself. */
static inline void SayInteger(int output, int element, long value) {
  Say("output %d[%d]: %ld", output, element, value);
}

/* An element that stands for a real number. */
static inline void SayQuantized(int output, int element, long value, float real) {
  const Decimal decimal = ToDecimal(real);
  Say("output %d[%d]: %ld stands for " DECIMAL, output, element, value, decimal.sign, decimal.whole,
      decimal.millionths);
}

static inline void SayReal(int output, int element, float value) {
  const Decimal decimal = ToDecimal(value);
  Say("output %d[%d]: " DECIMAL, output, element, decimal.sign, decimal.whole, decimal.millionths);
}

/* The largest element: the label that a classifier chooses, and its score. */
static inline void SayLargest(int output, int element, float real) {
  const Decimal decimal = ToDecimal(real);
  Say("output %d: largest is element %d, " DECIMAL, output, element, decimal.sign, decimal.whole, decimal.millionths);
}

#endif
