/* $origin */
/* Answers the requests of `tflm device`. Whoever can write to the wire can run the model and read its tensors, so this
   is for tests and not for products. Nothing that is sent is ever executed. */
#ifndef ${guard}_SERVE_H_
#define ${guard}_SERVE_H_

#include <stdint.h>
#include <string.h>

#define NOT_OBSERVED 0xFFFFFFFFu

/* The wire: WireRead returns the next byte, or -1 if none came for about 10 ms; WireWrite sends bytes; WireTicks reads
   a clock of WIRE_TICKS_PER_SECOND. To use another wire, write these for it. */
#include "wire.h"

/* What an operator of the first subgraph did in the last invoke. */
typedef struct {
  uint32_t ticks;    /* how long it ran; NOT_OBSERVED if it was not seen */
  uint32_t checksum; /* CRC-32 of its outputs, one after the other */
} ServedOperator;

enum { SERVED_TENSOR, SERVED_INPUT, SERVED_OUTPUT, SERVED_OPERATORS, SERVED_MODEL };

/* The model, which the main source defines. */
static ServedOperator served_operators[SERVED_OPERATOR_COUNT];
/* Returns the address of a tensor of the first subgraph, an input, an output or the model, and sets its size; null if
   there is none. */
static uint8_t *ServedBytes(uint32_t what, uint32_t index, uint32_t *bytes);
/* Runs the model; returns 0 unless it fails. It calls BeginOperator and EndOperator around each operator. If
   EndOperator returns 0, it passes the outputs to ServeOutput, and calls NextOperator. */
static int ServedInvoke(void);
/* Sets the state that lasts over invokes to what it is before the first one. */
static void ServedReset(void);
/* Bytes of the arena in use; 0 if the model can't be prepared. */
static uint32_t ServedArena(void);
/* CRC-32 of the model's file. */
static uint32_t ServedModelChecksum(void);

/* The most bytes of a request's payload. */
#ifndef SERVE_PAYLOAD
#define SERVE_PAYLOAD 256
#endif

/* The lowest address of the stack that may be painted, to see how much of it is used; 0 if that is not known. */
#ifndef WIRE_STACK_LOW
#define WIRE_STACK_LOW 0
#endif

/* Bytes of free heap, and of stack used; NOT_OBSERVED if that is not known. */
#ifndef WIRE_HEAP_FREE
#define WIRE_HEAP_FREE NOT_OBSERVED
#endif
#ifndef WIRE_STACK_USED
#define SERVE_USES_PAINT
#define WIRE_STACK_USED ServeStackUsed()
#endif

enum {
  SERVE_HELLO = 1,
  SERVE_FACTS,
  SERVE_WRITE,
  SERVE_INVOKE,
  SERVE_RESUME,
  SERVE_READ,
  SERVE_CHECKSUM,
  SERVE_RESET,
  SERVE_ANNOUNCE,
  SERVE_REPLY = 0x80
};
enum { SERVE_DONE, SERVE_PAUSED, SERVE_FAILED, SERVE_UNKNOWN_SESSION, SERVE_OUT_OF_RANGE, SERVE_NOT_NOW };
enum { SERVE_BEGIN_0 = 0xF5, SERVE_BEGIN_1 = 0xD7, SERVE_HEAD = 13, SERVE_CHECK = 4, SERVE_VERSION = 1 };
enum { SERVE_PAINT = 0xA7, SERVE_EDGE = 16 }; /* what unused stack holds, and how many bytes of it must stay */
enum { SERVE_ANNOUNCES = 1 };
enum { SERVE_PATIENCE = 25 }; /* quiet reads of the wire until the rest of a frame is given up; a computer waits longer */

static struct {
  uint8_t frame[SERVE_HEAD + SERVE_PAYLOAD + SERVE_CHECK];
  uint32_t count;     /* bytes in it */
  uint32_t taken;     /* bytes at its begin that were a request */
  uint32_t session;   /* 0 after a reset: no computer chooses that */
  uint32_t last;      /* number of the last request that was carried out */
  uint32_t result[3]; /* of the last invoke: status, place, and 1 + the first operator that used up the stack */
  uint32_t flags;
  uint32_t stop;      /* the first place to pause: 2 * operator before it, 2 * operator + 1 after it */
  uint32_t next;      /* the operator that is running, or is next */
  uint32_t depth;     /* of operators that run operators */
  uint32_t began;
  uint8_t running, paused, leaving, quiet;
  uint8_t *low, *top; /* of the stack */
} serving;

