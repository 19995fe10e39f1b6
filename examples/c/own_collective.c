// A collective of one's own: what 03_halo.algo declares runs here as in Python (`comm.run_into`) and on the command line
// (`roundelay run`). Each of four ranks gets the values of both neighbours, and their sum.
//
//   cc -pthread own_collective.c -I ../../ffi/include -L ../../target/release -lroundelay_ffi -o own_collective
//   cd ../.. && examples/c/own_collective

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "roundelay.h"

enum { RANKS = 4, COUNT = 1000 };

static rl_algorithm *halo;

static void *rank(void *argument) {
    rl_comm *comm = argument;
    uint32_t own = rl_rank(comm), left = (own + RANKS - 1) % RANKS, right = (own + 1) % RANKS;
    float input[COUNT], output[3][COUNT];
    for (int i = 0; i < COUNT; i++) input[i] = (float)(own + 10 * (uint32_t)i);
    for (int i = 0; i < 3 * COUNT; i++) output[0][i] = -1;
    check(rl_run(comm, halo, output, 3 * COUNT, input, COUNT, RL_F32, RL_SUM, NULL, NULL));
    for (int i = 0; i < COUNT; i++) {
        float from_left = (float)(left + 10 * (uint32_t)i), from_right = (float)(right + 10 * (uint32_t)i);
        if (output[0][i] != from_left || output[1][i] != from_right || output[2][i] != from_left + from_right) {
            fprintf(stderr, "rank %u: element %d is wrong\n", own, i);
            exit(1);
        }
    }
    printf("rank %u of %u: the sum of its neighbours is %g\n", own, rl_size(comm), output[2][0]);
    check(rl_free(comm));
    return NULL;
}

int main(int count, char **arguments) {
    check(rl_algorithm_load(count > 1 ? arguments[1] : "examples/03_halo.algo", &halo));
    run_ranks(RANKS, rank);
    rl_algorithm_free(halo);
    return 0;
}
