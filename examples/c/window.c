// Every rank adds its numbers to those of the next one, which does something else meanwhile, and counts itself.

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "roundelay.h"

enum { RANKS = 4, LEN = 101 };

static void *rank(void *argument) {
    rl_comm *comm = argument;
    uint32_t own = rl_rank(comm), size = rl_size(comm);
    uint32_t next = (own + 1) % size, before = (own + size - 1) % size;
    int64_t mine[LEN] = {0}, data[LEN];
    for (int i = 0; i < LEN; i++) data[i] = own * 1000 + i;

    rl_window *window;
    check(rl_window_create(comm, mine, LEN, RL_I64, RL_READ | RL_WRITE | RL_ATOMICS, NULL, &window));
    rl_work *work;
    check(rl_window_accumulate(window, data, LEN, RL_SUM, next, 0, NULL, &work));
    check(rl_window_signal(window, next, NULL));
    check(rl_work_wait(work, UINT64_MAX, NULL));
    rl_work_free(work);

    // A rank that has waited sees what was added before.
    check(rl_window_wait_signal(window, before, NULL));
    int added = 0;
    for (int i = 0; i < LEN; i++) added += mine[i] == (int64_t)before * 1000 + i;

    // All count in the last word of rank 0, once it was looked at.
    check(rl_barrier(comm, NULL, NULL));
    uint64_t count, counted = 0;
    check(rl_window_fetch_add(window, 1, 0, LEN - 1, &count, NULL));
    check(rl_barrier(comm, NULL, NULL));
    int64_t last;
    check(rl_window_get(window, &last, 1, 0, LEN - 1, NULL, NULL));
    counted = (uint64_t)last - (RANKS - 1) * 1000 - (LEN - 1);
    printf("rank %u of %u: %d numbers were added, and %llu ranks counted\n", own, size, added,
           (unsigned long long)counted);
    if (own == 0 && rl_window_put(window, data, 2, next, LEN - 1, NULL, NULL) != 0) {
        rl_error error;
        rl_last_error(&error);
        printf("%s\n", error.text);
    }
    check(rl_window_free(window));
    rl_free(comm);
    return NULL;
}

int main(void) {
    run_ranks(RANKS, rank);
    return 0;
}
