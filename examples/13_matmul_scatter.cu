// C = A B, whose parts enter a reduce_scatter as they are ready. Behind the header of the function `scatter`; compiled by
// `13_matmul_scatter.rs`. Row-major, of f32, in tiles of 128 by 128; all sizes are multiples of that.
//
// C is computed part by part. A part has `rows` rows of each rank's block, one after the other: what a call takes.

constexpr unsigned TILE = 128, DEPTH = 16;

struct Product {
    const float *a, *b;
    float *c;
    unsigned columns, depth, ranks, parts, rows;

    __device__ unsigned across() const { return columns / TILE; }
    // Tiles of a part.
    __device__ unsigned tiles() const { return ranks * rows / TILE * across(); }
    __device__ unsigned long long elements() const { return (unsigned long long)rows * columns; }
};

// Computes a tile by all threads: 4 rows by 8 columns each.
__device__ void multiply(const Product &p, unsigned tile) {
    __shared__ __align__(16) float left[DEPTH][TILE + 4], right[DEPTH][TILE];
    const unsigned part = tile / p.tiles(), row = tile % p.tiles() / p.across() * TILE;
    const unsigned first = tile % p.across() * TILE, rank = row / p.rows;
    // The row of A: of the rank's block, of the part in it.
    const unsigned long long from = (unsigned long long)(rank * p.parts + part) * p.rows + row % p.rows;
    const unsigned t = threadIdx.x, x = t % 16 * 4, y = t / 16 * 4;
    const float *a = p.a + (from + t / 4) * p.depth + t % 4 * 4;
    const float *b = p.b + (unsigned long long)(t / 32) * p.columns + first + t % 32 * 4;
    float sum[4][8] = {};
    for (unsigned k = 0; k < p.depth; k += DEPTH) {
        const float4 l = *(const float4 *)(a + k);
        const float4 r = *(const float4 *)(b + (unsigned long long)k * p.columns);
        __syncthreads();
        left[t % 4 * 4][t / 4] = l.x, left[t % 4 * 4 + 1][t / 4] = l.y;
        left[t % 4 * 4 + 2][t / 4] = l.z, left[t % 4 * 4 + 3][t / 4] = l.w;
        *(float4 *)&right[t / 32][t % 32 * 4] = r;
        __syncthreads();
#pragma unroll
        for (unsigned d = 0; d < DEPTH; ++d) {
            const float4 u = *(const float4 *)&left[d][y];
            const float4 v = *(const float4 *)&right[d][x], w = *(const float4 *)&right[d][x + 64];
            const float rows[4] = {u.x, u.y, u.z, u.w};
            const float columns[8] = {v.x, v.y, v.z, v.w, w.x, w.y, w.z, w.w};
#pragma unroll
            for (unsigned i = 0; i < 4; ++i)
#pragma unroll
                for (unsigned j = 0; j < 8; ++j) sum[i][j] += rows[i] * columns[j];
        }
    }
    float *c = p.c + part * p.ranks * p.elements() + (unsigned long long)(row + y) * p.columns + first + x;
#pragma unroll
    for (unsigned i = 0; i < 4; ++i, c += p.columns) {
        *(float4 *)c = {sum[i][0], sum[i][1], sum[i][2], sum[i][3]};
        *(float4 *)(c + 64) = {sum[i][4], sum[i][5], sum[i][6], sum[i][7]};
    }
}

// The first blocks run a call for each part, in its order; the others compute, and count the tiles of each.
extern "C" __global__ void __launch_bounds__(scatter::THREADS, 1)
fused(const __grid_constant__ scatter::Handle handle, unsigned comm_blocks, const float *a, const float *b, float *c,
      float *output, unsigned *ready, unsigned columns, unsigned depth, unsigned ranks, unsigned parts, unsigned rows) {
    const Product p{a, b, c, columns, depth, ranks, parts, rows};
    if (blockIdx.x < comm_blocks) {
        for (unsigned part = 0; part < parts; ++part) {
            scatter::wait(handle, ready + part, p.tiles());
            scatter::call(handle, c + part * ranks * p.elements(), output + part * p.elements(), p.elements());
            // All communication blocks have waited: the count is the next launch's.
            if (blockIdx.x == 0 && threadIdx.x == 0) ready[part] = 0;
        }
    } else {
        for (unsigned tile = blockIdx.x - comm_blocks; tile < parts * p.tiles(); tile += gridDim.x - comm_blocks) {
            multiply(p, tile);
            scatter::raise(ready + tile / p.tiles());
        }
    }
}

extern "C" __global__ void __launch_bounds__(scatter::THREADS, 1)
alone(const float *a, const float *b, float *c, unsigned columns, unsigned depth, unsigned ranks, unsigned rows) {
    const Product p{a, b, c, columns, depth, ranks, 1, rows};
    for (unsigned tile = blockIdx.x; tile < p.tiles(); tile += gridDim.x) multiply(p, tile);
}
