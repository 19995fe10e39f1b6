
// ---- windows of device memory: see window.rs -----------------------------------------------------------------

enum : u64 { SIGNAL, AWAIT, ADD, SWAP, REACH };
enum : u32 { SIGNALLED = 17, SERVED = 18 };

struct Window {
    Params params;
    u64 operation, peer, word, own, operand, compared;
};

// By one thread.
extern "C" __global__ void __launch_bounds__(THREADS, 1) roundelay_kernel(const __grid_constant__ Window w) {
    if (threadIdx.x != 0 || look32(w.params.state + 8) != 0) return;
    switch (w.operation) {
    case SIGNAL: {
        const u64 number = look<false>(w.own) + 1;
        tell(w.own, number);
        release();
        tell(w.word, number);
        break;
    }
    case AWAIT: {
        const u64 number = look<false>(w.own) + 1;
        await_count(w.params, w.word, number, SIGNALLED, (u32)w.peer);
        tell(w.own, number);
        break;
    }
    case ADD: tell(w.own, add_word(w.word, w.operand)); break;
    case SWAP: tell(w.own, swap_word(w.word, w.compared, w.operand)); break;
    case REACH: await_count(w.params, w.word, w.operand, SERVED, (u32)w.peer); break;
    }
}
