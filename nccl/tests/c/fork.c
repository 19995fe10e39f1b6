/* A process that is forked from a rank's is no rank: its calls are refused, and the ranks go on. It may have a
   communicator of its own. Children are made by fork, and by the system call alone. */
#define _GNU_SOURCE
#include "calls.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static ncclUniqueId id;
static ncclComm_t comms[2];
static int failed;

static void *opens(void *rank) {
    long own = (long)rank;
    failed |= ncclCommInitRank(&comms[own], 2, id, (int)own) != Success;
    return NULL;
}

static void *calls(void *rank) {
    for (int turn = 1; turn < 4; ++turn) {
        float data = turn;
        int code = ncclAllReduce(&data, &data, 1, Float32, Sum, comms[(long)rank], NULL);
        if (code != Success || data != 2 * turn) {
            printf("rank %ld, turn %d: code %d, %g, %s\n", (long)rank, turn, code, data, ncclGetLastError(NULL));
            failed = 1;
        }
    }
    return NULL;
}

static void both(void *(*function)(void *)) {
    pthread_t threads[2];
    for (long r = 0; r < 2; ++r) pthread_create(&threads[r], NULL, function, (void *)r);
    for (int r = 0; r < 2; ++r) pthread_join(threads[r], NULL);
}

static void refused(const char *name, int code) {
    char whose[64];
    snprintf(whose, sizeof whose, "belongs to process %d, and process %d", (int)getppid(), (int)getpid());
    const char *said = ncclGetLastError(NULL);
    if (code == InvalidUsage && strstr(said, whose) != NULL) return;
    printf("%s: code %d, %s\n", name, code, said);
    failed = 1;
}

static void child(void) {
    float data = 100;
    int count = 0;
    ncclResult_t health = Success;
    ncclComm_t made = NULL;
    refused("all_reduce", ncclAllReduce(&data, &data, 1, Float32, Sum, comms[0], NULL));
    refused("send", ncclSend(&data, 1, Float32, 1, comms[0], NULL));
    refused("recv", ncclRecv(&data, 1, Float32, 1, comms[0], NULL));
    refused("count", ncclCommCount(comms[0], &count));
    refused("split", ncclCommSplit(comms[0], 0, 0, &made, NULL));
    refused("health", ncclCommGetAsyncError(comms[0], &health));
    refused("finalize", ncclCommFinalize(comms[0]));
    refused("abort", ncclCommAbort(comms[0]));
    refused("destroy", ncclCommDestroy(comms[1]));
    /* A job of its own, at a board of its own. */
    failed |= ncclGetUniqueId(&id) != Success;
    both(opens);
    both(calls);
    failed |= ncclCommAbort(comms[0]) != Success || ncclCommAbort(comms[1]) != Success;
}

int main(void) {
    for (int way = 0; way < 2; ++way) {
        if (ncclGetUniqueId(&id) != Success) return 1;
        both(opens);
        both(calls);
        fflush(stdout);
        long pid = way == 0 ? fork() : syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
        if (pid == 0) {
            child();
            fflush(stdout);
            _exit(failed);
        }
        int status = -1;
        waitpid((pid_t)pid, &status, 0);
        both(calls);
        if (status != 0 || failed) return 1;
        printf("children by %s are refused, and the ranks go on\n", way == 0 ? "fork" : "clone");
        if (ncclCommAbort(comms[0]) != Success || ncclCommAbort(comms[1]) != Success) return 1;
    }
    return 0;
}
