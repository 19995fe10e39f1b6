/* The steps that make communicators of others, beside others, and end them. */
#ifndef PARTS_H
#define PARTS_H

#include "local.h"

#include <pthread.h>

/* A sum over a part: its ranks, in its order. */
static void sum_in(ncclComm_t *comm, local_t *l, const int *members, int count) {
    EACH(l) if (comm[k] != NULL) {
        int size, rank;
        ncclResult_t health;
        OK(ncclCommCount(comm[k], &size));
        OK(ncclCommUserRank(comm[k], &rank));
        OK(ncclCommGetAsyncError(comm[k], &health));
        TRUE(size == count && members[rank] == rank_of(l, k) && health == Success);
        memset(l->out[k], 0xbb, ROOM);
    }
    begin(l);
    EACH(l) if (comm[k] != NULL) OK(ncclAllReduce(l->in[k], l->out[k], COUNT, Float32, Sum, comm[k], NULL));
    end(l);
    EACH(l) if (comm[k] != NULL) for (size_t i = 0; i < COUNT; ++i) {
        double wanted = 0;
        for (int m = 0; m < count; ++m) wanted += pattern(members[m], i);
        element(l->out[k], Float32, i, wanted);
    }
}

static void parts(local_t *l) {
    ncclComm_t part[MOST];
    int members[MOST];
    fill(l, Float32, COUNT);
    /* Even and odd ranks apart, from the last to the first. */
    begin(l);
    EACH(l) OK(ncclCommSplit(l->comm[k], rank_of(l, k) % 2, -rank_of(l, k), &part[k], NULL));
    end(l);
    for (int parity = 0; parity < 2; ++parity) {
        int count = 0;
        for (int r = n - 1; r >= 0; --r)
            if (r % 2 == parity) members[count++] = r;
        ncclComm_t own[MOST];
        EACH(l) own[k] = rank_of(l, k) % 2 == parity ? part[k] : NULL;
        if (count > 0) sum_in(own, l, members, count);
    }
    EACH(l) OK(ncclCommDestroy(part[k]));
    /* The first rank is in none. */
    begin(l);
    EACH(l) OK(ncclCommSplit(l->comm[k], rank_of(l, k) == 0 ? -1 : 0, 0, &part[k], NULL));
    end(l);
    for (int r = 1; r < n; ++r) members[r - 1] = r;
    EACH(l) TRUE((part[k] == NULL) == (rank_of(l, k) == 0));
    if (n > 1) sum_in(part, l, members, n - 1);
    EACH(l) OK(ncclCommDestroy(part[k]));
}

/* The last rank is left out, and does not call. */
static void fewer(local_t *l) {
    if (n < 2) return;
    ncclComm_t left[MOST];
    int members[MOST], last = n - 1;
    fill(l, Float32, COUNT);
    for (int r = 0; r < n; ++r) members[r] = r;
    begin(l);
    EACH(l) {
        left[k] = NULL;
        if (rank_of(l, k) < last) OK(ncclCommShrink(l->comm[k], &last, 1, &left[k], NULL, 0));
    }
    end(l);
    sum_in(left, l, members, n - 1);
    EACH(l) OK(ncclCommDestroy(left[k]));
}

/* A communicator whose ranks come together while their callers go on. */
static void open_without_waiting(local_t *l, const ncclUniqueId *other) {
    ncclComm_t comm[MOST];
    int members[MOST];
    ncclConfig_t config = CONFIG;
    config.blocking = 0;
    config.commName = "other";
    fill(l, Float32, COUNT);
    for (int r = 0; r < n; ++r) members[r] = r;
    if (l->ranks > 1) OK(ncclGroupStart());
    EACH(l) {
        int code = ncclCommInitRankConfig(&comm[k], n, *other, rank_of(l, k), &config);
        TRUE(code == (l->ranks > 1 ? Success : InProgress));
    }
    if (l->ranks > 1) IS(ncclGroupEnd(), InProgress);
    EACH(l) {
        ncclResult_t health = InProgress;
        while (health == InProgress) {
            OK(ncclCommGetAsyncError(comm[k], &health));
            usleep(1000);
        }
        if (health != Success) fail(__FILE__, __LINE__, "opening", health);
    }
    sum_in(comm, l, members, n);
    EACH(l) OK(ncclCommDestroy(comm[k]));
}

static void *waits(void *comm) {
    float data = 1;
    return (void *)(long)ncclAllReduce(&data, &data, 1, Float32, Sum, comm, NULL);
}

/* A call that no other rank makes ends when another thread revokes the communicator, and not by itself. */
static void revoked(local_t *l, const ncclUniqueId *other) {
    ncclComm_t comm[MOST];
    begin(l);
    EACH(l) OK(ncclCommInitRank(&comm[k], n, *other, rank_of(l, k)));
    end(l);
    /* Rank 0 goes on when all have joined; the others may hear of what it does before they are done. */
    float data[MOST];
    begin(l);
    EACH(l) {
        data[k] = 1;
        int code = ncclAllReduce(&data[k], &data[k], 1, Float32, Sum, comm[k], NULL);
        TRUE(code == Success || (code == Remote && rank_of(l, k) != 0));
    }
    end(l);
    if (n > 1) {
        pthread_t thread;
        void *code;
        EACH(l) if (rank_of(l, k) == 0) {
            TRUE(pthread_create(&thread, NULL, waits, comm[k]) == 0);
            OK(ncclCommRevoke(comm[k], 0));
            pthread_join(thread, &code);
            TRUE((long)code == Remote || (long)code == InvalidUsage);
        }
        /* All ranks hear it. */
        EACH(l) {
            ncclResult_t health = Success;
            while (health == Success && rank_of(l, k) != 0) OK(ncclCommGetAsyncError(comm[k], &health));
            TRUE(rank_of(l, k) == 0 || health == Remote);
        }
    }
    EACH(l) OK(ncclCommAbort(comm[k]));
    EACH(l) IS(ncclCommAbort(comm[k]), InvalidArgument);
}

#endif
