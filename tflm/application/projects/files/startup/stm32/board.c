// @origin
// The clock (@mhz MHz), the serial port and a pause of @board.
#include "console.h"

#include "stm32@{series}xx.h"

#if defined(STM32F4) || defined(STM32F7) || defined(STM32L4)
enum { @clock };

// Waits until the bits of a register are set, but not forever: an emulator has no oscillators.
static int is_set(const volatile uint32_t *where, uint32_t bits) {
  for (long i = 0; i < 100000; ++i) {
    if ((*where & bits) == bits) return 1;
  }
  return 0;
}
#endif

// From the internal oscillator, through the PLL.
static void start_clock(void) {
#if defined(STM32F4) || defined(STM32F7)
  RCC->CR |= RCC_CR_HSION;
  RCC->PLLCFGR = M | N << RCC_PLLCFGR_PLLN_Pos | (P / 2 - 1) << RCC_PLLCFGR_PLLP_Pos | 7 << RCC_PLLCFGR_PLLQ_Pos;
  RCC->CR |= RCC_CR_PLLON;
  if (!is_set(&RCC->CR, RCC_CR_HSIRDY | RCC_CR_PLLRDY)) return;
  FLASH->ACR = LATENCY;
  RCC->CFGR = RCC_CFGR_PPRE1_DIV4 | RCC_CFGR_PPRE2_DIV2;
  RCC->CFGR |= RCC_CFGR_SW_PLL;
  is_set(&RCC->CFGR, RCC_CFGR_SWS_PLL);
#elif defined(STM32L4)
  RCC->CR |= RCC_CR_HSION;
  if (!is_set(&RCC->CR, RCC_CR_HSIRDY)) return;
  RCC->PLLCFGR = RCC_PLLCFGR_PLLSRC_HSI | (M - 1) << RCC_PLLCFGR_PLLM_Pos | N << RCC_PLLCFGR_PLLN_Pos |
                 (P / 2 - 1) << RCC_PLLCFGR_PLLR_Pos | RCC_PLLCFGR_PLLREN;
  RCC->CR |= RCC_CR_PLLON;
  if (!is_set(&RCC->CR, RCC_CR_PLLRDY)) return;
  FLASH->ACR |= LATENCY;
  RCC->CFGR |= RCC_CFGR_SW_PLL;
  is_set(&RCC->CFGR, RCC_CFGR_SWS_PLL);
#elif defined(STM32H7)
  RCC->AHB2ENR |= 7u << RCC_AHB2ENR_D2SRAM1EN_Pos;  // D2 SRAM
#endif
  SystemCoreClockUpdate();
}

#if defined(STM32L4)
#define GPIO_CLOCK RCC->AHB2ENR
#define USART2_CLOCK RCC->APB1ENR1
#elif defined(STM32H7)
#define GPIO_CLOCK RCC->AHB4ENR
#define USART2_CLOCK RCC->APB1LENR
#else
#define GPIO_CLOCK RCC->AHB1ENR
#define USART2_CLOCK RCC->APB1ENR
#endif
#define USART1_CLOCK RCC->APB2ENR
#define USART3_CLOCK USART2_CLOCK

// Of the bus of a serial port: the core's, divided.
static uint32_t serial_clock(void) {
#if defined(STM32H7)
  return SystemCoreClock;
#else
  const uint32_t divider = @uart == USART1 ? RCC->CFGR >> RCC_CFGR_PPRE2_Pos : RCC->CFGR >> RCC_CFGR_PPRE1_Pos;
  return SystemCoreClock >> APBPrescTable[divider & 7];
#endif
}

// @uart sends at P@port@pin, 115200 baud.
void StartConsole(void) {
  start_clock();
  GPIO_CLOCK |= 1u << ('@port' - 'A');
  @{uart}_CLOCK |= RCC_@{uart_bus}_@{uart}EN;
  (void)@{uart}_CLOCK;  // the port needs two cycles
  GPIO@port->AFR[@pin / 8] |= 7u << 4 * (@pin % 8);
  GPIO@port->MODER = (GPIO@port->MODER & ~(3u << 2 * @pin)) | 2u << 2 * @pin;
  @uart->BRR = serial_clock() / 115200;
  @uart->CR1 = USART_CR1_TE | USART_CR1_UE;
}

void Print(const char *text) {
  for (; *text; ++text) {
#ifdef USART_SR_TXE
    while (!(@uart->SR & USART_SR_TXE)) {
    }
    @uart->DR = (uint8_t)*text;
#else
    while (!(@uart->ISR & 1u << 7)) {  // the register of what is to be sent is empty
    }
    @uart->TDR = (uint8_t)*text;
#endif
  }
}

// For one second.
void Pause(void) {
  SysTick->LOAD = SystemCoreClock / 1000 - 1;
  SysTick->VAL = 0;
  SysTick->CTRL = SysTick_CTRL_CLKSOURCE_Msk | SysTick_CTRL_ENABLE_Msk;
  for (int i = 0; i < 1000; ++i) {
    while (!(SysTick->CTRL & SysTick_CTRL_COUNTFLAG_Msk)) {
    }
  }
}
