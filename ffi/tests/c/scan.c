// Prefix reductions of ranks that are threads: in place, out of place and in the background. Rank 0's result of an
// exclusive one stays as it was, and operators that change the elements of all ranks alike are refused.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

#include "roundelay.h"

#define RANKS 3
#define COUNT 1001
#define UNSUPPORTED 706

static rl_comm *ranks[RANKS];
static double input[RANKS][COUNT], data[RANKS][COUNT], output[RANKS][COUNT];

// The sum of an element of the ranks before `end`.
static double before(intptr_t end, int i) {
    double sum = 0;
    for (intptr_t rank = 0; rank < end; ++rank) sum += input[rank][i];
    return sum;
}

static void fill(intptr_t own) {
    for (int i = 0; i < COUNT; ++i) data[own][i] = input[own][i], output[own][i] = -7;
}

static int holds(const double *found, intptr_t end, double otherwise, int i) {
    return found[i] == (end > 0 ? before(end, i) : otherwise);
}

static const char *steps(intptr_t own) {
    rl_comm *comm = ranks[own];
    rl_work *work = NULL;
    fill(own);
    if (rl_scan(comm, data[own], COUNT, RL_F64, RL_SUM, NULL, NULL) != 0) return "no scan";
    if (rl_scan_into(comm, output[own], input[own], COUNT, RL_F64, RL_SUM, NULL, NULL) != 0) return "no scan_into";
    for (int i = 0; i < COUNT; ++i)
        if (!holds(data[own], own + 1, 0, i) || !holds(output[own], own + 1, 0, i)) return "a sum is wrong";
    fill(own);
    if (rl_exscan(comm, data[own], COUNT, RL_F64, RL_SUM, NULL, &work) != 0) return "no exscan";
    int32_t done = 0;
    if (rl_work_wait(work, 60000, &done) != 0 || !done) return "no end in the background";
    rl_work_free(work);
    if (rl_exscan_into(comm, output[own], input[own], COUNT, RL_F64, RL_SUM, NULL, NULL) != 0) return "no exscan_into";
    for (int i = 0; i < COUNT; ++i)
        if (!holds(data[own], own, input[0][i], i) || !holds(output[own], own, -7, i)) return "another sum is wrong";
    if (rl_scan(comm, data[own], COUNT, RL_F64, RL_AVG, NULL, NULL) != UNSUPPORTED) return "a mean of some ranks";
    if (rl_exscan(comm, data[own], COUNT, RL_F64, RL_AVG, NULL, NULL) != UNSUPPORTED) return "another mean of some ranks";
    return NULL;
}

static void *rank(void *own) { return (void *)steps((intptr_t)own); }

int main(void) {
    pthread_t threads[RANKS];
    int failed = 0;
    for (int own = 0; own < RANKS; ++own)
        for (int i = 0; i < COUNT; ++i) input[own][i] = (double)((i * 7 + own * 13) % 16);
    if (rl_local(RANKS, ranks) != 0) return 1;
    for (intptr_t own = 0; own < RANKS; ++own) pthread_create(&threads[own], NULL, rank, (void *)own);
    for (int own = 0; own < RANKS; ++own) {
        void *said;
        pthread_join(threads[own], &said);
        if (said != NULL) printf("rank %d: %s\n", own, (char *)said);
        failed += said != NULL;
        rl_free(ranks[own]);
    }
    if (failed == 0) printf("sums of the ranks up to each, and of those before\n");
    return failed;
}
