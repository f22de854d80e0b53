/* Standard input and output. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define WIRE_TICKS_PER_SECOND 1000000000u

static int WireRead(void) {
  static uint8_t bytes[256];
  static ssize_t count, next;
  struct pollfd input = {STDIN_FILENO, POLLIN, 0};
  if (next == count) {
    if (poll(&input, 1, 10) <= 0) {
      return -1;
    }
    count = read(STDIN_FILENO, bytes, sizeof(bytes));
    next = 0;
    if (count <= 0) {
      exit(0); /* nobody is there anymore */
    }
  }
  return bytes[next++];
}

static void WireWrite(const uint8_t *bytes, uint32_t count) {
  while (count) {
    const ssize_t sent = write(STDOUT_FILENO, bytes, count);
    if (sent < 0 && errno != EINTR && errno != EAGAIN) {
      exit(1);
    }
    bytes += sent > 0 ? sent : 0;
    count -= sent > 0 ? (uint32_t)sent : 0;
  }
}

static uint32_t WireTicks(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint32_t)now.tv_sec * WIRE_TICKS_PER_SECOND + (uint32_t)now.tv_nsec;
}
