/* What the test programs check with: codes, elements of every type as numbers, and what a reduction makes of them. */
#ifndef CHECKS_H
#define CHECKS_H

#include "calls.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROOM 65536

/* The number of ranks. */
static int n;

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

#endif
