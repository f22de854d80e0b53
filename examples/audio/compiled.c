/* The models as C, from tflm compile. */
#include <string.h>

#include "decide.h"
#include "frontend.h"
#include "keywords.h"

static union frontend_ram frontend;
static union keywords_ram keywords;

/* What decide.h says of the models has to be true. */
typedef char same_sizes[FRONTEND_INPUT_0_ELEMENTS == FRAME_SAMPLES && FRONTEND_OUTPUT_0_ELEMENTS == FRAME_FEATURES &&
                                KEYWORDS_INPUT_0_ELEMENTS == HOP * FRAME_FEATURES &&
                                KEYWORDS_OUTPUT_0_ELEMENTS == CLASSES && KEYWORDS_WARM_UP == WARM_UP
                            ? 1
                            : -1];

int begin_models(void)
{
    frontend_reset(&frontend);
    keywords_reset(&keywords);
    return 0;
}

int make_features(const int16_t samples[FRAME_SAMPLES], int8_t made[FRAME_FEATURES])
{
    int error;
    memcpy(frontend_input_0(&frontend), samples, FRONTEND_INPUT_0_BYTES);
    error = frontend_invoke(&frontend);
    memcpy(made, frontend_output_0(&frontend), FRONTEND_OUTPUT_0_BYTES);
    return error;
}

int score_keywords(const int8_t frames[HOP * FRAME_FEATURES], int8_t scores[CLASSES])
{
    int error;
    memcpy(keywords_input_0(&keywords), frames, KEYWORDS_INPUT_0_BYTES);
    error = keywords_invoke(&keywords);
    memcpy(scores, keywords_output_0(&keywords), KEYWORDS_OUTPUT_0_BYTES);
    return error;
}
