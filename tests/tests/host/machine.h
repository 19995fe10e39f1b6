template <u32 BYTES> INLINE Piece<BYTES> fetch(u64 at) {
    Piece<BYTES> x{};
    memcpy(x.w, (void *)at, BYTES);
    return x;
}
template <u32 BYTES> INLINE void put(u64 at, const Piece<BYTES> &x) { memcpy((void *)at, x.w, BYTES); }

template <class T> INLINE T loaded(u64 at) {
    sched_yield();
    return __atomic_load_n((T *)at, __ATOMIC_SEQ_CST);
}
template <class T> INLINE void stored(u64 at, T value) { __atomic_store_n((T *)at, value, __ATOMIC_SEQ_CST); }

template <bool ACQUIRE> INLINE u64 look(u64 word) { return loaded<u64>(word); }
INLINE u32 look32(u64 word) { return loaded<u32>(word); }
INLINE u32 look_here(u64 word) { return loaded<u32>(word); }
INLINE void tell(u64 word, u64 value) { stored<u64>(word, value); }
INLINE void publish(u64 word, u32 value) { stored<u32>(word, value); }
INLINE void reset(u64 word) { stored<u32>(word, 0); }
INLINE u64 add_word(u64 word, u64 value) { return __atomic_fetch_add((u64 *)word, value, __ATOMIC_SEQ_CST); }
INLINE u64 swap_word(u64 word, u64 compared, u64 value) {
    __atomic_compare_exchange_n((u64 *)word, &compared, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return compared;
}
INLINE void release() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

struct Packet {
    u32 a, at_a, b, at_b;

    INLINE bool is(u32 epoch) const { return at_a == epoch && at_b == epoch; }
};
INLINE Packet peek(u64 at) {
    const u64 a = loaded<u64>(at), b = loaded<u64>(at + 8);
    return {(u32)a, (u32)(a >> 32), (u32)b, (u32)(b >> 32)};
}
INLINE void post(u64 at, const Packet &p) {
    tell(at, p.a | (u64)p.at_a << 32);
    tell(at + 8, p.b | (u64)p.at_b << 32);
}

INLINE void look_state(u64 at, u32 &first, u32 &second, u32 &third) {
    first = look32(at), second = look32(at + 4), third = look32(at + 8);
}
INLINE void tell_state(u64 at, u32 first, u32 second) { stored<u32>(at, first), stored<u32>(at + 4, second); }
INLINE bool claim(u64 word) {
    u32 zero = 0;
    return __atomic_compare_exchange_n((u32 *)word, &zero, 1u, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}
INLINE u32 count(u64 word) { return __atomic_fetch_add((u32 *)word, 1u, __ATOMIC_SEQ_CST); }
INLINE u64 now() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}
INLINE void doze() { sched_yield(); }
INLINE void quit() {
    longjmp(end_of_thread, 1);
    __builtin_unreachable();
}
INLINE void forget(u32 &) {}
INLINE void forget(u64 &) {}

// Kernels of these tests have no such types.
INLINE float f16_to_f32(u32) { abort(); }
INLINE u32 f32_to_f16(float) { abort(); }
INLINE u32 f32_to_bf16(float) { abort(); }

