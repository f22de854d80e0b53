// Where TFLM's names are: in tflite and the global namespace, or, with -DMOVED=1, in tflite::micro those of C, and with
// -DMOVED=2 all but those of the schema.
#ifndef STAND_IN_NAMESPACES_H_
#define STAND_IN_NAMESPACES_H_

#ifndef MOVED
#define MOVED 0
#endif

#if MOVED > 0
#define BEGIN_NAMES_OF_C \
  namespace tflite {     \
  namespace micro {
#define END_NAMES_OF_C \
  }                    \
  }
#else
#define BEGIN_NAMES_OF_C
#define END_NAMES_OF_C
#endif

#if MOVED > 1
#define BEGIN_NAMES \
  namespace tflite { \
  namespace micro {
#define END_NAMES \
  }               \
  }
#elif MOVED > 0
#define BEGIN_NAMES  \
  namespace tflite { \
  using namespace micro;
#define END_NAMES }
#else
#define BEGIN_NAMES namespace tflite {
#define END_NAMES }
#endif

#endif  // STAND_IN_NAMESPACES_H_
