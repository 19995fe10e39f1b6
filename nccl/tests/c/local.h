/* The ranks of a thread and their buffers. A step is a function that makes the calls of these ranks, in a group if there
 * are several, and then looks at their buffers. All buffers are poisoned before. */
#ifndef LOCAL_H
#define LOCAL_H

#include "checks.h"

#define MOST 8
#define COUNT 1000

/* The ranks of a thread. */
typedef struct {
    int first, ranks;
    ncclComm_t comm[MOST];
    unsigned char *in[MOST], *out[MOST];
} local_t;

static int rank_of(const local_t *l, int k) { return l->first + k; }

static void begin(const local_t *l) {
    if (l->ranks > 1) OK(ncclGroupStart());
}
static void end(const local_t *l) {
    if (l->ranks > 1) OK(ncclGroupEnd());
}
#define EACH(l) for (int k = 0; k < (l)->ranks; ++k)

/* Fills the inputs with the pattern of their ranks, and poisons the outputs. */
static void fill(local_t *l, int type, size_t count) {
    EACH(l) {
        memset(l->in[k], 0xaa, ROOM);
        memset(l->out[k], 0xbb, ROOM);
        for (size_t i = 0; i < count; ++i) put(l->in[k], type, i, pattern(rank_of(l, k), i));
    }
}

#endif
