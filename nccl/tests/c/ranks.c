/* Plays all of the interface on memory of the host, and compares what comes out with what it computes itself.
 *
 *   ranks WAY N     WAY: threads (a thread a rank), group (one thread for all ranks), processes (a process a rank)
 *
 * A step is a function that makes the calls of the ranks of this thread, in a group if there are several, and then
 * looks at their buffers. All buffers are poisoned before. */
#include "calls.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST 8
#define ROOM 65536
#define COUNT 1000

static int n;
static ncclUniqueId id;

/* The ranks of a thread. */
typedef struct {
    int first, ranks;
    ncclComm_t comm[MOST];
    unsigned char *in[MOST], *out[MOST];
} local_t;

static void fail(const char *file, int line, const char *what, int code) {
    printf("FAILED %s:%d: %s: %d, %s\n", file, line, what, code, ncclGetLastError(NULL));
    fflush(stdout);
    _exit(1);
}
#define OK(call)                                                                                                     \
    do {                                                                                                             \
        int code_ = (call);                                                                                          \
        if (code_ != Success) fail(__FILE__, __LINE__, #call, code_);                                                \
    } while (0)
#define IS(call, wanted)                                                                                             \
    do {                                                                                                             \
        int code_ = (call);                                                                                          \
        if (code_ != (wanted)) fail(__FILE__, __LINE__, #call " is not " #wanted, code_);                            \
    } while (0)
#define TRUE(condition)                                                                                              \
    do {                                                                                                             \
        if (!(condition)) fail(__FILE__, __LINE__, #condition, -1);                                                  \
    } while (0)

static const size_t sizes[Types] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

/* Elements as numbers; of halves those that are whole and small. */
static void put(void *at, int type, size_t i, double value) {
    switch (type) {
    case Int8: ((int8_t *)at)[i] = (int8_t)value; break;
    case Uint8: ((uint8_t *)at)[i] = (uint8_t)value; break;
    case Int32: ((int32_t *)at)[i] = (int32_t)value; break;
    case Uint32: ((uint32_t *)at)[i] = (uint32_t)value; break;
    case Int64: ((int64_t *)at)[i] = (int64_t)value; break;
    case Uint64: ((uint64_t *)at)[i] = (uint64_t)value; break;
    case Float32: ((float *)at)[i] = (float)value; break;
    case Float64: ((double *)at)[i] = value; break;
    case Float16:
    case Bfloat16: {
        float single = (float)value;
        uint32_t bits;
        memcpy(&bits, &single, 4);
        int exponent = (int)(bits >> 23 & 255) - 127 + 15;
        uint16_t half = (uint16_t)(exponent << 10 | (bits >> 13 & 1023));
        ((uint16_t *)at)[i] = type == Bfloat16 ? (uint16_t)(bits >> 16) : value == 0 ? 0 : half;
        break;
    }
    }
}

static double pattern(int rank, size_t i) { return (double)((rank * 7 + i * 13 + i / 11) % 3 + 1); }

static double folded(int op, size_t i) {
    double value = pattern(0, i);
    for (int r = 1; r < n; ++r) {
        double next = pattern(r, i);
        if (op == Sum || op == Avg) value += next;
        if (op == Prod) value *= next;
        if (op == Max && next > value) value = next;
        if (op == Min && next < value) value = next;
    }
    return op == Avg ? (double)((int)value / n) : value;
}

static int rank_of(const local_t *l, int k) { return l->first + k; }

static void begin(const local_t *l) {
    if (l->ranks > 1) OK(ncclGroupStart());
}
static void end(const local_t *l) {
    if (l->ranks > 1) OK(ncclGroupEnd());
}
#define EACH(l) for (int k = 0; k < (l)->ranks; ++k)

/* Fills the inputs with the pattern of their ranks, and poisons the outputs. */
static void fill(local_t *l, int type, size_t count) {
    EACH(l) {
        memset(l->in[k], 0xaa, ROOM);
        memset(l->out[k], 0xbb, ROOM);
        for (size_t i = 0; i < count; ++i) put(l->in[k], type, i, pattern(rank_of(l, k), i));
    }
}

static void poisoned(const unsigned char *at, size_t from, int byte) {
    for (size_t i = from; i < ROOM; ++i) TRUE(at[i] == byte);
}

static void element(const void *at, int type, size_t i, double wanted) {
    unsigned char expected[8];
    put(expected, type, 0, wanted);
    if (memcmp((const char *)at + i * sizes[type], expected, sizes[type]) != 0) {
        printf("FAILED element %zu of type %d is not %g\n", i, type, wanted);
        fflush(stdout);
        _exit(1);
    }
}

static void reductions(local_t *l) {
    for (int type = 0; type < Float8e4m3; ++type)
        for (int op = Sum; op <= Avg; ++op)
            for (int inside = 0; inside < 2; ++inside) {
                if (op == Avg && (type == Float16 || type == Bfloat16 || type == Float32 || type == Float64)) continue;
                if (op == Prod && type == Int8 && n > 4) continue;
                fill(l, type, COUNT);
                begin(l);
                EACH(l) OK(ncclAllReduce(l->in[k], inside ? l->in[k] : l->out[k], COUNT, type, op, l->comm[k], NULL));
                end(l);
                EACH(l) {
                    unsigned char *out = inside ? l->in[k] : l->out[k];
                    for (size_t i = 0; i < COUNT; ++i) element(out, type, i, folded(op, i));
                    poisoned(out, COUNT * sizes[type], inside ? 0xaa : 0xbb);
                }
                for (int root = 0; root < n; ++root) {
                    fill(l, type, COUNT);
                    begin(l);
                    EACH(l) {
                        int own = rank_of(l, k) == root;
                        void *out = inside ? (own ? l->in[k] : NULL) : l->out[k];
                        OK(ncclReduce(l->in[k], out, COUNT, type, op, root, l->comm[k], NULL));
                    }
                    end(l);
                    EACH(l) {
                        int own = rank_of(l, k) == root;
                        for (size_t i = 0; i < COUNT; ++i) {
                            if (own) element(inside ? l->in[k] : l->out[k], type, i, folded(op, i));
                            else element(l->in[k], type, i, pattern(rank_of(l, k), i));
                        }
                        poisoned(l->out[k], own && !inside ? COUNT * sizes[type] : 0, 0xbb);
                    }
                }
            }
}

static void scattered_sums(local_t *l) {
    for (int inside = 0; inside < 2; ++inside) {
        fill(l, Float32, (size_t)COUNT * n);
        begin(l);
        EACH(l) {
            void *out = inside ? l->in[k] + 4 * COUNT * rank_of(l, k) : l->out[k];
            OK(ncclReduceScatter(l->in[k], out, COUNT, Float32, Sum, l->comm[k], NULL));
        }
        end(l);
        EACH(l) {
            int r = rank_of(l, k);
            void *out = inside ? l->in[k] + 4 * COUNT * r : l->out[k];
            for (size_t i = 0; i < COUNT; ++i) element(out, Float32, i, folded(Sum, i + (size_t)COUNT * r));
        }
    }
}

static void copies(local_t *l) {
    for (int type = 0; type < Types; ++type)
        for (int inside = 0; inside < 2; ++inside) {
            size_t block = 100 * sizes[type];
            for (int root = 0; root < n; ++root) {
                EACH(l) {
                    memset(l->in[k], 'a' + rank_of(l, k), ROOM);
                    memset(l->out[k], 0xbb, ROOM);
                }
                begin(l);
                EACH(l) {
                    if (inside) OK(ncclBcast(l->in[k], 100, type, root, l->comm[k], NULL));
                    else OK(ncclBroadcast(l->in[k], l->out[k], 100, type, root, l->comm[k], NULL));
                }
                end(l);
                EACH(l) {
                    unsigned char *out = inside ? l->in[k] : l->out[k];
                    for (size_t i = 0; i < block; ++i) TRUE(out[i] == 'a' + root);
                    poisoned(out, block, inside ? 'a' + rank_of(l, k) : 0xbb);
                    if (!inside) poisoned(l->in[k], 0, 'a' + rank_of(l, k));
                }
                /* Each rank's block, gathered on the root; in place it lies there already. */
                EACH(l) memset(l->out[k], 0xbb, ROOM);
                begin(l);
                EACH(l) {
                    int own = rank_of(l, k) == root;
                    if (inside) memset(l->out[k] + block * root, 'a' + rank_of(l, k), block);
                    void *in = inside && own ? l->out[k] + block * root : l->in[k];
                    if (!inside) memset(l->in[k], 'a' + rank_of(l, k), ROOM);
                    if (inside && !own) memset(l->in[k], 'a' + rank_of(l, k), ROOM);
                    OK(ncclGather(in, own || !inside ? l->out[k] : NULL, 100, type, root, l->comm[k], NULL));
                }
                end(l);
                EACH(l) if (rank_of(l, k) == root)
                    for (size_t i = 0; i < block * n; ++i) TRUE(l->out[k][i] == 'a' + (int)(i / block));
                /* And back again. */
                EACH(l) {
                    for (size_t i = 0; i < block * n; ++i) l->in[k][i] = (unsigned char)('A' + i / block);
                    memset(l->out[k], 0xbb, ROOM);
                }
                begin(l);
                EACH(l) {
                    int own = rank_of(l, k) == root;
                    void *out = inside && own ? l->in[k] + block * root : l->out[k];
                    OK(ncclScatter(own ? l->in[k] : NULL, out, 100, type, root, l->comm[k], NULL));
                }
                end(l);
                EACH(l) {
                    int own = rank_of(l, k) == root;
                    unsigned char *out = inside && own ? l->in[k] + block * root : l->out[k];
                    for (size_t i = 0; i < block; ++i) TRUE(out[i] == 'A' + rank_of(l, k));
                }
            }
            EACH(l) {
                memset(l->out[k], 0xbb, ROOM);
                memset(inside ? l->out[k] + block * rank_of(l, k) : l->in[k], 'a' + rank_of(l, k), block);
            }
            begin(l);
            EACH(l) {
                void *in = inside ? l->out[k] + block * rank_of(l, k) : l->in[k];
                OK(ncclAllGather(in, l->out[k], 100, type, l->comm[k], NULL));
            }
            end(l);
            EACH(l) {
                for (size_t i = 0; i < block * n; ++i) TRUE(l->out[k][i] == 'a' + (int)(i / block));
                poisoned(l->out[k], block * n, 0xbb);
            }
            EACH(l) {
                memset(l->out[k], 0xbb, ROOM);
                for (size_t i = 0; i < block * n; ++i)
                    l->in[k][i] = (unsigned char)(16 * rank_of(l, k) + (int)(i / block));
            }
            EACH(l) if (inside) memcpy(l->out[k], l->in[k], block * n);
            begin(l);
            EACH(l) OK(ncclAlltoAll(inside ? l->out[k] : l->in[k], l->out[k], 100, type, l->comm[k], NULL));
            end(l);
            EACH(l) {
                for (size_t i = 0; i < block * n; ++i)
                    TRUE(l->out[k][i] == 16 * (int)(i / block) + rank_of(l, k));
                poisoned(l->out[k], block * n, 0xbb);
            }
        }
}

/* Every rank sends to every rank, itself too, so many messages of lengths of their own. */
static void messages(local_t *l, int each) {
    size_t space = (size_t)each * 20;
    EACH(l) {
        memset(l->out[k], 0xbb, ROOM);
        for (size_t i = 0; i < ROOM; ++i) l->in[k][i] = (unsigned char)(rank_of(l, k) * 31 + i * 7);
    }
    OK(ncclGroupStart());
    EACH(l) for (int m = 0; m < each; ++m) for (int peer = 0; peer < n; ++peer) {
        int r = rank_of(l, k);
        /* Sends of one rank and receives of another stand in another order. */
        int other = (peer + r) % n;
        OK(ncclSend(l->in[k] + space * other + 20 * m, (size_t)(m % 20), Uint8, other, l->comm[k], NULL));
        OK(ncclRecv(l->out[k] + space * peer + 20 * m, (size_t)(m % 20), Uint8, peer, l->comm[k], NULL));
    }
    OK(ncclGroupEnd());
    EACH(l) for (int peer = 0; peer < n; ++peer) for (int m = 0; m < each; ++m) for (int i = 0; i < 20; ++i) {
        int r = rank_of(l, k);
        unsigned char sent = (unsigned char)(peer * 31 + (int)(space * r + 20 * m + i) * 7);
        TRUE(l->out[k][space * peer + 20 * m + i] == (i < m % 20 ? sent : 0xbb));
    }
}

/* A message to one neighbour, without a group: one rank of a pair sends first. */
static void single_messages(local_t *l) {
    if (l->ranks > 1 || n < 2) return;
    int r = rank_of(l, 0), peer = r ^ 1;
    if (peer >= n) return;
    memset(l->in[0], 'a' + r, ROOM);
    memset(l->out[0], 0xbb, ROOM);
    for (int turn = 0; turn < 2; ++turn) {
        if ((r & 1) == turn) OK(ncclSend(l->in[0], 10000, Float16, peer, l->comm[0], NULL));
        else OK(ncclRecv(l->out[0], 10000, Float16, peer, l->comm[0], NULL));
    }
    for (size_t i = 0; i < 20000; ++i) TRUE(l->out[0][i] == 'a' + peer);
    poisoned(l->out[0], 20000, 0xbb);
}

/* Collectives and messages in one group, in another order on each rank. */
static void mixed(local_t *l) {
    fill(l, Float32, COUNT);
    OK(ncclGroupStart());
    OK(ncclGroupStart());
    EACH(l) {
        int r = rank_of(l, k), right = (r + 1) % n, left = (r + n - 1) % n;
        unsigned char *out = l->out[k];
        if (r & 1) OK(ncclSend(l->in[k], COUNT, Float32, right, l->comm[k], NULL));
        OK(ncclAllReduce(l->in[k], out, COUNT, Float32, Sum, l->comm[k], NULL));
        if (!(r & 1)) OK(ncclSend(l->in[k], COUNT, Float32, right, l->comm[k], NULL));
        OK(ncclAllReduce(l->in[k], out + 8 * COUNT, COUNT, Float32, Max, l->comm[k], NULL));
        OK(ncclRecv(out + 4 * COUNT, COUNT, Float32, left, l->comm[k], NULL));
    }
    OK(ncclGroupEnd());
    EACH(l) poisoned(l->out[k], 0, 0xbb);
    OK(ncclGroupEnd());
    EACH(l) for (size_t i = 0; i < COUNT; ++i) {
        element(l->out[k], Float32, i, folded(Sum, i));
        element(l->out[k] + 4 * COUNT, Float32, i, pattern((rank_of(l, k) + n - 1) % n, i));
        element(l->out[k] + 8 * COUNT, Float32, i, folded(Max, i));
    }
}

static void factors(local_t *l) {
    fill(l, Float32, COUNT);
    ncclRedOp_t op[MOST];
    EACH(l) {
        float factor = (float)(rank_of(l, k) + 1);
        OK(ncclRedOpCreatePreMulSum(&op[k], &factor, Float32, 1, l->comm[k]));
        TRUE(op[k] > Avg);
    }
    begin(l);
    EACH(l) OK(ncclAllReduce(l->in[k], l->out[k], COUNT, Float32, op[k], l->comm[k], NULL));
    EACH(l) OK(ncclRedOpDestroy(op[k], l->comm[k]));
    end(l);
    EACH(l) for (size_t i = 0; i < COUNT; ++i) {
        double wanted = 0;
        for (int r = 0; r < n; ++r) wanted += (r + 1) * pattern(r, i);
        element(l->out[k], Float32, i, wanted);
    }
    EACH(l) IS(ncclRedOpDestroy(op[k], l->comm[k]), InvalidArgument);
}

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
    /* A group with a mistake is not played. */
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

static ncclUniqueId others[2];

static void play(local_t *l) {
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
    play(&l);
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
        play(&l);
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
        play(&l);
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
