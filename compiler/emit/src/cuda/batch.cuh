
// ---- messages between single ranks: see batch.rs ---------------------------------------------------------

// An end has as many blocks as there is room for, and each moves one lane after another. As lanes go up in every block of
// either side, the first lane that is not over has a block on both, however many blocks each has.
struct Batch {
    Params params;
    // Blocks of an end, and the lanes that have a part of a message: no fewer.
    u32 blocks, lanes;
    End ends[ENDS];
    Message messages[MESSAGES];
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) roundelay_kernel(const __grid_constant__ Batch batch) {
    const Params &params = batch.params;
    // What the first message needs is read before anything is waited for.
    const End end = batch.ends[blockIdx.x / batch.blocks];
    const Message first = batch.messages[end.first];
    Lane lane = lane_of(end, blockIdx.x % batch.blocks);
    if (threadIdx.x == 0) failed = look32(params.state + 8);
    __syncthreads();
    if (failed) return;
#pragma unroll 1
    for (;;) {
        move(params, end, lane, first);
#pragma unroll 1
        for (u32 m = end.first + 1; m < end.first + end.messages; ++m) move(params, end, lane, batch.messages[m]);
        if (threadIdx.x == 0) tell(end.count + 8 * lane.number, lane.count);
        const u32 next = lane.number + batch.blocks;
        if (next >= batch.lanes) break;
        lane = lane_of(end, next);
        // No thread counts the lane on before all have read its count.
        __syncthreads();
    }
}
