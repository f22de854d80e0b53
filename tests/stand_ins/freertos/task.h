// What generated code uses of FreeRTOS.
typedef struct StandInTask* TaskHandle_t;
#ifdef __cplusplus
extern "C" {
#endif
void vTaskDelay(TickType_t ticks);
UBaseType_t uxTaskGetStackHighWaterMark(TaskHandle_t task);
#ifdef __cplusplus
}
#endif
