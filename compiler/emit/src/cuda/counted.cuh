
// ---- blocks whose lengths lie in device memory: see counted.rs ---------------------------------------------

// Where a vector lies, and how: its address, its rows, and the rows from one block to the next, 0 if each follows the one
// before.
struct Vector {
    u64 at, rows, stride;
};

struct Counted {
    Params params;
    Vector input, output;
    // Addresses of the counts for and from each rank; of this rank's own words, a call's number for each block; of the
    // words in which the ranks tell their counts.
    u64 sends, receives, turns, told;
    // Bytes of a row, the most rows of a block, this rank, how many there are, the tag.
    u64 row, most, rank, ranks, tag;
    // For each peer: where it is told, then both directions.
    u64 tell[PEERS + 1];
    End ends[2 * PEERS];
};

enum : u32 { BOUNDS = 5, LENGTH = 14, ROOM_OF, COUNTED };

// Waits until a rank has told its count for this call.
INLINE u32 told_count(const Params &params, u64 word, u32 turn, u32 peer) {
    Patience patience;
    for (;;) {
        const u64 seen = look<false>(word);
        if (seen >> 32 == turn) return (u32)seen;
        if (const u32 what = patience.ends(params))
            fail(params, {what, COUNTED, peer, NOWHERE, NOWHERE, 0, turn, seen >> 32});
    }
}

// The first row of a block, or of the end, by the counts of the blocks before it.
INLINE u64 row_of(const Vector &vector, const u32 *counts, u32 block) {
    if (vector.stride != 0) return block * vector.stride;
    u64 row = 0;
#pragma unroll 1
    for (u32 k = 0; k < block; ++k) row += counts[k];
    return row;
}

// Fails if a block is longer than it may be, or all are together than the vector. By one thread.
INLINE void check(const Counted &c, const Vector &vector, const u32 *counts) {
    u64 rows = 0;
#pragma unroll 1
    for (u32 k = 0; k < c.ranks; ++k) {
        const u64 most = vector.stride != 0 && vector.stride < c.most ? vector.stride : c.most;
        if (counts[k] > most) fail(c.params, {BOUNDS, LENGTH, k, NOWHERE, NOWHERE, 0, most, counts[k]});
        rows += counts[k];
    }
    if (vector.stride == 0 && rows > vector.rows)
        fail(c.params, {BOUNDS, ROOM_OF, (u32)c.rank, NOWHERE, NOWHERE, 0, vector.rows, rows});
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) roundelay_kernel(const __grid_constant__ Counted c) {
    const Params &params = c.params;
    __shared__ u32 sends[PEERS + 1], receives[PEERS + 1];
    if (threadIdx.x == 0) failed = look32(params.state + 8);
    __syncthreads();
    if (failed) return;
    const u32 blocks = gridDim.x / (2 * (c.ranks - 1) + 1), block = blockIdx.x % blocks;
    const u32 number = blockIdx.x / blocks, thread = threadIdx.x;
    const bool own = number == 2 * (c.ranks - 1);
    const u32 turn = (u32)look<false>(c.turns + 8 * blockIdx.x) + 1;
    const End &end = c.ends[own ? 0 : number];
    if (thread < c.ranks) sends[thread] = look32(c.sends + 4 * thread);
    __syncthreads();
    if (thread == 0) check(c, c.input, sends);
    follow();
    const bool receiving = end.how & RECEIVES;
    if (own || receiving) {
        // The others' counts are waited for by a thread each.
        if (thread < c.ranks)
            receives[thread] = thread == c.rank ? sends[thread]
                                                : told_count(params, c.told + 8 * (RING * thread + turn % RING), turn, thread);
        follow();
        if (thread == 0) check(c, c.output, receives);
        follow();
        if (own && block == 0 && thread < c.ranks) put<4>(c.receives + 4 * thread, {{receives[thread]}});
    } else if (block == 0 && thread == 0) {
        tell(c.tell[end.peer] + 8 * (turn % RING), (u64)turn << 32 | sends[end.peer]);
    }
    const auto place = [&](const Vector &vector, const u32 *counts, u32 block) {
        return vector.at + c.row * row_of(vector, counts, block);
    };
    if (own) {
        const u64 bytes = c.row * sends[c.rank], each = (bytes + 16 * blocks - 1) / (16 * blocks) * 16;
        const u64 begin = block * each < bytes ? block * each : bytes;
        const u64 to = place(c.output, receives, c.rank), from = place(c.input, sends, c.rank);
        carry(to + begin, from + begin, bytes - begin < each ? bytes - begin : each);
    } else {
        const u32 *counts = receiving ? receives : sends;
        const u64 at = place(receiving ? c.output : c.input, counts, end.peer);
        const Message message{at, c.row * counts[end.peer], c.tag};
#pragma unroll 1
        for (u32 l = block; l < LANES; l += blocks) {
            Lane lane = lane_of(end, l);
            // No thread counts the lane on before all have read its count.
            __syncthreads();
            move(params, end, lane, message);
            if (thread == 0) tell(end.count + 8 * l, lane.count);
        }
    }
    if (thread == 0) tell(c.turns + 8 * blockIdx.x, turn);
}
