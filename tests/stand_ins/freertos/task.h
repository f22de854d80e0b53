// What generated code uses of FreeRTOS.
#ifdef __cplusplus
extern "C"
#endif
void vTaskDelay(TickType_t ticks);
