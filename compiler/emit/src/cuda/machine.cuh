// The instructions that a kernel needs and the language has no words for; everything else is built on these, so a
// processor that is no GPU can run a kernel with another version of this file.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

#define INLINE __device__ __forceinline__

// Statements for each k below COUNT, which is 16 at most, with k a constant. Loops that are unrolled say the same, but
// the compiler copies them to wherever they are used before it unrolls them: they took it a tenth of its time.
#define EACH(COUNT, ...)                                                                                             \
    static_assert((COUNT) <= 16, "so many are written");                                                             \
    EACH_4(0, COUNT, __VA_ARGS__) EACH_4(4, COUNT, __VA_ARGS__)                                                      \
    EACH_4(8, COUNT, __VA_ARGS__) EACH_4(12, COUNT, __VA_ARGS__)
#define EACH_4(K, COUNT, ...)                                                                                        \
    EACH_1(K, COUNT, __VA_ARGS__) EACH_1(K + 1, COUNT, __VA_ARGS__)                                                  \
    EACH_1(K + 2, COUNT, __VA_ARGS__) EACH_1(K + 3, COUNT, __VA_ARGS__)
#define EACH_1(K, COUNT, ...)                                                                                        \
    if constexpr (constexpr u32 k = K; k < (COUNT)) {                                                                \
        __VA_ARGS__;                                                                                                 \
    }

// ---- weak accesses: ordered by waits, signals and block barriers ---------------------------------------

// Some neighbouring elements as they lie in memory: at least a word, so that they stay in registers.
template <u32 BYTES> struct Piece {
    u32 w[BYTES < 4 ? 1 : BYTES / 4];
};

// Nothing is read twice, so the first-level cache need not keep it. Volatile keeps these in order among themselves
// and with the strong ones below.
template <u32 BYTES> INLINE Piece<BYTES> fetch(u64 at) {
    Piece<BYTES> x;
    if constexpr (BYTES == 1) {
        asm volatile("ld.global.L1::no_allocate.u8 %0, [%1];" : "=r"(x.w[0]) : "l"(at) : "memory");
    } else if constexpr (BYTES == 2) {
        u16 half;
        asm volatile("ld.global.L1::no_allocate.u16 %0, [%1];" : "=h"(half) : "l"(at) : "memory");
        x.w[0] = half;
    } else if constexpr (BYTES == 4) {
        asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];" : "=r"(x.w[0]) : "l"(at) : "memory");
    } else if constexpr (BYTES == 8) {
        asm volatile("ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                     : "=r"(x.w[0]), "=r"(x.w[1]) : "l"(at) : "memory");
    } else {
        EACH(BYTES / 16,
             asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                          : "=r"(x.w[4 * k]), "=r"(x.w[4 * k + 1]), "=r"(x.w[4 * k + 2]), "=r"(x.w[4 * k + 3])
                          : "l"(at + 16 * k) : "memory"))
    }
    return x;
}

template <u32 BYTES> INLINE void put(u64 at, const Piece<BYTES> &x) {
    if constexpr (BYTES == 1) {
        asm volatile("st.global.u8 [%0], %1;" ::"l"(at), "r"(x.w[0]) : "memory");
    } else if constexpr (BYTES == 2) {
        asm volatile("st.global.u16 [%0], %1;" ::"l"(at), "h"((u16)x.w[0]) : "memory");
    } else if constexpr (BYTES == 4) {
        asm volatile("st.global.u32 [%0], %1;" ::"l"(at), "r"(x.w[0]) : "memory");
    } else if constexpr (BYTES == 8) {
        asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(at), "r"(x.w[0]), "r"(x.w[1]) : "memory");
    } else {
        EACH(BYTES / 16,
             asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at + 16 * k), "r"(x.w[4 * k]),
                          "r"(x.w[4 * k + 1]), "r"(x.w[4 * k + 2]), "r"(x.w[4 * k + 3]) : "memory"))
    }
}

// ---- strong accesses: words and packets, seen by all ranks -----------------------------------------------

template <bool ACQUIRE> INLINE u64 look(u64 word) {
    u64 value;
    if constexpr (ACQUIRE)
        asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    else
        asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}

INLINE u32 look32(u64 word) {
    u32 value;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

INLINE void tell(u64 word, u64 value) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

// Changes a word that several ranks change, in one step; returns what was there. Ordered on both sides.
INLINE u64 add_word(u64 word, u64 value) {
    u64 before;
    asm volatile("atom.acq_rel.sys.global.add.u64 %0, [%1], %2;" : "=l"(before) : "l"(word), "l"(value) : "memory");
    return before;
}

INLINE u64 swap_word(u64 word, u64 compared, u64 value) {
    u64 before;
    asm volatile("atom.acq_rel.sys.global.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(before) : "l"(word), "l"(compared), "l"(value) : "memory");
    return before;
}

// All that this thread knows to have happened is visible to whoever sees what it tells next.
INLINE void release() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

// 8 bytes of content, each half beside the epoch: a packet is read and written whole or in these halves.
struct Packet {
    u32 a, at_a, b, at_b;

    INLINE bool is(u32 epoch) const { return at_a == epoch && at_b == epoch; }
};

INLINE Packet peek(u64 at) {
    Packet p;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(p.a), "=r"(p.at_a), "=r"(p.b), "=r"(p.at_b) : "l"(at) : "memory");
    return p;
}

INLINE void post(u64 at, const Packet &p) {
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(p.a), "r"(p.at_a), "r"(p.b),
                 "r"(p.at_b) : "memory");
}

// ---- this GPU --------------------------------------------------------------------------------------------

// The first three words of a state. Its kernel is the only one that reads or writes it.
INLINE void look_state(u64 at, u32 &first, u32 &second, u32 &third) {
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, _}, [%3];"
                 : "=r"(first), "=r"(second), "=r"(third) : "l"(at) : "memory");
}

INLINE void tell_state(u64 at, u32 first, u32 second) {
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(at), "r"(first), "r"(second) : "memory");
}

// Whether this thread is the first to do so.
INLINE bool claim(u64 word) {
    u32 before;
    asm volatile("atom.relaxed.gpu.global.cas.b32 %0, [%1], 0, 1;" : "=r"(before) : "l"(word) : "memory");
    return before == 0;
}

// Counts a block that ends, after all that it did: those before it.
INLINE u32 count(u64 word) {
    u32 before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(word) : "memory");
    return before;
}

// A word of 32 bits that blocks wait for: what was done before it is published is seen by who sees its value.
INLINE u32 look_here(u64 word) {
    u32 value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

INLINE void publish(u64 word, u32 value) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

INLINE void reset(u64 word) { asm volatile("st.relaxed.gpu.global.u32 [%0], 0;" ::"l"(word) : "memory"); }

// Nanoseconds.
INLINE u64 now() {
    u64 time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
}

// Does nothing for half a microsecond.
INLINE void doze() { asm volatile("nanosleep.u32 500;"); }

// Ends the thread.
INLINE void quit() {
    asm volatile("exit;");
    __builtin_unreachable();
}

// Makes the compiler forget what it knows of a value.
INLINE void forget(u32 &x) { asm volatile("" : "+r"(x)); }
INLINE void forget(u64 &x) { asm volatile("" : "+l"(x)); }

// ---- conversions, to nearest, ties to even ---------------------------------------------------------------

INLINE float f16_to_f32(u32 bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((u16)bits));
    return value;
}

INLINE u32 f32_to_f16(float value) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

INLINE u32 f32_to_bf16(float value) {
    u16 bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

