// What generated code uses of ESP-IDF.
#define EXT_RAM_BSS_ATTR __attribute__((section(".ext_ram.bss")))
