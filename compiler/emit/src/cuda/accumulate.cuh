
// ---- accumulates of windows: see accumulate.rs ---------------------------------------------------------------

struct Accumulate {
    Params params;
    u64 there, data, elements;
};

// In place of `swap_word`, which orders what is around it: here a signal or the end of the kernel does.
INLINE u32 swap_bits(u64 word, u32 compared, u32 value) {
    u32 before;
    asm volatile("atom.relaxed.sys.global.cas.b32 %0, [%1], %2, %3;"
                 : "=r"(before) : "l"(word), "r"(compared), "r"(value) : "memory");
    return before;
}

INLINE u64 swap_bits(u64 word, u64 compared, u64 value) {
    u64 before;
    asm volatile("atom.relaxed.sys.global.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(before) : "l"(word), "l"(compared), "l"(value) : "memory");
    return before;
}

// Combines an element with the one that is there. Elements of less than 4 bytes are changed in the word around them,
// whose other bytes are written as they were, in one step.
INLINE void accumulate(u64 there, u64 data) {
    using Bits = decltype(Format::store(Value()));
    constexpr u32 BYTES = Format::BYTES;
    constexpr Bits MASK = BYTES < 4 ? (Bits)((1u << 8 * (BYTES % 4)) - 1) : (Bits)~(Bits)0;
    const u64 word = BYTES < 4 ? there & ~3ull : there;
    const u32 shift = BYTES < 4 ? 8 * (there & 3) : 0;
    const Value mine = widen<Format, Value, 1>(fetch<BYTES>(data)).v[0];
    Bits seen = BYTES == 8 ? (Bits)look<false>(word) : (Bits)look32(word);
    for (;;) {
        const Value so_far = (Value)Format::load(seen >> shift & MASK);
        const Bits next = (Bits)(Format::store(Combine::of(so_far, mine)) & MASK) << shift;
        const Bits before = swap_bits(word, seen, (seen & ~(MASK << shift)) | next);
        if (before == seen) return;
        seen = before;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) roundelay_kernel(const __grid_constant__ Accumulate a) {
    if (look32(a.params.state + 8) != 0) return;
    constexpr u64 BYTES = Format::BYTES;
    for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < a.elements; i += (u64)gridDim.x * THREADS)
        accumulate(a.there + BYTES * i, a.data + BYTES * i);
}
