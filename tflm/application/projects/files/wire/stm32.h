/* @uart, which receives at the pin after the one that sends, P@port@pin; and the cycle counter. */
#include "stm32@{series}xx.h"

#define WIRE_TICKS_PER_SECOND SystemCoreClock

extern uint32_t end[]; /* of all variables: the stack ends there */
#define WIRE_STACK_LOW end

enum { HAS_BYTE = 1u << 5, IS_EMPTY = 1u << 7, HAS_ERROR = 15, RECEIVES = @pin + 1 };

#ifdef USART_SR_TXE
#define WIRE_STATUS @uart->SR
#define WIRE_INPUT @uart->DR
#define WIRE_OUTPUT @uart->DR
#else
#define WIRE_STATUS @uart->ISR
#define WIRE_INPUT @uart->RDR
#define WIRE_OUTPUT @uart->TDR
#endif

static void WireOpen(void) {
  GPIO@port->AFR[RECEIVES / 8] |= 7u << 4 * (RECEIVES % 8);
  GPIO@port->MODER = (GPIO@port->MODER & ~(3u << 2 * RECEIVES)) | 2u << 2 * RECEIVES;
  @uart->CR1 |= USART_CR1_RE;
  CoreDebug->DEMCR |= CoreDebug_DEMCR_TRCENA_Msk;
  DWT->CTRL |= DWT_CTRL_CYCCNTENA_Msk;
}

static int WireRead(void) {
  uint32_t i;
  if (!(@uart->CR1 & USART_CR1_RE)) {
    WireOpen();
  }
  for (i = 0; i < SystemCoreClock / 1024; ++i) {
    if (WIRE_STATUS & HAS_BYTE) {
      return (int)(WIRE_INPUT & 255);
    }
#ifndef USART_SR_TXE
    @uart->ICR = HAS_ERROR; /* an overrun stops reception */
#endif
  }
  return -1;
}

static void WireWrite(const uint8_t *bytes, uint32_t count) {
  for (; count; --count) {
    while (!(WIRE_STATUS & IS_EMPTY)) {
    }
    WIRE_OUTPUT = *bytes++;
  }
}

static uint32_t WireTicks(void) { return DWT->CYCCNT; }
