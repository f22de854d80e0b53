// What generated code uses of Zephyr.
struct device {
  const char* name;
};
static const struct device zephyr_console_device = {"console"};
#define DT_CHOSEN(name) name##_device
#define DEVICE_DT_GET(node) (&node)
