// What generated code uses of FreeRTOS.
#include <stdint.h>

typedef uint32_t TickType_t;
typedef unsigned UBaseType_t;
#define portMAX_DELAY ((TickType_t)0xFFFFFFFFu)
#define pdMS_TO_TICKS(milliseconds) ((TickType_t)(milliseconds))
