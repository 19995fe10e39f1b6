
// ---- messages between single ranks: see batch.rs ---------------------------------------------------------

// Of each end's lanes as many have a block as any end needs.
struct Batch {
    Params params;
    u64 blocks;
    End ends[ENDS];
    Message messages[MESSAGES];
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) roundelay_kernel(const __grid_constant__ Batch batch) {
    const Params &params = batch.params;
    const u32 blocks = (u32)batch.blocks;
    // What the first message needs is read before anything is waited for.
    const End end = batch.ends[blockIdx.x / blocks];
    const Message first = batch.messages[end.first];
    Lane lane = lane_of(end, blockIdx.x % blocks);
    if (threadIdx.x == 0) failed = look32(params.state + 8);
    __syncthreads();
    if (failed) return;
    move(params, end, lane, first);
#pragma unroll 1
    for (u32 m = end.first + 1; m < end.first + end.messages; ++m) move(params, end, lane, batch.messages[m]);
    if (threadIdx.x == 0) tell(end.count + 8 * lane.number, lane.count);
}
