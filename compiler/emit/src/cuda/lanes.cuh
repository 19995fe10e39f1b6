
// ---- lanes between two ranks: see batch.rs -----------------------------------------------------------------

struct End {
    u64 slots, freed, count;
    u32 peer, how, first, messages;
};

struct Message {
    u64 at, bytes, tag;
};

// How an end is: it receives; its slots lie in memory of this host, and its pieces are carried from there, as many bytes
// as the second word of a slot says. Packets are not, since a socket does not keep the order in which their bytes were
// written.
enum : u32 { RECEIVES = 1, CARRIED = 2 };

// Kinds of words, and what a report says of a message that is another than the one that is received.
enum : u32 { ARRIVED = 5, ROOM = 6, OTHER = 3 };

// A slot is a word, room for a piece, and room for the packets of each thread. The word is the number of the piece, beside
// its tag. Nothing but packets is ever written where they lie, so that no content looks like one. Their numbers come
// again after 2^31 pieces, so a receiver clears a slot's packets now and then: after as many uses as stand here.
constexpr u64 PACKET_ROOM = 16 * PACKETS_EACH * THREADS, PIECE = SLOT - 16 - PACKET_ROOM, USES = 1 << 24;
// Bytes that a lane sends as packets at most.
constexpr u64 AS_PACKETS = 8 * PACKETS_EACH * THREADS;

INLINE u64 headed(u64 count, u64 tag) { return count << 32 | (u32)tag; }

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

// A lane of an end: the pieces that this rank has moved, and those that it knows the receiver to have taken.
struct Lane {
    u32 number;
    u64 count, freed;
};

INLINE Lane lane_of(const End &end, u32 number) {
    const u64 freed = end.how & RECEIVES ? 0 : look<false>(end.freed + 8 * number);
    return {number, look<false>(end.count + 8 * number), freed};
}

// Until the receiver has freed the slot of the lane's piece.
INLINE void await_room(const Params &params, const End &end, const Lane &lane) {
    if (lane.count > SLOTS) await_count(params, end.freed + 8 * lane.number, lane.count - SLOTS, ROOM, end.peer);
}

