// @origin
// Starts the program, and prints through semihosting: to QEMU or a debugger.
#include <stdint.h>
#include <string.h>

enum { WRITE = 0x04, EXIT = 0x18, DONE = 0x20026, FAILED = 0x20023 };

extern uint32_t stack_end[], data_start[], data_end[], data_load[], bss_start[], bss_end[];
extern void (*init_array_start[])(void), (*init_array_end[])(void);

int main(void);
void RegisterDebugLogCallback(void (*print)(const char* text)); /* of TFLM */

void* __dso_handle;

static void semihost(uintptr_t operation, uintptr_t argument) {
  register uintptr_t r0 __asm__("r0") = operation;
  register uintptr_t r1 __asm__("r1") = argument;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
}

static void print(const char* text) { semihost(WRITE, (uintptr_t)text); }

void reset(void) {
  *(volatile uint32_t*)0xE000ED88 |= 0xF << 20;  // switches the floating-point unit on, and Helium
  __asm__ volatile("dsb\n isb");
  memcpy(data_start, data_load, (char*)data_end - (char*)data_start);
  memset(bss_start, 0, (char*)bss_end - (char*)bss_start);
  for (void (**each)(void) = init_array_start; each < init_array_end; ++each) (*each)();
  RegisterDebugLogCallback(print);
  semihost(EXIT, main() ? FAILED : DONE);
  for (;;) {
  }
}

static void halt(void) { semihost(EXIT, FAILED); }

__attribute__((section(".vectors"), used)) void (*const vectors[16])(void) = {
    (void (*)(void))stack_end, reset, [2 ... 15] = halt};
