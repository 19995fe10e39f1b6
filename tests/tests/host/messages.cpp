// Batches of messages between `ranks` ranks, by the kernel's own text: several a direction, of lengths from nothing to some
// slots, at any address. In the last of `calls` batches rank 0 sends a byte more than rank 1 expects, if that is asked for.
// Prints what reports say, and whether bytes are where they belong.

static constexpr unsigned EACH_WAY = 6;
static constexpr size_t ROOM_OF = 24000;
static unsigned ranks;

static u64 drawn(unsigned call, unsigned from, unsigned to, unsigned m) {
    u64 x = (((call * 8 + from) * 8 + to) * 8 + m + 1) * 0x9e3779b97f4a7c15ull;
    return x ^ x >> 31;
}

static size_t length(unsigned call, unsigned from, unsigned to, unsigned m) {
    const u64 x = drawn(call, from, to, m);
    const size_t most[] = {1, 9, 70, 300, 3000, 20000};
    // Now and then all are short, so that not every lane has a block.
    return x / 16 % most[x % (call % 3 == 2 ? 3 : 6)];
}

// The lanes that have a part of a message: see `batch::parts`.
static unsigned parts(size_t bytes) {
    const u64 share = (bytes + 16 * LANES - 1) / (16 * LANES) * 16, each = share < LEAST ? LEAST : share;
    return bytes == 0 ? 1 : (bytes + each - 1) / each;
}

static char byte(unsigned call, unsigned from, unsigned to, unsigned m, size_t i) {
    return from * 31 + to * 57 + m * 3 + i * 7 + call;
}

static void kernel(const void *b) { roundelay_kernel(*(const Batch *)b); }

int main(int argc, char **argv) {
    ranks = atoi(argv[1]);
    const unsigned calls = atoi(argv[2]), ends = 2 * (ranks - 1);
    const bool other = argc > 3;
    const size_t counts = 4096, inboxes = 65536, vector = ranks * EACH_WAY * ROOM_OF;
    std::vector<char *> arena, input, output, mail;
    for (unsigned r = 0; r < ranks; ++r) {
        arena.push_back(shared_memory(inboxes + ranks * LANES * SLOTS * SLOT));
        input.push_back(shared_memory(vector)), output.push_back(shared_memory(vector));
        mail.push_back(shared_memory(4096));
    }
    bool well = true;
    for (unsigned call = 0; call < calls; ++call) {
        const bool wrong = other && call + 1 == calls;
        std::vector<pid_t> begun;
        std::vector<Batch> all(ranks);
        // Where a message lies in a vector: now and then at an odd address.
        const auto place = [&](unsigned peer, unsigned m, unsigned from, unsigned to) {
            return (peer * EACH_WAY + m) * ROOM_OF + drawn(call, from, to, m) / 7 % 3 * 4 + (m == 1);
        };
        for (unsigned r = 0; r < ranks; ++r) {
            memset(output[r], 0x5a, vector);
            Batch &b = all[r];
            b.params.state = (u64)arena[r], b.params.abort = (u64)mail[r], b.params.report = (u64)mail[r] + 64;
            b.params.timeout = wrong ? 3000000000ull : 60000000000ull;
            const auto words = [&](unsigned of, unsigned list, unsigned peer) {
                return (u64)arena[of] + counts + 8 * LANES * (list * ranks + peer);
            };
            const auto inbox = [&](unsigned of, unsigned from) { return (u64)arena[of] + inboxes + from * LANES * SLOTS * SLOT; };
            unsigned end = 0, first = 0;
            b.lanes = 1;
            for (unsigned p = 0; p < ranks; ++p) {
                if (p == r) continue;
                b.ends[end++] = {inbox(p, r), words(r, 0, p), words(r, 1, p), p, 0, first, EACH_WAY};
                for (unsigned m = 0; m < EACH_WAY; ++m) {
                    char *at = input[r] + place(p, m, r, p);
                    const size_t bytes = length(call, r, p, m) + (wrong && r == 0 && p == 1 && m == 2);
                    for (size_t i = 0; i < bytes; ++i) at[i] = byte(call, r, p, m, i);
                    b.messages[first++] = {(u64)at, bytes, bytes};
                    b.lanes = std::max(b.lanes, (u32)parts(bytes));
                }
                b.ends[end++] = {inbox(r, p), words(p, 0, r), words(r, 2, p), p, 1, first, EACH_WAY};
                for (unsigned m = 0; m < EACH_WAY; ++m) {
                    const size_t bytes = length(call, p, r, m);
                    b.messages[first++] = {(u64)output[r] + place(p, m, p, r), bytes, bytes};
                    b.lanes = std::max(b.lanes, (u32)parts(bytes));
                }
            }
            // Each rank has room for another number of blocks.
            const u32 room = drawn(call, r, r, 0) % 5 + 1;
            b.blocks = std::min(b.lanes, room);
        }
        for (unsigned r = 0; r < ranks; ++r) {
            const unsigned blocks = ends * all[r].blocks;
            for (unsigned k = 0; k < blocks; ++k) begun.push_back(begin_block(kernel, &all[r], k, blocks, THREADS));
        }
        well = end_blocks(begun) && well;
        for (unsigned r = 0; r < ranks; ++r) {
            print_report(r, *(const Report *)(mail[r] + 64));
            std::vector<char> wanted(vector, 0x5a);
            for (unsigned p = 0; p < ranks; ++p)
                for (unsigned m = 0; p != r && m < EACH_WAY; ++m) {
                    char *at = wanted.data() + place(p, m, p, r);
                    for (size_t i = 0; i < length(call, p, r, m); ++i) at[i] = byte(call, p, r, m, i);
                }
            if (!wrong && memcmp(wanted.data(), output[r], vector) != 0)
                printf("call %u: rank %u is wrong\n", call, r), well = false;
        }
    }
    puts(well ? "well" : "wrong");
}
