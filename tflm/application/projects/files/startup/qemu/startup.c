// @origin
// Starts the program, and prints through semihosting: to QEMU or a debugger.
#include <stdint.h>
#include <string.h>

enum { WRITE = 0x04, EXIT = 0x18, DONE = 0x20026, FAILED = 0x20023 };

extern uint32_t _estack[], _sdata[], _edata[], _sidata[], _sbss[], _ebss[];
extern void (*__init_array_start[])(void), (*__init_array_end[])(void);

int main(void);

void* __dso_handle;

static void semihost(uintptr_t operation, uintptr_t argument) {
  register uintptr_t r0 __asm__("r0") = operation;
  register uintptr_t r1 __asm__("r1") = argument;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
}

void Print(const char* text) { semihost(WRITE, (uintptr_t)text); }

void Reset_Handler(void) {
  *(volatile uint32_t*)0xE000ED88 |= 0xF << 20;  // switches the floating-point unit on, and Helium
  __asm__ volatile("dsb\n isb");
  memcpy(_sdata, _sidata, (char*)_edata - (char*)_sdata);
  memset(_sbss, 0, (char*)_ebss - (char*)_sbss);
  for (void (**each)(void) = __init_array_start; each < __init_array_end; ++each) (*each)();
  semihost(EXIT, main() ? FAILED : DONE);
  for (;;) {
  }
}

static void halt(void) { semihost(EXIT, FAILED); }

__attribute__((section(".isr_vector"), used)) void (*const vectors[16])(void) = {
    (void (*)(void))_estack, Reset_Handler, [2 ... 15] = halt};
