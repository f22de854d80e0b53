/* Reads samples of 16 bits from standard input, at 16 kHz, and prints decisions: decide [SAMPLES OF A CHUNK] < clip.raw */
#include <stdio.h>
#include <stdlib.h>

#include "decide.h"

enum { MOST = 4096 };

static void print_decision(struct decision decision)
{
    static const char *const names[CLASSES] = {"silence", "unknown", "yes", "no"};
    printf("%6.2f s  %-7s  %.3f\n", decision.seconds, names[decision.keyword], (decision.score + 128) / 256.0);
}

int main(int count, char **arguments)
{
    static struct stream stream;
    static int16_t chunk[MOST];
    size_t wanted = count > 1 ? (size_t)strtoul(arguments[1], NULL, 10) : 512, taken;
    int error = wanted < 1 || wanted > MOST || begin_models() != 0;
    while (error == 0 && (taken = fread(chunk, sizeof *chunk, wanted, stdin)) > 0) {
        error = take_samples(&stream, chunk, taken, print_decision);
    }
    return error;
}
