// What generated code uses of ESP-IDF.
#include <stddef.h>
#include <stdint.h>

typedef struct {
  uint32_t tx_buffer_size, rx_buffer_size;
} usb_serial_jtag_driver_config_t;
#define USB_SERIAL_JTAG_DRIVER_CONFIG_DEFAULT() {256, 256}
#ifdef __cplusplus
extern "C" {
#endif
int usb_serial_jtag_driver_install(usb_serial_jtag_driver_config_t* settings);
int usb_serial_jtag_read_bytes(void* bytes, uint32_t count, TickType_t ticks);
int usb_serial_jtag_write_bytes(const void* bytes, size_t count, TickType_t ticks);
#ifdef __cplusplus
}
#endif
