/* The errors that callers get when something is wrong: faults quiet | mismatch | empty | killed | board. */
#include "calls.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static ncclUniqueId id;

/* One rank alone, and a mistake. */
static int quiet(void) {
    int version = 0;
    ncclComm_t comm = NULL;
    ncclGetVersion(&version);
    printf("version %d\n", version);
    int code = ncclGetUniqueId(&id);
    if (code == Success) code = ncclCommInitRank(&comm, 1, id, 0);
    if (code != Success) {
        printf("init: code %d, handle %p, %s: %s\n", code, comm, ncclGetErrorString(code), ncclGetLastError(NULL));
        return comm != NULL;
    }
    printf("opened\n");
    float data = 1;
    code = ncclAllReduce(NULL, &data, 1, Float32, Sum, comm, NULL);
    return ncclCommDestroy(comm) != Success || code != InvalidArgument;
}

static void *differs(void *rank) {
    ncclComm_t comm;
    float data[4] = {0};
    if (ncclCommInitRank(&comm, 2, id, (int)(long)rank) != Success) exit(1);
    int code = ncclAllReduce(data, data, rank ? 3 : 4, Float32, Sum, comm, NULL);
    ncclResult_t health = Success;
    ncclCommGetAsyncError(comm, &health);
    if (code == InvalidUsage) printf("mismatch: code %d, %s\n", code, ncclGetLastError(comm));
    if (code == Success || health == Success) exit(1);
    ncclCommAbort(comm);
    return NULL;
}

/* Two ranks of one call give other counts. */
static int mismatch(void) {
    pthread_t threads[2];
    if (ncclGetUniqueId(&id) != Success) return 1;
    for (long r = 0; r < 2; ++r) pthread_create(&threads[r], NULL, differs, (void *)r);
    for (int r = 0; r < 2; ++r) pthread_join(threads[r], NULL);
    return 0;
}

/* Calls without elements have their turn: addresses have no meaning, and messages are of both ends. */
static int nothing(ncclComm_t comm, long own) {
    float data[4] = {1, 1, 1, 1}, sent = (float)own, got = -1;
    void *at = own ? (void *)data : NULL;
    int peer = (int)!own, ends[4];
    if (ncclAllReduce(at, NULL, 0, Float32, Sum, comm, NULL) != Success) return 1;
    if (ncclGroupStart() != Success) return 1;
    ends[0] = ncclSend(at, 0, Float32, peer, comm, NULL);
    ends[1] = ncclRecv(NULL, 0, Float32, peer, comm, NULL);
    ends[2] = ncclSend(&sent, 1, Float32, peer, comm, NULL);
    ends[3] = ncclRecv(&got, 1, Float32, peer, comm, NULL);
    int empty = ncclBroadcast(at, at, 0, Float32, 1, comm, NULL);
    if (ncclGroupEnd() != Success || empty != Success || got != (float)peer) return 1;
    for (int m = 0; m < 4; ++m)
        if (ends[m] != Success) return 1;
    return ncclAllReduce(data, data, 4, Float32, Sum, comm, NULL) != Success || data[3] != 2;
}

static void *empties(void *rank) {
    ncclComm_t comm;
    long own = (long)rank;
    float data[4] = {0};
    if (ncclCommInitRank(&comm, 2, id, (int)own) != Success || nothing(comm, own)) exit(1);
    ncclGroupStart();
    ncclAllReduce(data, data, own ? 0 : 4, Float32, Sum, comm, NULL);
    int code = ncclGroupEnd();
    if (code == InvalidUsage) printf("empty: code %d, %s\n", code, ncclGetLastError(comm));
    if (code == Success) exit(1);
    ncclCommAbort(comm);
    return NULL;
}

/* Two ranks of one call, one of which has no elements, once in a call that both have made before with some. */
static int empty(void) {
    pthread_t threads[2];
    if (ncclGetUniqueId(&id) != Success) return 1;
    for (long r = 0; r < 2; ++r) pthread_create(&threads[r], NULL, empties, (void *)r);
    for (int r = 0; r < 2; ++r) pthread_join(threads[r], NULL);
    return 0;
}

static int rank(int own, const char *hex) {
    ncclComm_t comm;
    for (int b = 0; b < 128; ++b) {
        unsigned byte = 0;
        sscanf(hex + 2 * b, "%2x", &byte);
        id.internal[b] = (char)byte;
    }
    if (ncclCommInitRank(&comm, 2, id, own) != Success) {
        printf("%s\n", ncclGetLastError(NULL));
        return 1;
    }
    float data = 1;
    if (ncclAllReduce(&data, &data, 1, Float32, Sum, comm, NULL) != Success || data != 2) return 1;
    if (own == 1) kill(getpid(), SIGKILL);
    int code = ncclAllReduce(&data, &data, 1, Float32, Sum, comm, NULL);
    printf("killed: code %d, %s\n", code, ncclGetLastError(comm));
    ncclCommAbort(comm);
    return code != Remote;
}

/* One of two processes ends in the middle. */
static int killed(const char *self) {
    char hex[257];
    if (ncclGetUniqueId(&id) != Success) return 1;
    for (int b = 0; b < 128; ++b) sprintf(hex + 2 * b, "%02x", (unsigned char)id.internal[b]);
    pid_t children[2];
    for (int r = 0; r < 2; ++r) {
        fflush(stdout);
        children[r] = fork();
        if (children[r] == 0) {
            execl("/proc/self/exe", self, "rank", r ? "1" : "0", hex, (char *)NULL);
            _exit(3);
        }
    }
    int status[2] = {-1, -1};
    /* The one that is killed is waited for last: until then it is a zombie, which the other one must know. */
    for (int r = 0; r < 2; ++r) waitpid(children[r], &status[r], 0);
    return status[0] != 0 || !WIFSIGNALED(status[1]);
}

/* A process that serves the board of an id, until its input ends. */
static int board(void) {
    int code = ncclGetUniqueId(&id);
    printf("board: code %d, process %d, %s\n", code, (int)getpid(), code == Success ? "" : ncclGetLastError(NULL));
    fflush(stdout);
    getchar();
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "rank") == 0) return rank(atoi(argv[2]), argv[3]);
    if (argc != 2) return 2;
    if (strcmp(argv[1], "mismatch") == 0) return mismatch();
    if (strcmp(argv[1], "empty") == 0) return empty();
    if (strcmp(argv[1], "killed") == 0) return killed(argv[0]);
    if (strcmp(argv[1], "board") == 0) return board();
    return quiet();
}
