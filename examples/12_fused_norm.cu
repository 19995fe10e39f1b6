// A layer's end: the sum of all ranks' partial results, plus the residual, then RMSNorm. Behind the header of the
// function `sum`; compiled by `12_fused_norm.rs`. A row has 4096 elements of bf16: 8 for each thread of a block.

constexpr unsigned ROW = 4096;

__device__ float widened(unsigned bits) { return __uint_as_float(bits << 16); }

// To nearest, ties to even.
__device__ unsigned narrowed(float value) {
    const unsigned bits = __float_as_uint(value);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

// Rows are dealt to the blocks.
__device__ void normalize(const uint4 *sums, const uint4 *residual, const float4 *weight, uint4 *hidden, uint4 *output,
                          unsigned rows) {
    __shared__ float squares[16];
    for (unsigned row = blockIdx.x; row < rows; row += gridDim.x) {
        const unsigned at = row * (ROW / 8) + threadIdx.x;
        const uint4 a = sums[at], b = residual[at];
        const float4 w[2] = {weight[2 * threadIdx.x], weight[2 * threadIdx.x + 1]};
        const unsigned x[4] = {a.x, a.y, a.z, a.w}, y[4] = {b.x, b.y, b.z, b.w};
        unsigned h[4];
        float square = 0;
        for (unsigned k = 0; k < 4; ++k) {
            const unsigned low = narrowed(widened(x[k] & 0xffff) + widened(y[k] & 0xffff));
            const unsigned high = narrowed(widened(x[k] >> 16) + widened(y[k] >> 16));
            h[k] = low | high << 16;
            square += widened(low) * widened(low) + widened(high) * widened(high);
        }
        hidden[at] = {h[0], h[1], h[2], h[3]};
        for (unsigned lane = 16; lane > 0; lane /= 2) square += __shfl_xor_sync(0xffffffff, square, lane);
        if (threadIdx.x % 32 == 0) squares[threadIdx.x / 32] = square;
        __syncthreads();
        float total = 0;
        for (unsigned warp = 0; warp < 16; ++warp) total += squares[warp];
        __syncthreads();
        const float scale = rsqrtf(total / ROW + 1e-5f);
        const float by[8] = {w[0].x, w[0].y, w[0].z, w[0].w, w[1].x, w[1].y, w[1].z, w[1].w};
        unsigned out[4];
        for (unsigned k = 0; k < 4; ++k)
            out[k] = narrowed(widened(h[k] & 0xffff) * scale * by[2 * k]) |
                     narrowed(widened(h[k] >> 16) * scale * by[2 * k + 1]) << 16;
        output[at] = {out[0], out[1], out[2], out[3]};
    }
}

extern "C" __global__ void __launch_bounds__(sum::THREADS, 1)
fused(const __grid_constant__ sum::Handle handle, const uint4 *partial, uint4 *sums, const uint4 *residual,
      const float4 *weight, uint4 *hidden, uint4 *output, unsigned rows) {
    sum::call(handle, partial, sums, (unsigned long long)rows * ROW);
    normalize(sums, residual, weight, hidden, output, rows);
}

// Where a block runs one row of a vector that is one chunk, its row is there as soon as its part is over.
extern "C" __global__ void __launch_bounds__(sum::THREADS, 1)
by_rows(const __grid_constant__ sum::Handle handle, const uint4 *partial, uint4 *sums, const uint4 *residual,
        const float4 *weight, uint4 *hidden, uint4 *output, unsigned rows) {
    sum::part(handle, partial, sums, (unsigned long long)rows * ROW);
    normalize(sums, residual, weight, hidden, output, rows);
}

extern "C" __global__ void __launch_bounds__(sum::THREADS, 1)
alone(const uint4 *sums, const uint4 *residual, const float4 *weight, uint4 *hidden, uint4 *output, unsigned rows) {
    normalize(sums, residual, weight, hidden, output, rows);
}
