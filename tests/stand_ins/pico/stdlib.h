// What generated code uses of the Pico SDK.
#ifndef STAND_IN_PICO_STDLIB_H_
#define STAND_IN_PICO_STDLIB_H_

#include <stdbool.h>

bool stdio_init_all(void);

#endif  // STAND_IN_PICO_STDLIB_H_
