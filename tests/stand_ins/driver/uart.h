// What generated code uses of ESP-IDF.
#include <stddef.h>
#include <stdint.h>

typedef enum { UART_NUM_0 } uart_port_t;
typedef struct StandInQueue* QueueHandle_t;
#ifdef __cplusplus
extern "C" {
#endif
int uart_driver_install(uart_port_t port, int receive, int send, int length, QueueHandle_t* queue, int flags);
int uart_read_bytes(uart_port_t port, void* bytes, uint32_t count, TickType_t ticks);
int uart_write_bytes(uart_port_t port, const void* bytes, size_t count);
#ifdef __cplusplus
}
#endif