/* --- Frames -------------------------------------------------------------------------------------------------- */

static uint32_t ServeChecksum(uint32_t checksum, const void *data, uint32_t bytes) {
  static const uint32_t kHalves[16] = {0x00000000, 0x1DB71064, 0x3B6E20C8, 0x26D930AC, 0x76DC4190, 0x6B6B51F4,
                                       0x4DB26158, 0x5005713C, 0xEDB88320, 0xF00F9344, 0xD6D6A3E8, 0xCB61B38C,
                                       0x9B64C2B0, 0x86D3D2D4, 0xA00AE278, 0xBDBDF21C};
  const uint8_t *p = (const uint8_t *)data;
  checksum = ~checksum;
  for (; bytes; --bytes) {
    checksum ^= *p++;
    checksum = kHalves[checksum & 15] ^ checksum >> 4;
    checksum = kHalves[checksum & 15] ^ checksum >> 4;
  }
  return ~checksum;
}

static uint32_t ServeGet(const uint8_t *p) { return p[0] | p[1] << 8 | p[2] << 16 | (uint32_t)p[3] << 24; }

static void ServePut(uint8_t *p, uint32_t value) {
  int i;
  for (i = 0; i < 4; ++i) {
    p[i] = (uint8_t)(value >> 8 * i);
  }
}

/* Sends a reply: its first byte, and the rest. */
static void ServeSend(uint32_t kind, const uint8_t *first, uint32_t firsts, const uint8_t *rest, uint32_t rests) {
  uint8_t head[SERVE_HEAD], check[SERVE_CHECK];
  uint32_t checksum;
  const uint32_t length = firsts + rests;
  head[0] = SERVE_BEGIN_0;
  head[1] = SERVE_BEGIN_1;
  head[2] = (uint8_t)length;
  head[3] = (uint8_t)(length >> 8);
  head[4] = (uint8_t)(kind | SERVE_REPLY);
  memcpy(head + 5, serving.frame + 5, 8);
  checksum = ServeChecksum(0, head + 2, SERVE_HEAD - 2);
  checksum = ServeChecksum(checksum, first, firsts);
  ServePut(check, ServeChecksum(checksum, rest, rests));
  WireWrite(head, SERVE_HEAD);
  WireWrite(first, firsts);
  if (rests) {
    WireWrite(rest, rests);
  }
  WireWrite(check, SERVE_CHECK);
}

static void ServeReply(uint8_t status) { ServeSend(serving.frame[4], &status, 1, 0, 0); }

/* Drops bytes, and all that follow up to what may be the begin of a frame. */
static void ServeDrop(uint32_t first) {
  const uint8_t *frame = serving.frame;
  for (; first < serving.count; ++first) {
    const int is_last = first + 1 == serving.count;
    if (frame[first] == SERVE_BEGIN_0 && (is_last || frame[first + 1] == SERVE_BEGIN_1)) {
      break;
    }
  }
  if (first) {
    serving.count -= first;
    memmove(serving.frame, frame + first, serving.count);
  }
}

/* Returns 1 if a whole request is in serving.frame, 0 if bytes are missing. */
static int ServeHasRequest(void) {
  for (;;) {
    const uint8_t *frame = serving.frame;
    uint32_t length, end;
    ServeDrop(0);
    if (serving.count < 4) {
      return 0;
    }
    length = frame[2] | frame[3] << 8;
    end = SERVE_HEAD + length;
    if (length <= SERVE_PAYLOAD) {
      if (serving.count < end + SERVE_CHECK) {
        return 0;
      }
      if (ServeChecksum(0, frame + 2, end - 2) == ServeGet(frame + end) && !(frame[4] & SERVE_REPLY)) {
        serving.taken = end + SERVE_CHECK;
        return 1;
      }
    }
    ServeDrop(1);
  }
}

/* Waits for a request. */
static void ServeReceive(void) {
  ServeDrop(serving.taken);
  serving.taken = 0;
  while (!ServeHasRequest()) {
    const int byte = WireRead();
    if (byte >= 0) {
      serving.frame[serving.count++] = (uint8_t)byte;
      serving.quiet = 0;
    } else if (serving.count && ++serving.quiet == SERVE_PATIENCE) {
      ServeDrop(1);
      serving.quiet = 0;
    }
  }
}

/* --- The stack ------------------------------------------------------------------------------------------------- */

