// What every kernel of roundelay is made of, on top of `machine.cuh`. A kernel defines before this: RANKS, RANK, PARTS
// (the chunks of the whole vector), BLOCKS_OF (vector elements for each one that the caller gave), SIZE (bytes of an
// element), PROVES (whether its end proves that every rank has entered the call), PACKETS (whether all its messages are
// packets), FAR (whether some of its peers are on other hosts).
//
// The seams, in this order:
//   parameters, as compiler/src/device/abi.rs has them
//   failure     every spin ends: by success, by the abort word, or by the time
//   Me          a thread: what it is, which elements are its block's, which epoch it is
//   waits and signals, packets
//
// `numbers.cuh` follows it.
//
// A thread that fails leaves the kernel at once, and others when they next wait long. Those that remain pass
// barriers without it, but tell peers nothing more: `signal` looks at `failed` first, and packets that were not made
// are not sent. Calls that follow it in the stream do nothing: they would run under the number of the one that failed,
// and a peer that comes to that one late would take theirs for its messages.

// ---- parameters ------------------------------------------------------------------------------------------

constexpr u32 THREADS = 512;
constexpr u32 CHANNELS = 8, MOST_BLOCKS = 128, YEAR = 1 << 30;

struct Params {
    u64 count, pass, passes, groups, unit, staging, halves, packets, packet_half, scratch, host, far, state, abort,
        report, timeout, part, program, number, multicast[3];
    double factor;
    u64 arena[RANKS], data[RANKS], input[RANKS], output[RANKS];
};

// What differs between calls with the same parameters: how far the buffers lie from the addresses in the parameters, the
// elements, how they are cut, and the blocks that run.
struct Call {
    u64 data, input, output, count, pass, passes;
    u32 blocks;
};

struct State {
    u32 epoch, synchronized, failed, ended;
};

struct Report {
    u32 what, word, peer, block, site, round;
    u64 wanted, seen;
    u32 epoch, program;
};

// Kinds of words, as reports number them; no site, or no round.
enum : u32 { ENTERED, SENT, CONSUMED, PACKET, BEFORE, NOWHERE = 0xffffffffu };

// ---- failure ---------------------------------------------------------------------------------------------

static __shared__ u32 failed;

struct Failure {
    u32 what, word, peer, site, round, epoch;
    u64 wanted, seen;
};

// Reports, unless somebody has.
static __device__ __noinline__ void report(const Params &params, Failure f) {
    *(volatile u32 *)&failed = 1;
    const u64 state = params.state;
    if (claim(state + 8)) {
#pragma unroll 1
        for (u32 b = 1; b < MOST_BLOCKS; ++b) *(volatile u32 *)(state + 16 * b + 8) = 1;
        volatile Report *to = (volatile Report *)params.report;
        to->word = f.word;
        to->peer = f.peer;
        to->block = blockIdx.x;
        to->site = f.site;
        to->round = f.round;
        to->wanted = f.wanted;
        to->seen = f.seen;
        to->epoch = f.epoch;
        to->program = (u32)params.program;
        release();
        to->what = f.what;
    }
}

// Reports, and leaves the kernel.
INLINE void fail(const Params &params, const Failure &f) {
    report(params, f);
    quit();
}

// How long a wait has lasted.
struct Patience {
    u32 polls = 0;
    u64 since = 0;

    // 0 to go on, or what to report, after so many timeouts. Looks about once in some milliseconds.
    INLINE u32 ends(const Params &params, u32 timeouts = 1) {
        if (++polls % 4096 != 0) return 0;
        if (look32(params.abort) != 0 || look32(params.state + 8) != 0) return 2;
        const u64 time = now();
        if (since == 0) since = time;
        return time - since > timeouts * params.timeout ? 1 : 0;
    }
};

// ---- a thread --------------------------------------------------------------------------------------------

struct Me {
    const Params &params;
    const Call call;
    u32 thread, warp, lane, block, blocks;
    // The number of the call before, that of this call, whether the call before proved that all had entered it, and
    // whether one before has failed.
    u32 last, epoch, synchronized, over;
    // Elements of a short chunk, the remainder, elements of a long chunk.
    u64 least, rest, most;
    // The pass at hand: its number, and its first element in each chunk.
    u64 at_pass, from;
    // Whether the tasks of a phase are run side by side, and not one after the other.
    bool spread;

