/* Runs all of the interface on memory of the host, and compares what comes out with what it computes itself.
 *
 *   ranks WAY N     WAY: threads (a thread a rank), group (one thread for all ranks), processes (a process a rank) */
#include "data.h"
#include "parts.h"

#include <pthread.h>
#include <sys/wait.h>

static ncclUniqueId id;
static ncclUniqueId others[2];

static void says(const char *part) {
    if (strstr(ncclGetLastError(NULL), part) == NULL) fail(__FILE__, __LINE__, part, -1);
}

/* What is wrong is refused, says why, and leaves the communicator usable. */
static void mistakes(local_t *l) {
    ncclComm_t comm = l->comm[0];
    void *in = l->in[0], *out = l->out[0];
    IS(ncclAllReduce(in, out, 1, Float8e4m3, Sum, comm, NULL), InvalidArgument);
    says("ncclFloat8e4m3");
    IS(ncclAllReduce(in, out, 1, Types, Sum, comm, NULL), InvalidArgument);
    IS(ncclAllReduce(in, out, 1, Float32, 5, comm, NULL), InvalidArgument);
    says("5 is no operator");
    IS(ncclAllReduce(NULL, out, 1, Float32, Sum, comm, NULL), InvalidArgument);
    says("sendbuff is NULL");
    IS(ncclBroadcast(in, out, 1, Float32, n, comm, NULL), InvalidArgument);
    says("root is");
    IS(ncclSend(in, 1, Float32, -1, comm, NULL), InvalidArgument);
    IS(ncclAllReduce(in, out, (size_t)-1 / 2, Float32, Sum, comm, NULL), InvalidArgument);
    IS(ncclAllReduce(in, out, 1, Float32, Sum, NULL, NULL), InvalidArgument);
    says("comm is NULL");
    IS(ncclAllReduce(in, out, 1, Float32, Sum, in, NULL), InvalidArgument);
    says("no communicator");
    IS(ncclGroupEnd(), InvalidUsage);
    /* A group with a mistake is not run. */
    memset(out, 0xbb, ROOM);
    OK(ncclGroupStart());
    OK(ncclAllReduce(in, out, COUNT, Float32, Sum, comm, NULL));
    IS(ncclAllReduce(in, out, COUNT, 77, Sum, comm, NULL), InvalidArgument);
    IS(ncclGroupEnd(), InvalidArgument);
    poisoned(out, 0, 0xbb);
    /* A simulated one neither. */
    ncclSimInfo_t info = {sizeof info, 0x74685283, 22809, 5.0f};
    OK(ncclGroupStart());
    OK(ncclAllReduce(in, out, COUNT, Float32, Sum, comm, NULL));
    OK(ncclGroupSimulateEnd(&info));
    TRUE(info.estimatedTime < 0);
    poisoned(out, 0, 0xbb);
    ncclUniqueId none;
    memset(&none, 0, sizeof none);
    ncclComm_t made = comm;
    IS(ncclCommInitRank(&made, 1, none, 0), InvalidArgument);
    says("no unique id");
    IS(ncclCommInitRank(&made, 1, id, 1), InvalidArgument);
    IS(ncclCommInitRank(&made, 0, id, 0), InvalidArgument);
    ncclConfig_t config = CONFIG;
    config.blocking = 3;
    IS(ncclCommInitRankConfig(&made, 1, id, 0, &config), InvalidArgument);
    says("blocking is 3");
    IS(ncclCommSplit(comm, -2, 0, &made, NULL), InvalidArgument);
    IS(ncclCommRevoke(comm, 1), InvalidArgument);
    TRUE(strcmp(ncclGetErrorString(Success), "no error") == 0);
}

static void memory(local_t *l) {
    void *own = NULL, *handle = NULL;
    ncclWindow_t window = NULL;
    OK(ncclMemAlloc(&own, 1000));
    memset(own, 1, 1000);
    EACH(l) {
        OK(ncclCommRegister(l->comm[k], own, 1000, &handle));
        OK(ncclCommDeregister(l->comm[k], handle));
        IS(ncclCommDeregister(l->comm[k], handle), InvalidArgument);
        OK(ncclCommWindowRegister(l->comm[k], own, 1000, &window, 1));
        TRUE(window != NULL);
        OK(ncclCommWindowDeregister(l->comm[k], window));
    }
    OK(ncclMemFree(own));
}

/* Memory goes and comes back: calls in between fail, and those afterwards are right. */
static void suspended(local_t *l) {
    unsigned long long had[MOST], has = 0;
    EACH(l) {
        IS(ncclCommResume(l->comm[k]), InvalidUsage);
        says("is not suspended");
        IS(ncclCommSuspend(l->comm[k], 0), InvalidArgument);
        IS(ncclCommSuspend(l->comm[k], 3), InvalidArgument);
        IS(ncclCommMemStats(l->comm[k], 4, &has), InvalidArgument);
        IS(ncclCommMemStats(l->comm[k], MemTotal, NULL), InvalidArgument);
        OK(ncclCommMemStats(l->comm[k], MemPersist, &has));
        TRUE(has == 0);
        OK(ncclCommMemStats(l->comm[k], MemTotal, &had[k]));
        OK(ncclCommMemStats(l->comm[k], MemSuspended, &has));
        TRUE(had[k] > 0 && has == 0);
    }
    begin(l);
    EACH(l) OK(ncclCommSuspend(l->comm[k], 1));
    end(l);
    EACH(l) {
        OK(ncclCommMemStats(l->comm[k], MemSuspended, &has));
        TRUE(has == 1);
        OK(ncclCommMemStats(l->comm[k], MemSuspend, &has));
        TRUE(n == 1 || has < had[k]);
        IS(ncclAllReduce(l->in[k], l->out[k], 1, Float32, Sum, l->comm[k], NULL), InvalidUsage);
        says("suspended");
    }
    begin(l);
    EACH(l) OK(ncclCommResume(l->comm[k]));
    end(l);
    reductions(l);
}

