/* The steps that move data: collectives, messages, operators with a factor. */
#ifndef DATA_H
#define DATA_H

#include "local.h"

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

#endif
