
// ---- lanes between two ranks: see batch.rs -----------------------------------------------------------------

struct End {
    u64 slots, wait, tell, count;
    u32 peer, receives, first, messages;
};

struct Message {
    u64 at, bytes, tag;
};

// Kinds of words, and what a report says of a message that is another than the one that is received.
enum : u32 { ARRIVED = 5, ROOM = 6, OTHER = 3 };

constexpr u64 PIECE = SLOT - 16;

// Until a word has come to a number.
INLINE void await_count(const Params &params, u64 word, u64 wanted, u32 kind, u32 peer) {
    Patience patience;
    for (;;) {
        const u64 seen = look<true>(word);
        if (reached(seen, wanted)) return;
        if (patience.polls > EAGER) doze();
        if (const u32 what = patience.ends(params))
            fail(params, {what, kind, peer, NOWHERE, NOWHERE, 0, wanted, seen});
    }
}

template <u32 BYTES> INLINE void carry_by(u64 to, u64 from, u64 bytes) {
    constexpr u64 STEP = BYTES * THREADS;
#pragma unroll 1
    for (u64 at = BYTES * threadIdx.x; at < bytes; at += 4 * STEP) {
        Piece<BYTES> x[4];
        EACH(4, if (at + k * STEP < bytes) x[k] = fetch<BYTES>(from + at + k * STEP);)
        EACH(4, if (at + k * STEP < bytes) put<BYTES>(to + at + k * STEP, x[k]);)
    }
}

// Copies bytes, by all threads of the block.
INLINE void carry(u64 to, u64 from, u64 bytes) {
    const u64 all = to | from | bytes;
    if (all % 16 == 0) carry_by<16>(to, from, bytes);
    else if (all % 4 == 0) carry_by<4>(to, from, bytes);
    else carry_by<1>(to, from, bytes);
}

// Moves a message through a lane, by all threads of the block: as the sender in pieces into slots, as the receiver out of
// them. `count` is the number of pieces that the lane has moved before, and is counted on. A piece carries the tag.
INLINE void move(const Params &params, const End &end, u32 lane, u64 &count, const Message &message) {
    const u64 slots = end.slots + lane * SLOTS * SLOT;
    const u64 each = (message.bytes + 16 * LANES - 1) / (16 * LANES) * 16;
    const u64 begin = lane * each < message.bytes ? lane * each : message.bytes;
    const u64 length = message.bytes - begin < each ? message.bytes - begin : each;
    u64 at = 0;
    do {
        const u64 bytes = length - at < PIECE ? length - at : PIECE;
        const u64 slot = slots + ++count % SLOTS * SLOT, user = message.at + begin + at;
        if (threadIdx.x == 0) {
            if (!end.receives) {
                if (count > SLOTS) await_count(params, end.wait + 8 * lane, count - SLOTS, ROOM, end.peer);
                tell(slot, message.tag);
            } else {
                await_count(params, end.wait + 8 * lane, count, ARRIVED, end.peer);
                if (const u64 tag = look<false>(slot); tag != message.tag)
                    fail(params, {OTHER, ARRIVED, end.peer, NOWHERE, NOWHERE, 0, message.tag, tag});
            }
        }
        follow();
        if (end.receives) carry(user, slot + 16, bytes);
        else carry(slot + 16, user, bytes);
        __syncthreads();
        if (threadIdx.x == 0) {
            release();
            tell(end.tell + 8 * lane, count);
        }
        at += bytes;
    } while (at < length);
}
