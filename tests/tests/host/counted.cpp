// Exchanges whose counts lie in memory, of `ranks` ranks in `calls` calls, by the kernel's own text. In the last one rank
// 0 has a count that is too large, if that is asked for. Prints what reports say, and whether rows are where they belong.

static constexpr size_t ROWS = 3000, ROW = 48, MOST = 900;
static unsigned ranks;

static u32 drawn(unsigned call, unsigned from, unsigned to) {
    u64 x = (call * 64 + from * 8 + to + 1) * 0x9e3779b97f4a7c15ull;
    x ^= x >> 29;
    const u32 most = MOST < ROWS / ranks ? MOST : ROWS / ranks;
    return x % 5 == 0 ? 0 : x % 5 == 1 ? 1 : x / 8 % most;
}

// Where a block begins, of what a rank sends or receives.
static size_t place(bool packed, bool sends, unsigned call, unsigned rank, unsigned block) {
    if (!packed) return block * (ROWS / ranks);
    size_t row = 0;
    for (unsigned k = 0; k < block; ++k) row += sends ? drawn(call, rank, k) : drawn(call, k, rank);
    return row;
}

static char byte(unsigned call, unsigned from, unsigned to, size_t i) { return from * 31 + to * 57 + i * 7 + call; }

static void kernel(const void *c) { roundelay_kernel(*(const Counted *)c); }

int main(int argc, char **argv) {
    ranks = atoi(argv[1]);
    const unsigned calls = atoi(argv[2]);
    const bool beyond = argc > 3;
    const size_t counts = 4096, turns = 12288, told = 16384, inboxes = 65536;
    std::vector<char *> arena, input, output, mail, sends;
    for (unsigned r = 0; r < ranks; ++r) {
        arena.push_back(shared_memory(inboxes + ranks * LANES * SLOTS * SLOT));
        input.push_back(shared_memory(ROWS * ROW)), output.push_back(shared_memory(ROWS * ROW));
        mail.push_back(shared_memory(4096)), sends.push_back(shared_memory(4096));
    }
    bool well = true;
    for (unsigned call = 0; call < calls; ++call) {
        const bool packed[] = {call % 2 == 0, call / 2 % 2 == 0}, wrong = beyond && call + 1 == calls;
        std::vector<pid_t> begun;
        std::vector<Counted> all(ranks);
        for (unsigned r = 0; r < ranks; ++r) {
            memset(output[r], 0x5a, ROWS * ROW);
            for (unsigned p = 0; p < ranks; ++p) {
                ((u32 *)sends[r])[p] = drawn(call, r, p);
                char *at = input[r] + place(packed[0], true, call, r, p) * ROW;
                for (size_t i = 0; i < drawn(call, r, p) * ROW; ++i) at[i] = byte(call, r, p, i);
            }
            Counted &c = all[r];
            c.params.state = (u64)arena[r], c.params.abort = (u64)mail[r], c.params.report = (u64)mail[r] + 64;
            c.params.timeout = wrong ? 3000000000ull : 60000000000ull;
            c.input = {(u64)input[r], ROWS, packed[0] ? 0 : ROWS / ranks};
            c.output = {(u64)output[r], ROWS, packed[1] ? 0 : ROWS / ranks};
            c.sends = (u64)sends[r], c.receives = (u64)sends[r] + 2048;
            c.turns = (u64)arena[r] + turns, c.told = (u64)arena[r] + told;
            c.row = ROW, c.most = MOST, c.rank = r, c.ranks = ranks, c.tag = 77;
            unsigned end = 0;
            const auto words = [&](unsigned of, unsigned list, unsigned peer) {
                return (u64)arena[of] + counts + 8 * LANES * (list * ranks + peer);
            };
            const auto inbox = [&](unsigned of, unsigned from) { return (u64)arena[of] + inboxes + from * LANES * SLOTS * SLOT; };
            for (unsigned p = 0; p < ranks; ++p) {
                c.tell[p] = (u64)arena[p] + told + 64 * r;
                if (p == r) continue;
                c.ends[end++] = {inbox(p, r), words(r, 0, p), words(r, 1, p), p, 0, 0, 0};
                c.ends[end++] = {inbox(r, p), words(p, 0, r), words(r, 2, p), p, 1, 0, 0};
            }
        }
        if (wrong) ((u32 *)sends[0])[1] = MOST + 1;
        for (unsigned r = 0; r < ranks; ++r) {
            // Each rank has room for another number of blocks.
            const unsigned blocks = (2 * ranks - 1) * (3 * r % LANES + 1);
            for (unsigned b = 0; b < blocks; ++b) begun.push_back(begin_block(kernel, &all[r], b, blocks, THREADS));
        }
        well = end_blocks(begun) && well;
        for (unsigned r = 0; r < ranks; ++r) {
            print_report(r, *(const Report *)(mail[r] + 64));
            std::vector<char> wanted(ROWS * ROW, 0x5a);
            bool counted = true;
            for (unsigned p = 0; p < ranks && !wrong; ++p) {
                counted = counted && ((u32 *)sends[r])[512 + p] == drawn(call, p, r);
                char *at = wanted.data() + place(packed[1], false, call, r, p) * ROW;
                for (size_t i = 0; i < drawn(call, p, r) * ROW; ++i) at[i] = byte(call, p, r, i);
            }
            if (!counted || memcmp(wanted.data(), output[r], ROWS * ROW) != 0)
                printf("call %u: rank %u is wrong\n", call, r), well = false;
        }
    }
    puts(well ? "well" : "wrong");
}
