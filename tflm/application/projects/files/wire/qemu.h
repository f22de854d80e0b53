/* The first serial port of QEMU's @machine, and its counter. */
#define WIRE_TICKS_PER_SECOND 20000000u

extern uint32_t end[]; /* of all variables: the stack ends there */
#define WIRE_STACK_LOW end

enum { DATA, STATE, CONTROL, DIVIDER = 4, IS_FULL = 1, HAS_BYTE = 2, ENABLED = 3, COUNTER = 6 };

static volatile uint32_t *const kPort = (volatile uint32_t *)@{port_address};
static volatile uint32_t *const kCounters = (volatile uint32_t *)@{counter_address};

static int WireRead(void) {
  long i;
  kPort[DIVIDER] = 16;
  kPort[CONTROL] = ENABLED;
  for (i = 0; i < 200000; ++i) {
    if (kPort[STATE] & HAS_BYTE) {
      return (int)(kPort[DATA] & 255);
    }
  }
  return -1;
}

static void WireWrite(const uint8_t *bytes, uint32_t count) {
  for (; count; --count) {
    while (kPort[STATE] & IS_FULL) {
    }
    kPort[DATA] = *bytes++;
  }
}

static uint32_t WireTicks(void) { return kCounters[COUNTER]; }
