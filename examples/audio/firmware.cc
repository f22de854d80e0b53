// Runs decide.c on a clip in flash, in the project for QEMU that `make firmware` writes.
extern "C" void RegisterDebugLogCallback(void (*print)(const char* text));  // of TFLM
#include "clip.h"
#include "console.h"
#include "decide.h"

static void Show(struct decision decision) {
  Say("%ld ms, keyword %d, score %d", (long)(decision.seconds * 1000 + 0.5), decision.keyword, decision.score + 128);
}

int main(void) {
  static struct stream stream;
  const size_t count = sizeof clip / sizeof *clip, chunk = 512;
  StartConsole();
  RegisterDebugLogCallback(Print);
  int error = begin_models();
  for (size_t i = 0; error == 0 && i < count; i += chunk) {
    error = take_samples(&stream, clip + i, count - i < chunk ? count - i : chunk, Show);
  }
  Say(error == 0 ? "done" : "failed");
  return error;
}
