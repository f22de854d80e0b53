// What generated code uses of ESP-IDF.
#include <stdint.h>

#ifdef __cplusplus
extern "C"
#endif
uint32_t esp_cpu_get_cycle_count(void);
