// Two ranks run a function inside a kernel that adds 1 to all elements before each call. Prints what reports say, and
// whether the sums are right.

static constexpr unsigned ALL = 2, BLOCKS = 2, ARENA = 1 << 20, STAGING = 65536, HALF = 65536;
static constexpr unsigned long long MOST = 1000;

struct Argument {
    theirs::Handle handle;
    int *data;
    unsigned long long count, calls;
};

static void kernel(const void *argument) {
    const Argument &a = *(const Argument *)argument;
    for (unsigned call = 0; call < a.calls; ++call) {
        for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < a.count; i += gridDim.x * blockDim.x)
            a.data[i] += 1;
        theirs::sync(a.handle);
        theirs::call(a.handle, a.data, a.count);
        theirs::sync(a.handle);
    }
}

// What a rank's handle holds; the structures of all ranks are alike.
static theirs::Handle handle(unsigned rank, char *const *arena, char *const *memory, char *mail, unsigned long long pass) {
    using namespace theirs::rank0;
    Function f{};
    Params &p = f.params;
    const u64 chunk = (MOST + PARTS - 1) / PARTS;
    p.count = MOST, p.pass = pass, p.passes = (chunk + BLOCKS * pass - 1) / (BLOCKS * pass), p.groups = 1;
    p.unit = pass * 8, p.staging = STAGING, p.halves = HALF, p.packets = STAGING, p.packet_half = HALF;
    p.state = (u64)arena[rank] + ARENA, p.abort = (u64)mail, p.report = (u64)mail + 64, p.timeout = 60000000000ull;
    p.factor = 1;
    if (UNITED) p.multicast[0] = (u64)united_base, united[rank] = memory[rank];
    for (unsigned r = 0; r < ALL; ++r) p.arena[r] = (u64)arena[r], p.data[r] = REGISTERED ? (u64)memory[r] : 0;
    f.identity = rank == 0 ? theirs::rank0::IDENTITY : theirs::rank1::IDENTITY;
    f.blocks = BLOCKS, f.barrier = (u64)arena[rank] + ARENA + 4096;
    f.bytes[0] = REGISTERED ? 2 * MOST * 4 : 0;
    theirs::Handle handle;
    static_assert(sizeof handle == sizeof f, "a handle is its words");
    memcpy(&handle, &f, sizeof f);
    return handle;
}

int main(int, char **argv) {
    const unsigned long long count = atoi(argv[1]), shift = atoi(argv[2]);
    const unsigned grid = atoi(argv[3]);
    std::vector<char *> arena, memory, mail;
    for (unsigned r = 0; r < ALL; ++r) {
        arena.push_back(shared_memory(ARENA + 8192));
        memory.push_back(shared_memory(2 * MOST * 4)), mail.push_back(shared_memory(4096));
    }
    const unsigned long long pass = ONE_PASS ? 252 : 64;
    bool well = true;
    // A launch of three calls, then one of two: the numbers of calls go on.
    std::vector<int> before(2 * MOST);
    for (unsigned i = 0; i < 2 * MOST; ++i) before[i] = i % 17;
    for (unsigned r = 0; r < ALL; ++r)
        for (unsigned i = 0; i < 2 * MOST; ++i) ((int *)memory[r])[i] = (r + 1) * before[i];
    unsigned long long calls_made = 0;
    for (const unsigned long long calls : {3, 2}) {
        std::vector<pid_t> begun;
        std::vector<Argument> all;
        for (unsigned r = 0; r < ALL; ++r)
            all.push_back({handle(r, arena.data(), memory.data(), mail[r], pass), (int *)memory[r] + shift, count, calls});
        for (unsigned r = 0; r < ALL; ++r)
            for (unsigned b = 0; b < grid; ++b)
                begun.push_back(begin_block(kernel, &all[r], b, grid, theirs::THREADS));
        well = end_blocks(begun) && well;
        calls_made += calls;
        bool failed = false;
        for (unsigned r = 0; r < ALL; ++r) {
            const auto &report = *(const theirs::rank0::Report *)(mail[r] + 64);
            if (report.what == 0) continue;
            printf("rank %u: report %u, word %u, wanted %llu, seen %llu\n", r, report.what, report.word, report.wanted,
                   report.seen);
            failed = true;
        }
        if (failed) return 0;
    }
    for (unsigned r = 0; r < ALL; ++r)
        for (unsigned i = 0; i < 2 * MOST; ++i) {
            int wanted = (r + 1) * before[i];
            if (i >= shift && i < shift + count) {
                wanted = 3 * before[i] + 2;
                for (unsigned call = 1; call < calls_made; ++call) wanted = 2 * (wanted + 1);
            }
            if (((int *)memory[r])[i] != wanted && well)
                printf("rank %u: element %u is %d, not %d\n", r, i, ((int *)memory[r])[i], wanted), well = false;
        }
    puts(well ? "well" : "wrong");
}