static void ServePaintStack(void) {
  volatile uint8_t here = 0;
  const uintptr_t top = (uintptr_t)&here;
  uintptr_t p = (uintptr_t)(WIRE_STACK_LOW);
  serving.low = (uint8_t *)p;
  serving.top = (uint8_t *)top;
  for (; serving.low && p + 256 < top; ++p) { /* what this function needs itself stays */
    *(volatile uint8_t *)p = SERVE_PAINT;
  }
}

#ifdef SERVE_USES_PAINT
static uint32_t ServeStackUsed(void) {
  const uint8_t *p = serving.low;
  while (p && p < serving.top && *p == SERVE_PAINT) {
    ++p;
  }
  return p ? (uint32_t)(serving.top - p) : NOT_OBSERVED;
}
#endif

static int ServeIsStackFull(void) {
  int i;
  for (i = 0; serving.low && i < SERVE_EDGE; ++i) {
    if (serving.low[i] != SERVE_PAINT) {
      return 1;
    }
  }
  return 0;
}

/* --- Requests -------------------------------------------------------------------------------------------------- */

static void ServeReplyResult(uint32_t kind) {
  uint8_t reply[9];
  reply[0] = (uint8_t)serving.result[0];
  ServePut(reply + 1, serving.result[1]);
  ServePut(reply + 5, serving.result[2]);
  ServeSend(kind, reply, sizeof(reply), 0, 0);
}

static void ServeSetResult(uint32_t status, uint32_t place) {
  serving.result[0] = status;
  serving.result[1] = place;
}

static void ServeInvoke(void) {
  uint32_t i;
  int failed;
  for (i = 0; i < SERVED_OPERATOR_COUNT; ++i) {
    served_operators[i].ticks = NOT_OBSERVED;
    served_operators[i].checksum = 0;
  }
  serving.next = serving.depth = 0;
  serving.running = 1;
  failed = ServedInvoke();
  serving.running = 0;
  ServeSetResult(failed ? SERVE_FAILED : SERVE_DONE, serving.next);
  if (!serving.leaving) {
    ServeReplyResult(serving.frame[4]);
  }
  serving.leaving = 0;
}

static void ServeReplyFacts(void) {
  uint32_t bytes = 0;
  const uint8_t *model = ServedBytes(SERVED_MODEL, 0, &bytes);
  const uint32_t facts[] = {model ? bytes : 0, ServedModelChecksum(), ServedArena(), WIRE_STACK_USED, WIRE_HEAP_FREE,
                            SERVED_OPERATOR_COUNT, WIRE_TICKS_PER_SECOND, serving.result[2]};
  enum { FACT_COUNT = sizeof(facts) / sizeof(facts[0]) };
  uint8_t reply[1 + 4 * FACT_COUNT];
  uint32_t i;
  reply[0] = SERVE_DONE;
  for (i = 0; i < FACT_COUNT; ++i) {
    ServePut(reply + 1 + 4 * i, facts[i]);
  }
  ServeSend(SERVE_FACTS, reply, sizeof(reply), (const uint8_t *)SERVED_DESCRIPTION, sizeof(SERVED_DESCRIPTION) - 1);
}

static uint8_t *ServeAddressOf(uint32_t what, uint32_t index, uint32_t *bytes) {
  if (what == SERVED_OPERATORS) {
    *bytes = sizeof(served_operators);
    return (uint8_t *)served_operators;
  }
  return ServedBytes(what, index, bytes);
}

/* Carries out WRITE, READ or CHECKSUM. */
static void ServeAccess(uint32_t kind, const uint8_t *request, uint32_t length) {
  uint8_t reply[5] = {SERVE_DONE};
  uint32_t bytes = 0, offset, count;
  uint8_t *data = length < 12 ? 0 : ServeAddressOf(ServeGet(request), ServeGet(request + 4), &bytes);
  if (!data) {
    ServeReply(SERVE_OUT_OF_RANGE);
    return;
  }
  offset = ServeGet(request + 8);
  count = kind == SERVE_WRITE ? length - 12 : kind == SERVE_CHECKSUM ? bytes : length < 16 ? 0 : ServeGet(request + 12);
  if (offset > bytes || count > bytes - offset || (kind == SERVE_WRITE && ServeGet(request) != SERVED_INPUT)) {
    ServeReply(SERVE_OUT_OF_RANGE);
  } else if (kind == SERVE_WRITE) {
    memcpy(data + offset, request + 12, count);
    ServeReply(SERVE_DONE);
  } else if (kind == SERVE_READ) {
    ServeSend(kind, reply, 1, data + offset, count);
  } else {
    ServePut(reply + 1, ServeChecksum(0, data, bytes));
    ServeSend(kind, reply, 5, 0, 0);
  }
}

