/* The serial port of the console: a UART, or USB. */
#include "esp_cpu.h"
#include "esp_heap_caps.h"
#include "freertos/FreeRTOS.h"
#include "freertos/task.h"
#include "sdkconfig.h"

#define WIRE_TICKS_PER_SECOND (CONFIG_ESP_DEFAULT_CPU_FREQ_MHZ * 1000000u)
#define WIRE_HEAP_FREE ((uint32_t)heap_caps_get_free_size(MALLOC_CAP_8BIT))
#define WIRE_STACK_USED ((uint32_t)CONFIG_ESP_MAIN_TASK_STACK_SIZE - (uint32_t)uxTaskGetStackHighWaterMark(NULL))

#ifdef CONFIG_ESP_CONSOLE_USB_SERIAL_JTAG
#include "driver/usb_serial_jtag.h"

static void WireOpen(void) {
  usb_serial_jtag_driver_config_t buffers = USB_SERIAL_JTAG_DRIVER_CONFIG_DEFAULT();
  usb_serial_jtag_driver_install(&buffers);
}
#define WIRE_READ(byte) usb_serial_jtag_read_bytes(byte, 1, pdMS_TO_TICKS(10))
#define WIRE_WRITE(bytes, count) usb_serial_jtag_write_bytes(bytes, count, portMAX_DELAY)
#else
#include "driver/uart.h"

static void WireOpen(void) { uart_driver_install((uart_port_t)CONFIG_ESP_CONSOLE_UART_NUM, 1024, 1024, 0, NULL, 0); }
#define WIRE_READ(byte) uart_read_bytes((uart_port_t)CONFIG_ESP_CONSOLE_UART_NUM, byte, 1, pdMS_TO_TICKS(10))
#define WIRE_WRITE(bytes, count) uart_write_bytes((uart_port_t)CONFIG_ESP_CONSOLE_UART_NUM, bytes, count)
#endif

static int WireRead(void) {
  static int is_open;
  uint8_t byte;
  if (!is_open) {
    WireOpen();
    is_open = 1;
  }
  return WIRE_READ(&byte) == 1 ? byte : -1;
}

static void WireWrite(const uint8_t *bytes, uint32_t count) {
  while (count) {
    const int sent = WIRE_WRITE(bytes, count);
    bytes += sent > 0 ? sent : 0;
    count -= sent > 0 ? (uint32_t)sent : 0;
  }
}

static uint32_t WireTicks(void) { return (uint32_t)esp_cpu_get_cycle_count(); }
