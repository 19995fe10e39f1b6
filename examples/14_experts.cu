// Tokens to their experts and back; compiled by `14_experts.rs`. A token has ROW elements of f32, each rank an expert.

constexpr unsigned ROW = 2048, MOST_RANKS = 16;

// Counts the tokens for each rank, and gives each its place among them: packed, in the order of ranks. One block.
extern "C" __global__ void route(const unsigned *experts, unsigned *counts, unsigned *places, unsigned tokens,
                                 unsigned ranks) {
    __shared__ unsigned next[MOST_RANKS];
    if (threadIdx.x < ranks) next[threadIdx.x] = 0;
    __syncthreads();
    for (unsigned t = threadIdx.x; t < tokens; t += blockDim.x) atomicAdd(&next[experts[t]], 1);
    __syncthreads();
    if (threadIdx.x == 0)
        for (unsigned r = 0, first = 0; r < ranks; ++r) {
            const unsigned count = next[r];
            counts[r] = count, next[r] = first, first += count;
        }
    __syncthreads();
    for (unsigned t = threadIdx.x; t < tokens; t += blockDim.x) places[t] = atomicAdd(&next[experts[t]], 1);
}

// A token a block, to its place or from there.
extern "C" __global__ void pack(const float4 *tokens, const unsigned *places, float4 *packed) {
    for (unsigned i = threadIdx.x; i < ROW / 4; i += blockDim.x)
        packed[places[blockIdx.x] * (ROW / 4) + i] = tokens[blockIdx.x * (ROW / 4) + i];
}

extern "C" __global__ void unpack(const float4 *packed, const unsigned *places, float4 *tokens) {
    for (unsigned i = threadIdx.x; i < ROW / 4; i += blockDim.x)
        tokens[blockIdx.x * (ROW / 4) + i] = packed[places[blockIdx.x] * (ROW / 4) + i];
}

// What an expert makes of as many rows as have come.
extern "C" __global__ void expert(float4 *rows, const unsigned *counts, unsigned ranks, float factor) {
    unsigned all = 0;
    for (unsigned r = 0; r < ranks; ++r) all += counts[r];
    for (unsigned row = blockIdx.x; row < all; row += gridDim.x)
        for (unsigned i = threadIdx.x; i < ROW / 4; i += blockDim.x) {
            float4 &x = rows[row * (ROW / 4) + i];
            x = {x.x * factor, x.y * factor, x.z * factor, x.w * factor};
        }
}
