// Three ranks, of which one is lost: the others go on without it, and later take in another. Ranks are threads of one
// process here, and `handles` is their store; a real job passes handles on by a store that outlives its ranks.
//
//   cc -pthread elastic.c -I ../../ffi/include -L ../../target/release -lroundelay_ffi -o elastic

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "roundelay.h"

enum { TIMEOUT = 30000 };

static char handles[3][512];

struct part {
    rl_comm *comm;
    const char *id;
    uint32_t ranks;
};

static void *go_on(void *argument) {
    struct part *part = argument;
    const char *all[] = {handles[0], handles[1], handles[2]};
    check(rl_reconfigure(part->comm, part->id, all, part->ranks, 1, TIMEOUT));
    float one = 1;
    check(rl_all_reduce(part->comm, &one, 1, RL_F32, RL_SUM, NULL, NULL));
    printf("%s: rank %u of %u, the sum is %g\n", part->id, rl_rank(part->comm), rl_size(part->comm), one);
    return NULL;
}

// Adds ones of those that are there, one of which may end meanwhile, and goes on with them.
static void *without_the_lost(void *argument) {
    struct part *part = argument;
    float one = 1;
    uint64_t counted;
    check(rl_tolerant_all_reduce(part->comm, &one, 1, RL_F32, RL_SUM, &counted));
    check(rl_shrink(part->comm, TIMEOUT));
    printf("%s: rank %u of %u, the sum is %g of the ranks %#llx\n", part->id, rl_rank(part->comm),
           rl_size(part->comm), one, (unsigned long long)counted);
    return NULL;
}

// Has ranks do something, each in a thread.
static void together(const char *id, rl_comm **comms, uint32_t ranks, void *(*what)(void *)) {
    pthread_t threads[3];
    struct part parts[3];
    for (uint32_t rank = 0; rank < ranks; rank++) {
        parts[rank] = (struct part){.comm = comms[rank], .id = id, .ranks = ranks};
        pthread_create(&threads[rank], NULL, what, &parts[rank]);
    }
    for (uint32_t rank = 0; rank < ranks; rank++) pthread_join(threads[rank], NULL);
}

// Has all ranks make a generation and a call.
static void generation(const char *id, rl_comm **comms, uint32_t ranks) {
    for (uint32_t rank = 0; rank < ranks; rank++)
        check(rl_reconfigure_handle(comms[rank], handles[rank], sizeof handles[rank], NULL));
    together(id, comms, ranks, go_on);
}

int main(void) {
    rl_comm *comms[3];
    check(rl_local(3, comms));
    // The last one is lost, and one that waits for it is stopped.
    check(rl_free(comms[2]));
    check(rl_abort(comms[0], "a rank is lost"));
    generation("without it", comms, 2);
    check(rl_alone(NULL, &comms[2]));
    generation("with another", comms, 3);
    check(rl_free(comms[2]));
    together("those that are left", comms, 2, without_the_lost);
    for (uint32_t rank = 0; rank < 2; rank++) check(rl_free(comms[rank]));
    return 0;
}