    INLINE Me(const Params &p, const Call &c) : params(p), call(c) {
        look_state(p.state + 16 * blockIdx.x, last, synchronized, over);
        epoch = last + 1;
        thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
        block = blockIdx.x, blocks = c.blocks;
        const u64 elements = c.count * BLOCKS_OF;
        least = elements / PARTS, rest = elements % PARTS, most = least + (rest != 0);
        spread = PACKETS || p.groups > 1;
        pass(0);
    }

    // Makes the compiler take the epoch from here on only: its memory is read while the first elements are.
    INLINE void know() {
        forget(last), forget(synchronized);
        if (over) quit();
        epoch = last + 1;
    }

    INLINE void pass(u64 t) {
        at_pass = t;
        from = (t * blocks + block) * call.pass;
    }

    // Makes the compiler forget what it knows of these, and with it all addresses made of them: else it would make
    // those of all tasks before the first pass, and run out of registers.
    INLINE void here() {
        forget(least), forget(rest), forget(from), forget(at_pass);
        forget(block), forget(blocks), forget(epoch), forget(thread);
    }

    // Where chunk c of the vector begins, and its elements.
    INLINE u64 begin(u64 c) const { return c * least + c * rest / PARTS; }
    INLINE u64 length(u64 c) const { return begin(c + 1) - begin(c); }

    // How many of a chunk's elements are processed in this pass.
    INLINE u64 part(u64 length) const {
        const u64 left = length > from ? length - from : 0;
        return left < call.pass ? left : call.pass;
    }

    // Address of a rank's buffer of the user's.
    INLINE u64 data(u32 rank) const { return params.data[rank] + call.data; }
    INLINE u64 input(u32 rank) const { return params.input[rank] + call.input; }
    INLINE u64 output(u32 rank) const { return params.output[rank] + call.output; }

    // The same of all ranks, for the switch.
    INLINE u64 all_data() const { return params.multicast[0] + call.data; }
    INLINE u64 all_input() const { return params.multicast[1] + call.input; }
    INLINE u64 all_output() const { return params.multicast[2] + call.output; }

    // Address of the first element to process of a chunk: of a user's buffer, of a scratch buffer.
    INLINE u64 chunk(u64 buffer, u64 c) const { return buffer + SIZE * (begin(c) + from); }
    INLINE u64 scratch(u64 buffer, u64 c) const { return buffer + SIZE * (c * most + from); }

    // Address of chunk k of a message in slot s of a link, on its receiver, in the first half.
    INLINE u64 slot(u32 receiver, u32 base, u32 slots, u32 chunks, u32 s, u32 k) const {
        const u64 index = base * blocks + (block * slots + s) * chunks + k;
        return params.arena[receiver] + params.staging + index * params.unit;
    }

    // The same in far memory.
    INLINE u64 far_slot(u32 base, u32 slots, u32 chunks, u32 s, u32 k) const {
        return params.host + params.far + (base * blocks + (block * slots + s) * chunks + k) * params.unit;
    }

    // What leads to the half of the call.
    INLINE u64 half() {
        know();
        return (epoch & 1) * params.halves;
    }

    // The number of a message, of so many in a pass; its slot; what its words must hold.
    INLINE u64 number(u32 messages, u32 index) const { return at_pass * messages + index + 1; }
    INLINE u32 turn(u32 messages, u32 index, u32 slots) const {
        return (u32)((at_pass * messages + index) % slots);
    }
    INLINE u64 mark(u64 number) const { return (u64)epoch << 32 | number; }
    INLINE u64 room(u64 number, u32 slots) const { return number > slots ? mark(number - slots) : 0; }
};

// The value of that index.
template <class... REST> INLINE u64 pick(u32 index, u64 first, REST... rest) {
    u64 value = first;
    u32 k = 1;
    ((value = index == k++ ? (u64)rest : value), ...);
    return value;
}

// How the warps of a block share tasks of one kind. Side by side: the `count` warps from `first` take a task each in
// turn, and where there are more warps tha tasks, several share one. Else the `among` warps from `from` run all
// tasks, one by one.
struct Share {
    u32 task, stride, lead, team;

