// What generated code uses of Zephyr.
#define __dtcm_bss_section __attribute__((section(".dtcm_bss")))
