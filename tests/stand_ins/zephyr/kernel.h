// What generated code uses of Zephyr.
#define Z_GENERIC_SECTION(name) __attribute__((section(#name)))