    INLINE Share(const Me &me, u32 first, u32 count, u32 tasks, u32 from = 0, u32 among = THREADS / 32) {
        const u32 warp = me.warp - first;
        if (!me.spread) lead = me.warp - from, task = lead < among ? 0 : tasks, stride = 1, team = among;
        else if (warp >= count) task = tasks, stride = 0, lead = 0, team = 1;
        else if (count < tasks) task = warp, stride = count, lead = 0, team = 1;
        else task = warp % tasks, stride = tasks, lead = warp / tasks, team = (count - task + tasks - 1) / tasks;
    }
};

// The same for a single task: the warps that run it, and this one among them; no team where it is none of them.
struct Team {
    u32 lead, team;

    INLINE Team(const Me &me, u32 first, u32 count, u32 from = 0, u32 among = THREADS / 32) {
        lead = me.warp - (me.spread ? first : from);
        team = me.spread ? count : among;
        if (lead >= team) team = 0;
    }
};

// ---- waits and signals -----------------------------------------------------------------------------------

// Index of the word of block 0 in the arena where it is read, by who writes it.
constexpr u32 LINKS = RANKS * CHANNELS * MOST_BLOCKS;
INLINE constexpr u32 sent(u32 source, u32 channel) { return (source * CHANNELS + channel) * MOST_BLOCKS; }
INLINE constexpr u32 consumed(u32 target, u32 channel) { return LINKS + sent(target, channel); }
INLINE constexpr u32 entered(u32 peer) { return 2 * LINKS + peer * MOST_BLOCKS; }

// Words of far memory, behind those of the arena: heard from the proxy, said to it.
constexpr u32 WORDS = 2 * LINKS + RANKS * MOST_BLOCKS;
INLINE constexpr u32 heard(u32 index) { return WORDS + index; }
INLINE constexpr u32 said(u32 index) { return 2 * WORDS + index; }

// A word of a rank's arena, or of this rank's far memory.
INLINE u64 word(const Params &params, u32 rank, u32 index, u32 block) {
    if (FAR && index >= WORDS) return params.host + 8 * (u64)(index - WORDS + block);
    return params.arena[rank] + 8 * (u64)(index + block);
}

// Whether a word tells of as much: by difference, for epochs begin again at 0.
INLINE bool reached(u64 seen, u64 wanted) { return (i64)(seen - wanted) >= 0; }

// Something awaited: a word of this rank, and what it must have reached; 0 asks for nothing.
struct Event {
    u32 word;
    u64 value;
};

// Looks without a pause between them: some microseconds. Many warps that look all the time take from what comes in:
// stores to a GPU whose 128 blocks waited with 16 warps each came at 131 GB/s, with one warp each, or pauses, at 371.
[[maybe_unused]] constexpr u32 EAGER = 16;

// Looks at words of this rank, each lane at one, until they have reached what is wanted. A function, as loops of tasks
// are that occur often (moves.rs). All lanes call it and converge in it: with the call of a single lane in a branch
// the warps did not converge again, and moved all they had to in two parts.
template <bool ACQUIRE>
[[maybe_unused]] static __device__ __noinline__ void await(const Params &params, u32 index, u64 wanted, u32 site, u32 round, u32 epoch) {
    if (wanted != 0) {
        const u64 at = word(params, RANK, index, blockIdx.x);
        Patience patience;
        for (;;) {
            const u64 seen = look<ACQUIRE>(at);
            if (reached(seen, wanted)) break;
            if (patience.polls > EAGER) doze();
            if (const u32 what = patience.ends(params)) {
                const u32 which = FAR && index >= WORDS ? index - WORDS : index;
                const u32 kind = which < LINKS ? SENT : which < 2 * LINKS ? CONSUMED : ENTERED;
                const u32 of = kind == ENTERED ? (which - 2 * LINKS) / MOST_BLOCKS
                                               : which % LINKS / (CHANNELS * MOST_BLOCKS);
                fail(params, {what, kind, of, site, round, epoch, wanted, seen});
            }
        }
    }
    __syncwarp();
}

