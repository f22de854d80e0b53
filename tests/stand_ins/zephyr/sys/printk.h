// What generated code uses of Zephyr.
#ifdef __cplusplus
extern "C"
#endif
void printk(const char* format, ...);
