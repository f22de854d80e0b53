// What generated code uses of a platform's set-up.
#ifndef STAND_IN_SYSTEM_SETUP_H_
#define STAND_IN_SYSTEM_SETUP_H_

namespace tflite {

void InitializeTarget();

}  // namespace tflite

#endif  // STAND_IN_SYSTEM_SETUP_H_
