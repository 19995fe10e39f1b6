// Ranks give memory back and take it again: figures fall, calls in between fail, and results afterwards are right. A
// caller's shorter structure of figures gets as much as it has.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "roundelay.h"

#define REFUSED 712
#define COUNT 100000

static rl_comm *ranks[2];
static float data[2][COUNT];

static const char *sums(intptr_t own) {
    for (int i = 0; i < COUNT; ++i) data[own][i] = (float)(i % 100 + own);
    if (rl_all_reduce(ranks[own], data[own], COUNT, RL_F32, RL_SUM, NULL, NULL) != 0) return "a call fails";
    for (int i = 0; i < COUNT; ++i)
        if (data[own][i] != (float)(2 * (i % 100) + 1)) return "a sum is wrong";
    return NULL;
}

static const char *steps(intptr_t own) {
    rl_comm *comm = ranks[own];
    rl_memory_figures had = {.size = sizeof had}, has = {.size = sizeof has};
    const char *wrong = sums(own);
    if (wrong != NULL) return wrong;
    if (rl_memory_stats(comm, &had) != 0 || had.size != sizeof had || had.suspended != 0) return "no figures";
    if (rl_suspend(comm, 2) != REFUSED) return "flags that are none";
    if (rl_suspend(comm, own == 0 ? 0 : RL_SUSPEND_CONNECTIONS) != REFUSED) return "flags that differ";
    if (rl_suspend(comm, RL_SUSPEND_CONNECTIONS) != 0) return "no suspension";
    if (rl_memory_stats(comm, &has) != 0 || has.suspended != 1) return "not suspended";
    if (has.shared >= had.shared / 2 || has.mapped >= had.mapped || has.arena != 0) return "memory stays";
    if (rl_barrier(comm, NULL, NULL) != REFUSED || rl_suspend(comm, 0) != REFUSED) return "a call on a suspended one";
    // The structure of a caller with an older header, and what lies behind it.
    uint64_t older[4] = {3 * sizeof(uint64_t), 9, 9, 9};
    if (rl_memory_stats(comm, (rl_memory_figures *)older) != 0) return "no figures for an older caller";
    if (older[0] != 3 * sizeof(uint64_t) || older[1] != 1 || older[2] != has.shared || older[3] != 9) return "beyond it";
    uint64_t none = 0;
    if (rl_memory_stats(comm, (rl_memory_figures *)&none) != REFUSED) return "a size of 0";
    if (rl_resume(comm) != 0) return "no resumption";
    if (rl_memory_stats(comm, &has) != 0 || has.suspended != 0) return "still suspended";
    return sums(own);
}

static void *rank(void *own) { return (void *)steps((intptr_t)own); }

int main(void) {
    pthread_t threads[2];
    int failed = 0;
    if (rl_local(2, ranks) != 0) return 1;
    for (intptr_t own = 0; own < 2; ++own) pthread_create(&threads[own], NULL, rank, (void *)own);
    for (int own = 0; own < 2; ++own) {
        void *said;
        pthread_join(threads[own], &said);
        if (said != NULL) printf("rank %d: %s\n", own, (char *)said);
        failed += said != NULL;
        rl_free(ranks[own]);
    }
    if (failed == 0) printf("memory went and came back\n");
    return failed;
}