// Until the piece of that number is in its slot; fails if it is of another message.
INLINE void await_piece(const Params &params, const End &end, u64 slot, u64 count, u64 tag) {
    Patience patience;
    for (;;) {
        const u64 seen = look<true>(slot);
        if (seen == headed(count, tag)) return;
        if ((u32)(seen >> 32) == (u32)count)
            fail(params, {OTHER, ARRIVED, end.peer, NOWHERE, NOWHERE, 0, tag, (u32)seen});
        if (patience.polls > EAGER) doze();
        if (const u32 what = patience.ends(params))
            fail(params, {what, ARRIVED, end.peer, NOWHERE, NOWHERE, 0, count, seen >> 32});
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

// Reads or writes the bytes of a packet that a message has.
INLINE Piece<8> part(u64 from, u64 bytes) {
    if (from % 8 == 0 && bytes >= 8) return fetch<8>(from);
    u64 all = 0;
#pragma unroll 1
    for (u32 k = 0; k < 8 && k < bytes; ++k) all |= (u64)fetch<1>(from + k).w[0] << 8 * k;
    return {{(u32)all, (u32)(all >> 32)}};
}

INLINE void put_part(u64 to, const Piece<8> &x, u64 bytes) {
    if (to % 8 == 0 && bytes >= 8) return put<8>(to, x);
    const u64 all = (u64)x.w[1] << 32 | x.w[0];
#pragma unroll 1
    for (u32 k = 0; k < 8 && k < bytes; ++k) put<1>(to + k, {{(u32)(all >> 8 * k) & 255}});
}

// Moves a piece as packets, a few a thread: without a fence, and without a barrier before its content is there. Threads of
// a sender do not wait for each other, and not for room that there was when the kernel began.
INLINE void move_packets(const Params &params, const End &end, const Lane &lane, u64 tag, u64 slot, u64 user, u64 bytes) {
    const u64 packets = slot + SLOT - PACKET_ROOM, count = lane.count;
    const u32 epoch = (u32)count | 1u << 31;
    const auto place = [](u32 k) -> u64 { return threadIdx.x + k * THREADS; };
    const auto has = [&](u32 k) { return 8 * place(k) < bytes; };
    if (!(end.how & RECEIVES)) {
        Piece<8> x[PACKETS_EACH]{};
        EACH(PACKETS_EACH, if (has(k)) x[k] = part(user + 8 * place(k), bytes - 8 * place(k));)
        const bool room = count <= SLOTS || reached(lane.freed, count - SLOTS);
        if (!room && (has(0) || threadIdx.x == 0)) await_room(params, end, lane);
        if (threadIdx.x == 0) tell(slot, headed(count, tag));
        EACH(PACKETS_EACH, if (has(k)) post(packets + 16 * place(k), {x[k].w[0], epoch, x[k].w[1], epoch});)
        return;
    }
    if (threadIdx.x == 0) await_piece(params, end, slot, count, tag);
    EACH(PACKETS_EACH, if (has(k)) {
        Packet got;
        for (Patience patience; !(got = peek(packets + 16 * place(k))).is(epoch);)
            if (const u32 what = patience.ends(params))
                fail(params, {what, ARRIVED, end.peer, NOWHERE, NOWHERE, 0, epoch, got.at_a});
        put_part(user + 8 * place(k), {{got.a, got.b}}, bytes - 8 * place(k));
    })
}

// Moves a piece through its slot, by all threads of the block.
INLINE void move_staged(const Params &params, const End &end, const Lane &lane, u64 tag, u64 slot, u64 user, u64 bytes) {
    if (threadIdx.x == 0) {
        if (end.how & RECEIVES) await_piece(params, end, slot, lane.count, tag);
        else await_room(params, end, lane);
    }
    follow();
    if (end.how & RECEIVES) {
        carry(user, slot + 16, bytes);
        return;
    }
    carry(slot + 16, user, bytes);
    __syncthreads();
    if (threadIdx.x == 0) {
        if (end.how & CARRIED) put<8>(slot + 8, {{(u32)bytes, 0}});
        release();
        tell(slot, headed(lane.count, tag));
    }
}

// Moves a message through a lane, by all threads of the block: as the sender in pieces into slots, as the receiver out of
// them. Counts the pieces on. A lane without a part of the message has no piece; the first one has always one, so that
// another message is seen.
//
// A receiver tells of packets that it has taken when it begins with the next piece, so that no kernel ends later for it.
// It is in time: before a sender needs to know that a slot is free, the receiver has begun with the piece after the one
// that lay there.
INLINE void move(const Params &params, const End &end, Lane &lane, const Message &message) {
    const u64 slots = end.slots + lane.number * SLOTS * SLOT;
    const u64 share = (message.bytes + 16 * LANES - 1) / (16 * LANES) * 16;
    const bool receives = end.how & RECEIVES, carried = end.how & CARRIED;
    const u64 least = carried ? CARRIED_LEAST : LEAST;
    const u64 each = share < least ? least : share, begin = lane.number * each;
    if (begin >= message.bytes && lane.number != 0) return;
    const u64 length = message.bytes - begin < each ? message.bytes - begin : each;
    const bool packed = each <= AS_PACKETS && !carried;
    const u64 freed = end.freed + 8 * lane.number;
    u64 at = 0;
    do {
        if (receives && !carried && threadIdx.x == 0) tell(freed, lane.count);
        const u64 bytes = length - at < PIECE ? length - at : PIECE;
        const u64 slot = slots + ++lane.count % SLOTS * SLOT, user = message.at + begin + at;
        if (packed) move_packets(params, end, lane, message.tag, slot, user, bytes);
        else move_staged(params, end, lane, message.tag, slot, user, bytes);
        if (receives) {
            const bool clears = lane.count / SLOTS % USES == 0 && !carried;
            const u64 packet = slot + SLOT - PACKET_ROOM + 16 * threadIdx.x;
            if (clears) {
                EACH(PACKETS_EACH, post(packet + 16 * k * THREADS, {0, 0, 0, 0});)
            }
            __syncthreads();
            if ((clears || !packed) && threadIdx.x == 0) {
                release();
                tell(freed, lane.count);
            }
        }
        at += bytes;
    } while (at < length);
}
