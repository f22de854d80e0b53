// What generated code uses of the log; the compiler checks formats.
#ifndef STAND_IN_MICRO_LOG_H_
#define STAND_IN_MICRO_LOG_H_

__attribute__((format(printf, 1, 2))) void MicroPrintf(const char* format, ...);

#endif  // STAND_IN_MICRO_LOG_H_
