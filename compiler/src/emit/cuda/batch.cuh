
// ---- messages between single ranks: see batch.rs ---------------------------------------------------------

struct Batch {
    Params params;
    End ends[ENDS];
    Message messages[MESSAGES];
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) roundelay_kernel(const __grid_constant__ Batch batch) {
    const Params &params = batch.params;
    const u32 lane = blockIdx.x % LANES;
    const End &end = batch.ends[blockIdx.x / LANES];
    u64 count = look<false>(end.count + 8 * lane);
    if (threadIdx.x == 0) failed = look32(params.state + 8);
    __syncthreads();
    if (failed) return;
#pragma unroll 1
    for (u32 m = end.first; m < end.first + end.messages; ++m) move(params, end, lane, count, batch.messages[m]);
    if (threadIdx.x == 0) tell(end.count + 8 * lane, count);
}
