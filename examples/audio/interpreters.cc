// The models with TFLM's interpreter, from tflm export.
#include <cstring>
#include <new>

#include "arena_size.h"
#include "decide.h"
#include "frontend/arena_size.h"
#include "frontend/model_data.h"
#include "frontend/op_resolver.h"
#include "model_data.h"
#include "op_resolver.h"
#include "tensorflow/lite/micro/micro_allocator.h"
#include "tensorflow/lite/micro/micro_interpreter.h"
#include "tensorflow/lite/micro/micro_resource_variable.h"
#include "tensorflow/lite/micro/system_setup.h"
#include "tensorflow/lite/schema/schema_generated.h"

namespace {

using namespace tflite;
using namespace tflite::micro;

// The variables of the streaming model: their number is in the project's main.cc.
constexpr int kVariables = 3;

alignas(16) uint8_t frontend_arena[kFrontendArenaSize];
alignas(16) uint8_t keywords_arena[kKeywordsArenaSize];
FrontendOpResolver frontend_resolver;
KeywordsOpResolver keywords_resolver;
alignas(MicroInterpreter) uint8_t frontend_memory[sizeof(MicroInterpreter)];
alignas(MicroInterpreter) uint8_t keywords_memory[sizeof(MicroInterpreter)];
MicroInterpreter* frontend = nullptr;
MicroInterpreter* keywords = nullptr;

}  // namespace

int begin_models(void) {
  InitializeTarget();
  if (RegisterFrontendOps(frontend_resolver) != kTfLiteOk || RegisterKeywordsOps(keywords_resolver) != kTfLiteOk) {
    return 1;
  }
  frontend = new (frontend_memory)
      MicroInterpreter(GetModel(frontend_model_data), frontend_resolver, frontend_arena, kFrontendArenaSize);
  MicroAllocator* allocator = MicroAllocator::Create(keywords_arena, kKeywordsArenaSize);
  MicroResourceVariables* variables = MicroResourceVariables::Create(allocator, kVariables);
  keywords = new (keywords_memory)
      MicroInterpreter(GetModel(keywords_model_data), keywords_resolver, allocator, variables);
  return frontend->AllocateTensors() != kTfLiteOk || keywords->AllocateTensors() != kTfLiteOk;
}

int make_features(const int16_t samples[FRAME_SAMPLES], int8_t made[FRAME_FEATURES]) {
  memcpy(frontend->typed_input_tensor<int16_t>(0), samples, FRAME_SAMPLES * sizeof *samples);
  TfLiteStatus status = frontend->Invoke();
  memcpy(made, frontend->typed_output_tensor<int8_t>(0), FRAME_FEATURES);
  return status != kTfLiteOk;
}

int score_keywords(const int8_t frames[HOP * FRAME_FEATURES], int8_t scores[CLASSES]) {
  memcpy(keywords->typed_input_tensor<int8_t>(0), frames, HOP * FRAME_FEATURES);
  TfLiteStatus status = keywords->Invoke();
  memcpy(scores, keywords->typed_output_tensor<int8_t>(0), CLASSES);
  return status != kTfLiteOk;
}
