#include "decide.h"

#include <string.h>

static int take_frame(struct stream *stream, void (*decided)(struct decision))
{
    int8_t scores[CLASSES];
    struct decision decision;
    int error, i;
    error = make_features(stream->samples, stream->frames + stream->frame_count * FRAME_FEATURES);
    if (error != 0 || ++stream->frame_count < HOP) {
        return error;
    }
    stream->frame_count = 0;
    error = score_keywords(stream->frames, scores);
    if (error != 0 || ++stream->invokes < WARM_UP) {
        return error;
    }
    decision.seconds = (double)stream->taken / 16000;
    decision.keyword = 0;
    for (i = 1; i < CLASSES; ++i) {
        if (scores[i] > scores[decision.keyword]) {
            decision.keyword = i;
        }
    }
    decision.score = scores[decision.keyword];
    decided(decision);
    return 0;
}

int take_samples(struct stream *stream, const int16_t *samples, size_t count, void (*decided)(struct decision))
{
    size_t taken;
    int error;
    while (count > 0) {
        taken = (size_t)(FRAME_SAMPLES - stream->sample_count);
        if (taken > count) {
            taken = count;
        }
        memcpy(stream->samples + stream->sample_count, samples, taken * sizeof *samples);
        stream->sample_count += (int)taken;
        stream->taken += (int64_t)taken;
        samples += taken;
        count -= taken;
        if (stream->sample_count == FRAME_SAMPLES) {
            error = take_frame(stream, decided);
            if (error != 0) {
                return error;
            }
            stream->sample_count = FRAME_SAMPLES - STEP_SAMPLES;
            memmove(stream->samples, stream->samples + STEP_SAMPLES, (size_t)stream->sample_count * sizeof *samples);
        }
    }
    return 0;
}
