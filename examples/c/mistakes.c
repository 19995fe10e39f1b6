// What the errors of wrong calls look like. Refused calls move nothing, and the communicator stays usable; a wait that
// passed its deadline, or an abort, ends it.

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

#include "roundelay.h"

static void say(int32_t status) {
    rl_error error;
    rl_last_error(&error);
    if (status != error.code) printf("the status is %d, and the error's code %d\n", status, error.code);
    printf("%d: %s\n", status, error.text);
}

static void *waits(void *argument) {
    float data[4] = {0};
    rl_comm *comm = argument;
    say(rl_all_reduce(comm, data, 4, RL_F32, RL_SUM, NULL, NULL));
    return NULL;
}

// Windows of memory that is not where the call says, and ranks that have no such GPU.
static void windows(void) {
    rl_comm *alone, *gpus;
    rl_window *window, *none;
    uint64_t data[4] = {1, 2, 3, 4};
    void *address;
    rl_allocation *allocation;
    rl_options on_gpu = {.memory = RL_CUDA}, on_nothing = {.memory = 9};
    uint32_t all = RL_READ | RL_WRITE | RL_ATOMICS;
    if (rl_local(1, &alone) != 0) return;
    say(rl_cuda_mixed(NULL, 0, -1, &gpus));
    say(rl_cuda_mixed(alone, 1, 999, &gpus));
    say(rl_window_create(alone, data, 4, RL_U64, all, &on_gpu, &none));
    say(rl_window_create(alone, data, 4, RL_U64, all, &on_nothing, &none));
    if (rl_window_create(alone, data, 4, RL_U64, all, NULL, &window) != 0) return;
    say(rl_window_put(window, data, 1, 0, 3, &on_gpu, NULL));
    say(rl_window_fetch_add(window, 1, 0, 3, data, &on_gpu));
    say(rl_window_fetch_add(window, 1, 0, 3, NULL, NULL));
    say(rl_window_signal(NULL, 0, NULL));
    say(rl_window_map_remote(window, 1, &address));
    say(rl_alloc(alone, 1, NULL, &address));
    say(rl_alloc(alone, UINT64_MAX, &allocation, &address));
    say(rl_alloc(alone, 1ull << 60, &allocation, &address));
    rl_allocation_free(NULL);
    rl_window_free(window);
    rl_free(alone);
}

int main(void) {
    rl_comm *ranks[2];
    float data[4] = {1, 2, 3, 4};
    windows();
    say(rl_all_reduce(NULL, data, 4, RL_F32, RL_SUM, NULL, NULL));
    if (rl_local(2, ranks) != 0) return 1;
    say(rl_broadcast(ranks[0], data, 4, RL_F32, 2, NULL, NULL));
    say(rl_all_reduce(ranks[0], data, 4, 99, RL_SUM, NULL, NULL));
    say(rl_all_reduce(ranks[0], data, 4, RL_F32, RL_AND, NULL, NULL));
    say(rl_all_reduce(ranks[0], NULL, 4, RL_F32, RL_SUM, NULL, NULL));

    // Rank 1 waits until rank 0 gives up.
    pthread_t thread;
    pthread_create(&thread, NULL, waits, ranks[1]);
    rl_abort(ranks[0], "enough");
    pthread_join(thread, NULL);
    rl_free(ranks[0]);
    rl_free(ranks[1]);

    // No rank comes.
    if (rl_local(2, ranks) != 0) return 1;
    rl_options options = {.timeout_ms = 100};
    rl_options short_of_fields = {.size = 8};
    say(rl_barrier(ranks[0], &short_of_fields, NULL));
    say(rl_barrier(ranks[0], &options, NULL));
    rl_free(ranks[0]);
    rl_free(ranks[1]);
    return 0;
}
