// What examples share: the end with the error of a call that has failed, and ranks as threads.

#pragma once

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "roundelay.h"

static void check(int32_t status) {
    rl_error error;
    if (status == 0) return;
    rl_last_error(&error);
    fprintf(stderr, "error[RL%04d]: %s\n", error.code, error.text);
    exit(1);
}

// Runs `count` ranks in this process, each by a thread that is given its communicator, and frees it.
static inline void run_ranks(uint32_t count, void *(*rank)(void *)) {
    rl_comm *ranks[count];
    pthread_t threads[count];
    check(rl_local(count, ranks));
    for (uint32_t i = 0; i < count; i++) pthread_create(&threads[i], NULL, rank, ranks[i]);
    for (uint32_t i = 0; i < count; i++) pthread_join(threads[i], NULL);
}
