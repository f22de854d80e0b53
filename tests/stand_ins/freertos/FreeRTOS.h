// What generated code uses of FreeRTOS.
#include <stdint.h>

typedef uint32_t TickType_t;
#define pdMS_TO_TICKS(milliseconds) ((TickType_t)(milliseconds))
