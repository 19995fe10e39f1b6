// Signals, waits and atomic operations of `ranks` ranks by the kernel's own text: rounds in which each rank writes to the
// part of the next one, signals it, and waits for the one before; then additions and swaps of all ranks on one word. With
// a third argument rank 0 waits for a signal too many; if it is 2, for a word that is not raised so far. Prints reports,
// and whether all was as it must be.

static unsigned ranks;

static void kernel(const void *w) { roundelay_kernel(*(const Window *)w); }

int main(int argc, char **argv) {
    ranks = atoi(argv[1]);
    const unsigned rounds = atoi(argv[2]);
    const bool late = argc > 3;
    std::vector<u64 *> words, part, mail;
    for (unsigned r = 0; r < ranks; ++r) {
        words.push_back((u64 *)shared_memory(4096)), part.push_back((u64 *)shared_memory(4096));
        mail.push_back((u64 *)shared_memory(4096));
    }
    const auto window = [&](unsigned rank, u64 operation, unsigned peer, u64 *word, u64 *own) {
        Window w = {};
        w.params.state = (u64)mail[rank] + 1024, w.params.abort = (u64)mail[rank], w.params.report = (u64)mail[rank] + 64;
        w.params.timeout = late ? 2000000000ull : 60000000000ull;
        w.operation = operation, w.peer = peer, w.word = (u64)word, w.own = (u64)own;
        return w;
    };
    bool well = true;
    // Each rank is a process that does what its stream would. It may be as many rounds ahead of the next one as there are
    // ranks, and words of as many rounds take turns.
    std::vector<pid_t> begun;
    for (unsigned r = 0; r < ranks; ++r) {
        if (const pid_t child = fork(); child != 0) {
            begun.push_back(child);
            continue;
        }
        const auto run = [&](const Window &w) {
            const pid_t block = begin_block(kernel, &w, 0, 1, 32);
            return end_blocks({block});
        };
        bool mine = true;
        const unsigned next = (r + 1) % ranks, before = (r + ranks - 1) % ranks;
        const auto signal = [&](unsigned p) { return window(r, SIGNAL, p, words[p] + r, words[r] + 2 * ranks + p); };
        const auto await = [&](unsigned p) { return window(r, AWAIT, p, words[r] + p, words[r] + ranks + p); };
        for (unsigned k = 0; k < rounds; ++k) {
            part[next][k % 8] = 1000 * k + r;
            mine = run(signal(next)) && run(await(before)) && mine;
            mine = mine && part[r][k % 8] == 1000 * k + before;
        }
        for (unsigned k = 0; k < rounds; ++k) {
            Window add = window(r, ADD, 0, part[0] + 16, part[r] + 64 + k);
            add.operand = 3;
            Window swap = window(r, SWAP, 0, part[0] + 17, part[r] + 128 + k);
            swap.compared = k, swap.operand = k + 1;
            mine = run(add) && run(swap) && mine;
        }
        // A word that has come so far is not waited for.
        Window reach = window(r, REACH, before, words[r] + before, nullptr);
        reach.operand = rounds;
        mine = run(reach) && mine;
        reach.operand = rounds + 1;
        if (late && r == 0) run(atoi(argv[3]) == 2 ? reach : await(before));
        _exit(mine ? 0 : 1);
    }
    well = end_blocks(begun);
    std::vector<bool> seen(ranks * rounds);
    for (unsigned r = 0; r < ranks; ++r) {
        if (const Report &report = *(const Report *)(mail[r] + 8); report.what != 0)
            printf("rank %u: report %u, word %u, peer %u, wanted %llu, seen %llu\n", r, report.what, report.word,
                   report.peer, report.wanted, report.seen);
        for (unsigned k = 0; k < rounds; ++k) {
            const u64 was = part[r][64 + k];
            well = well && was % 3 == 0 && was / 3 < ranks * rounds && !seen[was / 3];
            if (well) seen[was / 3] = true;
        }
    }
    u64 swaps = 0;
    for (unsigned r = 0; r < ranks; ++r)
        for (unsigned k = 0; k < rounds; ++k) swaps += part[r][128 + k] == k;
    well = well && part[0][16] == 3ull * ranks * rounds && part[0][17] == swaps && swaps > 0;
    puts(well ? "well" : "wrong");
}
