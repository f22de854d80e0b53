#include "freertos/FreeRTOS.h"
#include "freertos/task.h"

static inline void Print(const char *text) { fputs(text, stdout); }

static inline void StartConsole(void) {}

static inline void Pause(void) { vTaskDelay(pdMS_TO_TICKS(1000)); }
