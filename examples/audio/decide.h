/* From samples to decisions: features of sound, and a network that takes the newest frames. */
#ifndef DECIDE_H
#define DECIDE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    FRAME_SAMPLES = 480, /* 30 ms at 16 kHz: the input of the model of features */
    STEP_SAMPLES = 320,  /* 20 ms from one frame to the next */
    FRAME_FEATURES = 40,
    HOP = 2,      /* frames of an invoke: the number after --stream */
    WARM_UP = 25, /* invokes until only real frames count: KEYWORDS_WARM_UP */
    CLASSES = 4   /* silence, unknown, yes, no */
};

/* A decision; `seconds` is where the last sample that counts is in the stream. */
struct decision {
    double seconds;
    int keyword;
    int score; /* -128 to 127 for 0 to 1 */
};

/* State of a stream of samples; zeros begin one. */
struct stream {
    int16_t samples[FRAME_SAMPLES];
    int8_t frames[HOP * FRAME_FEATURES];
    int sample_count;
    int frame_count;
    int64_t taken;
    int invokes;
};

/* Takes samples, any number of them. Calls `decided` for each invoke after the warm-up; returns 0, or an error. */
int take_samples(struct stream *stream, const int16_t *samples, size_t count, void (*decided)(struct decision));

/* The two models: compiled.c runs them as C, interpreters.cc with TFLM's interpreter. All return 0, or an error. */
int begin_models(void);
int make_features(const int16_t samples[FRAME_SAMPLES], int8_t features[FRAME_FEATURES]);
int score_keywords(const int8_t frames[HOP * FRAME_FEATURES], int8_t scores[CLASSES]);

#ifdef __cplusplus
}
#endif

#endif
