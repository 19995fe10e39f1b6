// Four ranks, as threads of one process, sum a vector. A real job has a process for each rank, and a store that all of
// them reach: only `set` and `get` below change.
//
//   cc -pthread all_reduce.c -I ../../ffi/include -L ../../target/release -lroundelay_ffi -o all_reduce

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "roundelay.h"

enum { RANKS = 4, COUNT = 1000 };

// A store of one note, for ranks that are threads.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t left = PTHREAD_COND_INITIALIZER;
static char note[4096];
static uint64_t note_len;

static int32_t set(void *context, const char *key, const void *value, uint64_t len) {
    (void)context, (void)key;
    pthread_mutex_lock(&lock);
    memcpy(note, value, len);
    note_len = len;
    pthread_cond_broadcast(&left);
    pthread_mutex_unlock(&lock);
    return 0;
}

static int32_t get(void *context, const char *key, uint64_t timeout_ms, void *value, uint64_t capacity, uint64_t *len) {
    (void)context, (void)key, (void)timeout_ms;
    pthread_mutex_lock(&lock);
    while (note_len == 0) pthread_cond_wait(&left, &lock);
    *len = note_len;
    int32_t fits = note_len <= capacity;
    if (fits) memcpy(value, note, note_len);
    pthread_mutex_unlock(&lock);
    return fits ? 0 : 1;
}

static void *rank(void *argument) {
    uint32_t own = (uint32_t)(uintptr_t)argument;
    rl_store store = {.context = NULL, .set = set, .get = get};
    rl_comm *comm;
    check(rl_join(own, RANKS, &store, NULL, 0, &comm));

    float data[COUNT];
    for (int i = 0; i < COUNT; i++) data[i] = (float)(own + (uint32_t)i);
    check(rl_all_reduce(comm, data, COUNT, RL_F32, RL_SUM, NULL, NULL));
    for (int i = 0; i < COUNT; i++) {
        float wanted = RANKS * (RANKS - 1) / 2 + RANKS * (float)i;
        if (data[i] != wanted) {
            fprintf(stderr, "rank %u: element %d is %g, and should be %g\n", own, i, data[i], wanted);
            exit(1);
        }
    }
    printf("rank %u of %u: the sum of element 0 is %g\n", rl_rank(comm), rl_size(comm), data[0]);
    if (own == 0) {
        char why[256];
        check(rl_explain(comm, "all_reduce", sizeof data, RL_F32, RL_SUM, why, sizeof why, NULL));
        printf("it would use %s\n", why);
    }
    check(rl_free(comm));
    return NULL;
}

int main(void) {
    if (rl_abi_version() != RL_ABI_VERSION) {
        fprintf(stderr, "the header is of version %d, the library of %u\n", RL_ABI_VERSION, rl_abi_version());
        return 1;
    }
    pthread_t threads[RANKS];
    for (uintptr_t r = 0; r < RANKS; r++) pthread_create(&threads[r], NULL, rank, (void *)r);
    for (int r = 0; r < RANKS; r++) pthread_join(threads[r], NULL);
    return 0;
}
