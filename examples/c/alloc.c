// Memory that the ranks of a host map: operations read it where it lies, and a rank looks at its peer's without a call.

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "roundelay.h"

enum { RANKS = 4, LEN = 1 << 20 };

static void *rank(void *argument) {
    rl_comm *comm = argument;
    uint32_t own = rl_rank(comm), size = rl_size(comm), next = (own + 1) % size;
    rl_allocation *allocation;
    void *address, *there;
    check(rl_alloc(comm, LEN * sizeof(float), &allocation, &address));
    float *mine = address;
    for (int i = 0; i < LEN; i++) mine[i] = own + 1;
    check(rl_all_reduce(comm, mine, LEN, RL_F32, RL_SUM, NULL, NULL));

    // The peer's part is an array of this process.
    rl_window *window;
    check(rl_window_create(comm, mine, LEN, RL_F32, RL_READ | RL_WRITE, NULL, &window));
    mine[0] = own;
    check(rl_barrier(comm, NULL, NULL));
    uint64_t count;
    check(rl_window_attributes(window, next, &count, NULL));
    check(rl_window_map_remote(window, next, &there));
    const float *theirs = there;
    printf("rank %u of %u: rank %u holds %g and %g\n", own, size, next, theirs[0], theirs[count - 1]);
    check(rl_window_free(window));

    // It may live longer than the communicator.
    rl_free(comm);
    if (mine[LEN - 1] != 10) exit(1);
    check(rl_allocation_free(allocation));
    return NULL;
}

int main(void) {
    run_ranks(RANKS, rank);
    return 0;
}