// Waits for all events: each lane of the warp looks at one. They are so many that are alike, or some.
template <bool ACQUIRE, class OF> INLINE void wait(const Me &me, u32 site, u32 round, u32 count, OF of) {
    Event event{0, 0};
    if (me.lane < count) event = of(me.lane);
    await<ACQUIRE>(me.params, event.word, event.value, site, round, me.epoch);
}
template <bool ACQUIRE, class... EVENTS>
INLINE void wait(const Me &me, u32 site, u32 round, Event first, EVENTS... rest) {
    static_assert(sizeof...(rest) < 32, "a lane a wait");
    Event event{first.word, me.lane == 0 ? first.value : 0};
    u32 k = 1;
    ((me.lane == k++ ? (void)(event = rest) : (void)0), ...);
    await<ACQUIRE>(me.params, event.word, event.value, site, round, me.epoch);
}

// After the first warp has waited for all.
INLINE void follow() {
    __syncthreads();
    if (*(volatile u32 *)&failed) quit();
}

// Something told: a word of a peer, and its value.
struct News {
    u32 peer, word;
    u64 value;

    INLINE News(u32 peer, u32 word, u64 value) : peer(peer), word(word), value(value) {}
};

// Tells peers, after a block barrier: a thread for each of so many news that are alike, or of some.
template <bool RELEASE, class OF> INLINE void signal(Me &me, u32 count, OF of) {
    me.here();
    if (me.thread >= count || *(volatile u32 *)&failed) return;
    const News news = of(me.thread);
    if (RELEASE) release();
    tell(word(me.params, news.peer, news.word, me.block), news.value);
}
template <bool RELEASE, class... NEWS> INLINE void signal(Me &me, News first, NEWS... rest) {
    static_assert(sizeof...(rest) < THREADS, "a thread a signal");
    signal<RELEASE>(me, 1 + sizeof...(rest), [&](u32 thread) {
        u32 k = 1;
        ((thread == k++ ? (void)(first = rest) : (void)0), ...);
        return first;
    });
}

// Until these peers have ended the call before the last.
template <u32... PEERS> INLINE void ended(const Params &params, u32 last_call, u32 epoch) {
    const u64 wanted = (u64)last_call << 32;
    Patience patience;
    constexpr u32 of[] = {PEERS...};
    for (;;) {
        const u64 seen[] = {look<false>(word(params, RANK, entered(PEERS), 0))...};
        u32 behind = NOWHERE;
        u64 last = 0;
#pragma unroll
        for (u32 k = 0; k < sizeof...(PEERS); ++k)
            if (!reached(seen[k], wanted)) behind = of[k], last = seen[k];
        if (behind == NOWHERE) return;
        if (const u32 what = patience.ends(params))
            fail(params, {what, BEFORE, behind, NOWHERE, NOWHERE, epoch, wanted, last});
    }
}

template <u32... PEERS> static __device__ __noinline__ void ended_apart(const Params &params, u32 last_call, u32 epoch) {
    ended<PEERS...>(params, last_call, epoch);
}

// Before the first write into the staging memory of these peers. Each thread finds out by itself, without a block
// barrier. Kernels that prove it for the next call seldom look, and are shorter without.
template <u32... PEERS> INLINE void enter(Me &me) {
    me.know();
    if (me.synchronized) return;
    me.synchronized = 1;
    if constexpr (PROVES) ended_apart<PEERS...>(me.params, me.last, me.epoch);
    else ended<PEERS...>(me.params, me.last, me.epoch);
}

// Whether the end of this call proves that all ranks have entered it.
INLINE bool proves(const Me &me) { return PROVES && me.least != 0; }

// Early: tells these ranks that this one has entered, if nothing later would prove it. They learn nothing else by
// it; those that count on more are greeted, and not told here, for it is the same word.
template <class OF> INLINE void announce(Me &me, u32 count, OF peer) {
    me.know();
    if (proves(me) || me.block != 0 || me.thread >= count) return;
    tell(word(me.params, peer(me.thread), entered(RANK), 0), me.mark(1));
}

// At the start, to this rank's proxies: the slots of the call before are free, the call has this epoch, and it is the
// one of this number.
INLINE void arrive(Me &me) {
    me.know();
    if (me.thread == 0) tell(word(me.params, RANK, said(entered(RANK)), me.block), me.mark((u32)me.params.number));
}

// At the start, to those who read or write this rank's buffers: they may.
template <class OF> INLINE void greet(Me &me, u32 count, OF peer) {
    signal<true>(me, count, [&](u32 k) { return News(peer(k), entered(RANK), me.mark(1)); });
}