static void ServeHello(uint32_t session) {
  uint8_t reply[9] = {SERVE_DONE};
  if (session != serving.session) {
    serving.leaving = serving.running; /* the invoke of another session ends first */
    serving.session = session;
    serving.last = 0;
  }
  if (!serving.leaving) {
    ServePut(reply + 1, SERVE_VERSION);
    ServePut(reply + 5, SERVE_PAYLOAD);
    ServeSend(SERVE_HELLO, reply, sizeof(reply), 0, 0);
  }
}

static void ServeAnswer(void) {
  const uint32_t kind = serving.frame[4], number = ServeGet(serving.frame + 9);
  const int is_new = number == serving.last + 1;
  if (kind == SERVE_HELLO) {
    ServeHello(ServeGet(serving.frame + 5));
    return;
  }
  if (ServeGet(serving.frame + 5) != serving.session || (!is_new && number != serving.last)) {
    ServeReply(SERVE_UNKNOWN_SESSION);
    return;
  }
  serving.last = number;
  switch (kind) {
    case SERVE_FACTS:
      ServeReplyFacts();
      break;
    case SERVE_WRITE:
    case SERVE_READ:
    case SERVE_CHECKSUM:
      ServeAccess(kind, serving.frame + SERVE_HEAD, serving.taken - SERVE_HEAD - SERVE_CHECK);
      break;
    case SERVE_INVOKE:
    case SERVE_RESUME:
      if (!is_new) {
        ServeReplyResult(kind);
      } else if ((kind == SERVE_RESUME) != serving.paused || serving.taken < SERVE_HEAD + 8 + SERVE_CHECK) {
        ServeSetResult(SERVE_NOT_NOW, 0);
        ServeReplyResult(kind);
      } else {
        serving.flags = ServeGet(serving.frame + SERVE_HEAD);
        serving.stop = ServeGet(serving.frame + SERVE_HEAD + 4);
        if (kind == SERVE_INVOKE) {
          ServeInvoke();
        } else {
          serving.paused = 0;
        }
      }
      break;
    case SERVE_RESET:
      if (serving.running) {
        ServeReply(SERVE_NOT_NOW);
      } else {
        if (is_new) {
          ServedReset();
        }
        ServeReply(SERVE_DONE);
      }
      break;
    default:
      ServeReply(SERVE_OUT_OF_RANGE);
  }
}

/* Answers requests; never returns. */
static inline void Serve(void) {
  ServePaintStack();
  for (;;) {
    ServeReceive();
    ServeAnswer();
  }
}

/* --- Operators ------------------------------------------------------------------------------------------------- */

/* Answers requests in the midst of an invoke, until one resumes it. */
static void ServePause(uint32_t place) {
  if (place < serving.stop || serving.leaving) {
    return;
  }
  serving.paused = 1;
  ServeSetResult(SERVE_PAUSED, place);
  ServeReplyResult(serving.frame[4]);
  while (serving.paused && !serving.leaving) {
    ServeReceive();
    ServeAnswer();
  }
  serving.paused = 0;
}

/* Continues with an operator whose index is not the next one. */
static inline void SkipToOperator(uint32_t index) { serving.next = index; }

static inline void BeginOperator(void) {
  if (serving.depth++ || !serving.running) {
    return;
  }
  if (serving.flags & SERVE_ANNOUNCES) {
    uint8_t announced[4];
    ServePut(announced, serving.next);
    ServeSend(SERVE_ANNOUNCE, announced, sizeof(announced), 0, 0);
  }
  ServePause(2 * serving.next);
  serving.began = WireTicks();
}

static inline int EndOperator(void) {
  const uint32_t ticks = WireTicks() - serving.began;
  if (--serving.depth || !serving.running || serving.next >= SERVED_OPERATOR_COUNT) {
    return 1;
  }
  served_operators[serving.next].ticks = ticks;
  if (!serving.result[2] && ServeIsStackFull()) {
    serving.result[2] = serving.next + 1;
  }
  return 0;
}

static inline void ServeOutput(const void *data, uint32_t bytes) {
  uint32_t *checksum = &served_operators[serving.next].checksum;
  *checksum = ServeChecksum(*checksum, data, bytes);
}

static inline void NextOperator(void) { ServePause(2 * serving.next++ + 1); }

#endif
