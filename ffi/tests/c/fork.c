// A process that is forked from a rank's is no rank: all that it calls on what it inherits fails by RL0718, it ends at
// once, and the ranks go on. Children are made by fork, and by the system call alone, of which no handler learns.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "roundelay.h"

enum { FORKED = 718, COUNT = 4 };

static rl_comm *ranks[2];
static rl_window *windows[2];
static rl_work *pending;
static float received[COUNT];
static uint64_t exposed[2][COUNT];

static void *calls(void *rank) {
    rl_comm *comm = ranks[(intptr_t)rank];
    for (int turn = 1; turn < 4; ++turn) {
        float data[COUNT] = {turn, turn, turn, turn};
        if (rl_all_reduce(comm, data, COUNT, RL_F32, RL_SUM, NULL, NULL) != 0 || data[3] != 2 * turn) return "calls";
    }
    return NULL;
}

static void *opens(void *rank) {
    intptr_t own = (intptr_t)rank;
    uint32_t all = RL_READ | RL_WRITE | RL_ATOMICS;
    return rl_window_create(ranks[own], exposed[own], COUNT, RL_U64, all, NULL, &windows[own]) == 0 ? NULL : "opens";
}

static void *uses(void *rank) {
    intptr_t own = (intptr_t)rank;
    uint32_t peer = 1 - (uint32_t)own;
    uint64_t data = 7 + (uint64_t)own;
    if (rl_window_put(windows[own], &data, 1, peer, 2, NULL, NULL) != 0) return "puts";
    if (rl_window_signal(windows[own], peer, NULL) != 0 || rl_window_wait_signal(windows[own], peer, NULL) != 0) return "signals";
    if (exposed[own][2] != 7 + peer || exposed[own][0] != 0) return "puts elsewhere";
    return rl_window_free(windows[own]) == 0 ? NULL : "frees";
}

static int both(void *(*function)(void *)) {
    pthread_t threads[2];
    int failed = 0;
    for (intptr_t rank = 0; rank < 2; ++rank) pthread_create(&threads[rank], NULL, function, (void *)rank);
    for (int rank = 0; rank < 2; ++rank) {
        void *said;
        pthread_join(threads[rank], &said);
        if (said != NULL) printf("rank %d: %s\n", rank, (char *)said);
        failed += said != NULL;
    }
    return failed;
}

static int refused(const char *name, int32_t status) {
    rl_error error;
    char whose[64];
    rl_last_error(&error);
    snprintf(whose, sizeof whose, "belongs to process %d, and process %d", (int)getppid(), (int)getpid());
    int well = status == FORKED && error.kind == RL_KIND_USAGE && strstr(error.text, whose) != NULL;
    if (!well) printf("%s: %d, %s\n", name, status, error.text);
    return !well;
}

// Returns the number of calls of a child that were not refused.
static int child(void) {
    float data[COUNT] = {100};
    uint64_t word = 100, len;
    uint32_t both_ranks[2] = {0, 1};
    int32_t done = 0;
    rl_message message = {data, COUNT, RL_F32, 1, 1};
    rl_comm *comm = ranks[0], *made;
    rl_window *window;
    rl_allocation *allocation;
    void *address;
    char text[512];
    int failed = *rl_process_word() != (uint32_t)getpid();
    failed += refused("all_reduce", rl_all_reduce(comm, data, COUNT, RL_F32, RL_SUM, NULL, NULL));
    failed += refused("barrier", rl_barrier(comm, NULL, NULL));
    failed += refused("send", rl_send(comm, data, COUNT, RL_F32, 1, 3, NULL, NULL));
    failed += refused("recv", rl_recv(comm, data, COUNT, RL_F32, 1, 3, NULL, NULL));
    failed += refused("batch", rl_batch(comm, &message, 1, NULL, NULL));
    failed += refused("split", rl_split(comm, both_ranks, 2, &made));
    failed += refused("cuda", rl_cuda(comm, -1, &made));
    failed += refused("shrink", rl_shrink(comm, 3000));
    failed += refused("handle", rl_reconfigure_handle(comm, text, sizeof text, &len));
    failed += refused("window", rl_window_create(comm, &word, 1, RL_U64, RL_READ, NULL, &window));
    failed += refused("alloc", rl_alloc(comm, 64, &allocation, &address));
    failed += refused("put", rl_window_put(windows[0], &word, 1, 1, 0, NULL, NULL));
    failed += refused("get", rl_window_get(windows[0], &word, 1, 1, 0, NULL, NULL));
    failed += refused("fetch_add", rl_window_fetch_add(windows[0], 1, 1, 0, &word, NULL));
    failed += refused("signal", rl_window_signal(windows[0], 1, NULL));
    failed += refused("wait_signal", rl_window_wait_signal(windows[0], 1, NULL));
    failed += refused("flush", rl_window_flush(windows[0], 1, NULL, NULL));
    failed += refused("work", rl_work_wait(pending, UINT64_MAX, &done)) + !done;
    failed += refused("abort", rl_abort(comm, "the child ends it"));
    failed += rl_work_is_done(pending, &done) != 0 || !done || rl_is_aborted(comm);
    // A destructor does nothing but to free the copies of the child.
    rl_work_free(pending);
    failed += refused("window_free", rl_window_free(windows[0]));
    rl_window_drop(windows[1]);
    failed += rl_free(ranks[0]) != 0 || rl_free(ranks[1]) != 0;
    // It may have ranks of its own.
    failed += rl_local(2, ranks) != 0 || both(calls) != 0;
    return failed;
}

static long raw_clone(void) {
    return syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

int main(void) {
    for (int way = 0; way < 2; ++way) {
        const uint32_t *word = rl_process_word();
        if (rl_local(2, ranks) != 0 || both(calls) != 0 || both(opens) != 0) return 1;
        if (rl_recv(ranks[0], received, COUNT, RL_F32, 1, 9, NULL, &pending) != 0) return 1;
        fflush(stdout);
        long pid = way == 0 ? fork() : raw_clone();
        if (pid == 0) {
            int failed = (*word != 0) + child();
            fflush(stdout);
            _exit(failed != 0);
        }
        int status = -1;
        waitpid((pid_t)pid, &status, 0);
        if (status != 0) return 1;
        float sent[COUNT] = {1, 2, 3, 4};
        if (rl_send(ranks[1], sent, COUNT, RL_F32, 0, 9, NULL, NULL) != 0) return 1;
        if (rl_work_wait(pending, UINT64_MAX, NULL) != 0 || received[3] != 4) return 1;
        rl_work_free(pending);
        if (both(uses) != 0 || both(calls) != 0) return 1;
        if (rl_free(ranks[0]) != 0 || rl_free(ranks[1]) != 0) return 1;
        memset(exposed, 0, sizeof exposed);
        printf("children by %s are refused, and the ranks go on\n", way == 0 ? "fork" : "clone");
    }
    return 0;
}
