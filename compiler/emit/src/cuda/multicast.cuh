
// ---- memory of all ranks at once, by the switch: multicast objects are bound to it --------------------------

// Between accesses by a rank's own addresses and by those of all ranks, which are other names of the same memory.
INLINE void alias() { asm volatile("fence.proxy.alias;" ::: "memory"); }

// Writes 16 bytes on every rank.
INLINE void put_all(u64 at, const Piece<16> &x) {
    asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(x.w[0]), "r"(x.w[1]),
                 "r"(x.w[2]), "r"(x.w[3]) : "memory");
}
