
// ---- a function of a user's kernel: see function.rs -------------------------------------------------------

// What the user's kernel passes on, as compiler/src/device/abi.rs has it: the parameters, for the most elements that a
// call may have; then what the function is, the blocks that run, the words of the barriers of the grid and of those
// blocks, and the bytes of the memory in which data, input and output must lie, 0 where they may lie anywhere.
struct Function {
    Params params;
    u64 identity, blocks, barrier, bytes[3];
};

constexpr u64 BARRIER_BYTES = 64;

// What a report says of a call that cannot be run, in place of the kind of a word; and a word of this GPU's.
enum : u32 { MISUSED = 4, GATHERED = 7, REACHED, GRID, COUNT, PLACE, ALIGNMENT, HEADER };

// Reports a call that cannot be run, and leaves the kernel: before anything is read or written.
INLINE void misused(const Params &params, u32 how, u64 wanted, u64 seen) {
    if (threadIdx.x == 0) report(params, {MISUSED, how, RANK, NOWHERE, NOWHERE, 0, wanted, seen});
    quit();
}

// Waits until so many blocks have come here, for one of its threads. False if they will not. The words are the blocks that
// have come, and the barriers that were.
INLINE bool gathered(const Params &params, u64 barrier, u32 blocks) {
    const u32 generation = look32(barrier + 4);
    if (count(barrier) + 1 == blocks) {
        reset(barrier);
        publish(barrier + 4, generation + 1);
        return true;
    }
    Patience patience;
    while (look_here(barrier + 4) == generation) {
        // Blocks that wait for peers say for whom: they are given the time to.
        const u32 what = patience.ends(params, 2);
        if (what == 0) continue;
        report(params, {what, GATHERED, RANK, NOWHERE, NOWHERE, 0, generation + 1ull, generation});
        return false;
    }
    return true;
}

// Waits until so many blocks have come here: what they wrote before is seen after. Where a block has failed, the others
// leave the kernel.
[[maybe_unused]] static __device__ __noinline__ void gather(const Params &params, u64 barrier, u32 blocks) {
    __shared__ bool over;
    __syncthreads();
    if (threadIdx.x == 0) over = blocks > 1 && !gathered(params, barrier, blocks);
    __syncthreads();
    if (over) quit();
}

// Waits until a word of this GPU's has come to a number, by difference: what was done before it was counted is seen after.
[[maybe_unused]] static __device__ __noinline__ void reach(const Params &params, u64 word, u32 wanted) {
    __shared__ bool over;
    __syncthreads();
    if (threadIdx.x == 0) {
        over = false;
        Patience patience;
        for (u32 seen; (i32)((seen = look_here(word)) - wanted) < 0;) {
            const u32 what = patience.ends(params, 2);
            if (what == 0) continue;
            report(params, {what, REACHED, RANK, NOWHERE, NOWHERE, 0, wanted, seen});
            over = true;
            break;
        }
    }
    __syncthreads();
    if (over) quit();
}

// Whether so many chunks of a call's vector lie in the memory in which they must.
INLINE bool holds(u64 bytes, u64 offset, u64 elements, u32 chunks) {
    const u64 needed = (elements * chunks + PARTS - 1) / PARTS * SIZE;
    return bytes == 0 || (offset <= bytes && needed <= bytes - offset);
}

// Runs a call, by the first blocks of the grid; the others have no part in it. It ends with a barrier of these blocks if
// it is WHOLE: without one a block sees its own slices of the result.
template <bool WHOLE> INLINE void function(const Function &f, u64 data, u64 input, u64 output, u64 count) {
    const Params &params = f.params;
    if (blockDim.x != THREADS || blockDim.y * blockDim.z * gridDim.y * gridDim.z != 1)
        misused(params, GRID, THREADS, blockDim.x);
    if (gridDim.x < f.blocks) misused(params, GRID, f.blocks, gridDim.x);
    if (count > params.count) misused(params, COUNT, params.count, count);
    constexpr u32 GROUP_OF = 16 / SIZE;
    if (ALIGNED && ((data | input | output) % 16 != 0 || count * BLOCKS_OF % (PARTS * GROUP_OF) != 0))
        misused(params, ALIGNMENT, data | input | output, count);
    Call call{data - params.data[RANK], input - params.input[RANK], output - params.output[RANK],
              count, params.pass, params.passes, (u32)f.blocks};
    const u64 elements = count * BLOCKS_OF;
    if (!holds(f.bytes[0], call.data, elements, CHUNKS[0])) misused(params, PLACE, f.bytes[0], call.data);
    if (!holds(f.bytes[1], call.input, elements, CHUNKS[1])) misused(params, PLACE, f.bytes[1], call.input);
    if (!holds(f.bytes[2], call.output, elements, CHUNKS[2])) misused(params, PLACE, f.bytes[2], call.output);
    if (count != params.count) {
        // As cuda/cut.rs does, but that passes are no longer than those of the longest call.
        const u64 longest = (elements + PARTS - 1) / PARTS, share = (longest + call.blocks - 1) / call.blocks;
        const u64 whole = share == 0 ? GROUP_OF : (share + GROUP_OF - 1) / GROUP_OF * GROUP_OF;
        const u64 turn = call.blocks * (whole < call.pass ? whole : call.pass);
        call.pass = turn / call.blocks;
        call.passes = longest <= turn ? 1 : (longest + turn - 1) / turn;
    }
    if (blockIdx.x >= call.blocks) return;
    if (threadIdx.x == 0) failed = 0;
    __syncthreads();
    if (count != 0 || EMPTY) run(params, call);
    __syncthreads();
    if (*(volatile u32 *)&failed) quit();
    if (WHOLE) gather(params, f.barrier + BARRIER_BYTES, call.blocks);
}

// What a handle holds.
template <class HANDLE> INLINE const Function &of(const HANDLE &handle) {
    static_assert(sizeof(HANDLE) == sizeof(Function), "as device/abi.rs has it");
    return reinterpret_cast<const Function &>(handle);
}
