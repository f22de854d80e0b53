// What generated code uses of ST's headers; with a newer part's serial port if USART_SR_TXE is undefined.
#include <stdint.h>

typedef struct {
  volatile uint32_t MODER, AFR[2];
} GPIO_TypeDef;
typedef struct {
  volatile uint32_t CR1, SR, DR, ISR, ICR, RDR, TDR;
} USART_TypeDef;
extern GPIO_TypeDef* GPIOA;
extern USART_TypeDef* USART2;
typedef struct {
  volatile uint32_t DEMCR;
} CoreDebug_Type;
typedef struct {
  volatile uint32_t CTRL, CYCCNT;
} DWT_Type;
extern CoreDebug_Type* CoreDebug;
extern DWT_Type* DWT;
extern uint32_t SystemCoreClock;
#define CoreDebug_DEMCR_TRCENA_Msk (1u << 24)
#define DWT_CTRL_CYCCNTENA_Msk 1u
#define USART_CR1_RE (1u << 2)