static void run(local_t *l) {
    EACH(l) {
        l->in[k] = malloc(ROOM);
        l->out[k] = malloc(ROOM);
    }
    begin(l);
    EACH(l) OK(ncclCommInitRank(&l->comm[k], n, id, rank_of(l, k)));
    end(l);
    reductions(l);
    scattered_sums(l);
    copies(l);
    messages(l, 1);
    messages(l, 200);
    single_messages(l);
    mixed(l);
    factors(l);
    mistakes(l);
    memory(l);
    suspended(l);
    parts(l);
    fewer(l);
    open_without_waiting(l, &others[0]);
    revoked(l, &others[1]);
    reductions(l);
    EACH(l) {
        OK(ncclCommFinalize(l->comm[k]));
        IS(ncclAllReduce(l->in[k], l->out[k], 1, Float32, Sum, l->comm[k], NULL), InvalidUsage);
        OK(ncclCommDestroy(l->comm[k]));
        IS(ncclCommDestroy(l->comm[k]), InvalidArgument);
        free(l->in[k]);
        free(l->out[k]);
    }
}

static void *thread_of(void *rank) {
    local_t l = {.first = (int)(long)rank, .ranks = 1};
    run(&l);
    return NULL;
}

/* All ranks of this process, by the function that needs no id. */
static void all_at_once(void) {
    ncclComm_t comm[MOST];
    float data[MOST];
    OK(ncclCommInitAll(comm, n, NULL));
    OK(ncclGroupStart());
    for (int r = 0; r < n; ++r) {
        data[r] = (float)r;
        OK(ncclAllReduce(&data[r], &data[r], 1, Float32, Sum, comm[r], NULL));
    }
    OK(ncclGroupEnd());
    for (int r = 0; r < n; ++r) TRUE(data[r] == (float)(n * (n - 1) / 2));
    for (int r = 0; r < n; ++r) OK(ncclCommDestroy(comm[r]));
}

int main(int argc, char **argv) {
    n = argc > 2 ? atoi(argv[2]) : 0;
    if (n < 1 || n > MOST) return 2;
    if (strcmp(argv[1], "rank") == 0) {
        ncclUniqueId *ids[3] = {&id, &others[0], &others[1]};
        for (int i = 0; i < 3; ++i)
            for (int b = 0; b < 128; ++b) {
                unsigned byte = 0;
                sscanf(argv[4 + i] + 2 * b, "%2x", &byte);
                ids[i]->internal[b] = (char)byte;
            }
        local_t l = {.first = atoi(argv[3]), .ranks = 1};
        run(&l);
        return 0;
    }
    int version = 0;
    OK(ncclGetVersion(&version));
    TRUE(version == 22809);
    OK(ncclGetUniqueId(&id));
    OK(ncclGetUniqueId(&others[0]));
    OK(ncclGetUniqueId(&others[1]));
    if (strcmp(argv[1], "group") == 0) {
        local_t l = {.first = 0, .ranks = n};
        run(&l);
        all_at_once();
    } else if (strcmp(argv[1], "threads") == 0) {
        pthread_t threads[MOST];
        for (long r = 0; r < n; ++r) TRUE(pthread_create(&threads[r], NULL, thread_of, (void *)r) == 0);
        for (int r = 0; r < n; ++r) pthread_join(threads[r], NULL);
    } else {
        /* The process that made the ids serves the board, and is no rank: any may be. */
        for (long r = 0; r < n; ++r) {
            fflush(stdout);
            if (fork() == 0) {
                char rank[16], hex[3][257];
                const ncclUniqueId *ids[3] = {&id, &others[0], &others[1]};
                for (int i = 0; i < 3; ++i)
                    for (int b = 0; b < 128; ++b)
                        sprintf(hex[i] + 2 * b, "%02x", (unsigned char)ids[i]->internal[b]);
                sprintf(rank, "%ld", r);
                /* A new program: what a fork keeps of a process with threads is not to be relied on. */
                execl("/proc/self/exe", argv[0], "rank", argv[2], rank, hex[0], hex[1], hex[2], (char *)NULL);
                _exit(3);
            }
        }
        for (int r = 0; r < n; ++r) {
            int status = 0;
            wait(&status);
            if (status != 0) {
                printf("FAILED a process ended with %d\n", status);
                return 1;
            }
        }
    }
    printf("%s %d: all is as computed\n", argv[1], n);
    return 0;
}