// Now and then, by the block of a call that ends last: so that no word and no packet ever is as old as half of all
// epochs. Words say what is so, that this rank has sent and consumed all of the call; packets of this half are given
// epochs of the other one. No peer writes into it before this rank has entered the next call.
INLINE void renew(const Me &me) {
    const u64 all = me.mark(0xffffffff);
    __shared__ bool last;
    if (me.thread == 0) last = count(me.params.state + 12) + 1 == me.blocks;
    __syncthreads();
    if (!last || look32(me.params.state + 8) != 0) return;
    if (me.thread == 0) reset(me.params.state + 12);
    const u32 half = me.epoch & 1;
    const u64 packets = me.params.arena[RANK] + me.params.packets + half * me.params.packet_half;
#pragma unroll 1
    for (u64 at = 16 * me.thread; at < me.params.packet_half; at += 16 * THREADS)
        post(packets + at, {0, half ^ 1, 0, half ^ 1});
    release();
#pragma unroll 1
    for (u32 peer = 0; peer < RANKS; ++peer) {
        // Of ranks on other hosts there is no arena.
        if (peer == RANK || me.params.arena[peer] == 0) continue;
#pragma unroll 1
        for (u32 k = me.thread; k < CHANNELS * MOST_BLOCKS; k += THREADS) {
            tell(word(me.params, peer, sent(RANK, 0), k), all);
            tell(word(me.params, peer, consumed(RANK, 0), k), all);
        }
        if (me.thread < MOST_BLOCKS) tell(word(me.params, peer, entered(RANK), me.thread), all);
    }
    // What proxies have told and heard: they have carried all of the call, and the next one has not begun.
    if (me.params.host == 0) return;
#pragma unroll 1
    for (u32 k = me.thread; k < 2 * LINKS; k += THREADS) {
        tell(me.params.host + 8 * (u64)k, all);
        tell(me.params.host + 8 * (u64)(WORDS + k), all);
    }
}

// At the end, behind a block barrier.
INLINE void leave(const Me &me) {
#pragma unroll 1
    for (u32 b = me.block + me.thread * me.blocks; b < MOST_BLOCKS; b += THREADS * me.blocks)
        tell_state(me.params.state + 16 * b, me.epoch, proves(me));
    if (me.epoch % YEAR >= YEAR - 2) renew(me);
}

// ---- packets ---------------------------------------------------------------------------------------------

template <u32 BYTES> INLINE void send(u64 at, const Piece<BYTES> &x, u32 epoch) {
    static_assert(BYTES % 8 == 0, "whole packets");
    EACH(BYTES / 8, post(at + 16 * k, {x.w[2 * k], epoch, x.w[2 * k + 1], epoch}))
}

// Packets of some messages: K of them, all looked for at once, then only those that are missing. For reports: a
// byte a message for its sender, lowest first, and the packets of a message.
template <u32 K>
INLINE void poll(const Params &params, u32 epoch, Packet (&got)[K], const u64 (&at)[K], u64 peers, u32 each, u32 site,
                 u32 round) {
#pragma unroll
    for (u32 k = 0; k < K; ++k) got[k] = peek(at[k]);
    Patience patience;
    for (;;) {
        bool all = true;
#pragma unroll
        for (u32 k = 0; k < K; ++k) all = all && got[k].is(epoch);
        if (all) return;
        if (const u32 what = patience.ends(params)) {
            u32 missing = 0, seen = 0;
#pragma unroll
            for (u32 k = 0; k < K; ++k)
                if (!got[k].is(epoch)) missing = k / each, seen = got[k].at_a;
            fail(params,
                 {what, PACKET, (u32)(peers >> 8 * missing) & 255, site, round, epoch, epoch, seen});
        }
#pragma unroll
        for (u32 k = 0; k < K; ++k)
            if (!got[k].is(epoch)) got[k] = peek(at[k]);
    }
}

template <u32 BYTES> INLINE Piece<BYTES> open(const Packet *got) {
    Piece<BYTES> x;
    EACH(BYTES / 8, x.w[2 * k] = got[k].a, x.w[2 * k + 1] = got[k].b)
    return x;
}
