// What generated code uses of Zephyr.
#ifdef __cplusplus
extern "C" {
#endif
int uart_poll_in(const struct device* port, unsigned char* byte);
void uart_poll_out(const struct device* port, unsigned char byte);
#ifdef __cplusplus
}
#endif
