// What generated code uses of the Pico SDK.
#include <stdint.h>

#ifdef __cplusplus
extern "C"
#endif
uint32_t time_us_32(void);
