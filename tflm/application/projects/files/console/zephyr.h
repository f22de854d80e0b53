#include <zephyr/kernel.h>
#include <zephyr/sys/printk.h>

static inline void Print(const char *text) { printk("%s", text); }

static inline void StartConsole(void) {}

static inline void Pause(void) { k_msleep(1000); }
