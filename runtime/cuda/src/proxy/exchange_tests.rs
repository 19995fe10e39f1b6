//! Messages between single ranks of different hosts, over sockets of this machine, with kernels that threads run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use roundelay_compiler::plan::MessageDirection;
use roundelay_emit::cuda::batch;
use roundelay_tests::SeededRandom;

use super::emulated::KernelExit;
use super::packet::{self, PacketKind, ProxyPacket};
use super::peer_slots::{PeerSlots, SlotWord};
use super::queues::{BatchEnd, ProxyBatch};
use super::stream::DIGEST;
use super::tests::{PATIENCE, Rank, World, everywhere, late, long, sees_the_end};
use roundelay_engine::progress::PacketClient;
use roundelay_support::error::Error;

/// A message from a rank to another.
#[derive(Debug, Clone, PartialEq)]
struct Letter {
    from: u32,
    to: u32,
    content: Vec<u8>,
}

/// The next thing that all ranks do.
enum Step {
    Call,
    /// Messages, which a rank may exchange in two batches.
    Letters(Vec<Letter>),
}

/// One end of a batch, as the emulated kernel runs it.
struct Side<'a> {
    end: &'a BatchEnd,
    /// The letters that are sent, or whose lengths are received.
    letters: Vec<&'a Letter>,
}

/// Counts of pieces, by peer, direction and block, as the kernel keeps them.
type Counts = BTreeMap<(u32, bool, u32), u64>;

fn slots(rank: &mut Rank<'_>, peer: u32, ranks: u32) -> Arc<PeerSlots> {
    rank.lanes.peer_slots(peer, || Ok(PeerSlots::plain(ranks))).expect("plain memory")
}

/// Returns the batch of a rank's letters.
fn batch(rank: &mut Rank<'_>, letters: &[Letter], ranks: u32, timeout: Duration) -> ProxyBatch {
    let own = rank.core.rank();
    let mut ends = Vec::new();
    for (peer, dir) in
        (0..ranks).flat_map(|peer| [(peer, MessageDirection::Send), (peer, MessageDirection::Recv)])
    {
        let messages: Vec<u64> =
            of(letters, own, (peer, dir)).map(|l| l.content.len() as u64).collect();
        if !messages.is_empty() {
            ends.push(BatchEnd { peer, dir, slots: slots(rank, peer, ranks), messages });
        }
    }
    ProxyBatch { ends, is_captured: false, timeout }
}

/// Returns the letters of an end.
fn of(
    letters: &[Letter],
    own: u32,
    (peer, dir): (u32, MessageDirection),
) -> impl Iterator<Item = &Letter> {
    letters.iter().filter(move |l| match dir {
        MessageDirection::Send => (l.from, l.to) == (own, peer),
        MessageDirection::Recv => (l.from, l.to) == (peer, own),
    })
}

/// Runs the kernel of a batch, a thread for each block of each end; returns what was received, end by end.
fn run(
    rank: &Rank<'_>,
    batch: &ProxyBatch,
    letters: &[Letter],
    counts: &mut Counts,
) -> Result<Vec<Letter>, KernelExit> {
    let own = rank.core.rank();
    let mut blocks = Vec::new();
    for end in &batch.ends {
        let side = Side { end, letters: of(letters, own, (end.peer, end.dir)).collect() };
        for block in 0..end.slots.blocks() {
            let key = (end.peer, end.dir == MessageDirection::Send, block);
            blocks.push((key, Arc::new(Side { end, letters: side.letters.clone() })));
        }
    }
    let device = &rank.device;
    let until = |word: &AtomicU64, value: u64, peer| device.until(word, value, peer);
    let block = |block: u32, side: &Side<'_>, mut count: u64| {
        let (end, slots) = (side.end, &side.end.slots);
        let mut got: Vec<Vec<u8>> = Vec::new();
        for letter in &side.letters {
            let bytes = letter.content.len() as u64;
            let before = |b| batch::pieces(bytes, b, slots.blocks()).sum::<u64>() as usize;
            let mut at: usize = (0..block).map(before).sum();
            let mut all = Vec::new();
            for piece in batch::pieces(bytes, block, slots.blocks()) {
                count += 1;
                let piece = piece as usize;
                let place = slots.content(end.dir, block, count).expect("a slot");
                let (head, own) = (slots.head(end.dir, block, count), count << 32 | 77);
                if end.dir == MessageDirection::Send {
                    let room = count.saturating_sub(batch::SLOTS.into());
                    until(slots.word(SlotWord::Taken, block), room, end.peer)?;
                    let content = &letter.content[at..at + piece];
                    // SAFETY: the slot has room for a piece, and is this thread's: what was there was taken.
                    unsafe { place.copy_from_nonoverlapping(content.as_ptr(), piece) };
                    slots.bytes_of(end.dir, block, count).store(piece as u64, Ordering::Relaxed);
                    head.store(own, Ordering::Release);
                } else {
                    until(head, own, end.peer)?;
                    // SAFETY: the slot holds a piece, and is this thread's until it is freed.
                    all.extend_from_slice(unsafe { std::slice::from_raw_parts(place, piece) });
                    slots.word(SlotWord::Freed, block).store(count, Ordering::Release);
                }
                at += piece;
            }
            got.push(all);
        }
        Ok((count, got))
    };
    let block = &block;
    let ended: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = blocks
            .iter()
            .map(|(key, side)| {
                let count = counts.get(key).copied().unwrap_or(0);
                scope.spawn(move || block(key.2, side, count))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let mut received: BTreeMap<(u32, usize), Vec<u8>> = BTreeMap::new();
    for ((key, _), ended) in blocks.iter().zip(ended) {
        let (count, got) = ended?;
        counts.insert(*key, count);
        for (at, part) in got.into_iter().enumerate().filter(|_| !key.1) {
            received.entry((key.0, at)).or_default().extend(part);
        }
    }
    let letter = |((from, _), content)| Letter { from, to: own, content };
    Ok(received.into_iter().map(letter).collect())
}

fn letters(ranks: u32, many: usize, dice: &mut SeededRandom) -> Vec<Letter> {
    let lengths = [0, 1, 5, 16, 300, 4096, 5000, 200_000, 3_000_000];
    (0..many)
        .map(|_| {
            let from = dice.below(ranks as usize) as u32;
            let to = (from + 1 + dice.below(ranks as usize - 1) as u32) % ranks;
            let content = (0..lengths[dice.below(lengths.len())]).map(|_| dice.below(256) as u8);
            Letter { from, to, content: content.collect() }
        })
        .collect()
}

/// Runs steps, launched ahead, and compares what arrives with what was sent, and calls with the host's.
fn all_alike(world: &World, steps: &[Step]) {
    let jobs = long(&world.hosts);
    let ranks = world.ranks();
    let wrong = everywhere(world, &jobs, |rank| {
        let own = rank.core.rank();
        let mut dice = SeededRandom(u64::from(own));
        let mut parts: Vec<Vec<(FarBatchOf<'_>, Arc<ProxyBatch>)>> = Vec::new();
        let mut epoch = 0;
        for step in steps {
            let mut list = Vec::new();
            match step {
                Step::Call => {
                    epoch += 1;
                    jobs[0].call(own, epoch).iter().for_each(|call| rank.lanes.order_call(call));
                }
                Step::Letters(all) => {
                    let (first, second) =
                        all.split_at(if dice.below(2) == 0 { 0 } else { all.len() / 2 });
                    for part in [first, second] {
                        let batch = Arc::new(batch(rank, part, ranks, PATIENCE));
                        rank.lanes.order_batch(&batch);
                        list.push((part, batch));
                    }
                }
            }
            parts.push(list);
        }
        let (mut counts, mut epoch, mut wrong) = (Counts::new(), 0, Vec::new());
        for (step, list) in steps.iter().zip(&parts) {
            if let Step::Call = step {
                epoch += 1;
                let result = rank.run(0, epoch, epoch > 1 && jobs[0].proves());
                if result != Ok(jobs[0].on_host(rank.core)) {
                    wrong.push(format!("call {epoch} on rank {own}: {:?}", rank.lanes.failure()));
                }
            }
            for (part, batch) in list {
                let mut wanted: Vec<Letter> =
                    part.iter().filter(|l| l.to == own).cloned().collect();
                wanted.sort_by_key(|letter| letter.from);
                match run(rank, batch, part, &mut counts) {
                    Ok(got) if got == wanted => {}
                    Ok(_) => wrong.push(format!("letters on rank {own}")),
                    Err(left) => {
                        wrong.push(format!("{left:?} on rank {own}: {:?}", rank.lanes.failure()));
                    }
                }
            }
        }
        wrong
    });
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The letters of a batch.
type FarBatchOf<'a> = &'a [Letter];

#[test]
fn messages_arrive_as_they_were_sent_between_calls_of_all() {
    for (seed, hosts, lanes) in [(1, &[0, 1][..], 1), (2, &[0, 1], 3), (3, &[0, 1, 2], 2)] {
        let (ranks, mut dice) = (hosts.len() as u32, SeededRandom(seed));
        let mut step = |k: usize| match k % 3 {
            2 => Step::Call,
            _ => Step::Letters(letters(ranks, 1 + dice.below(6), &mut dice)),
        };
        let steps: Vec<Step> = (0..12).map(&mut step).collect();
        all_alike(&World::new(hosts, lanes), &steps);
    }
}

/// Returns a letter of that many bytes from rank 0 to 1.
fn to_rank_1(bytes: usize) -> Vec<Letter> {
    vec![Letter { from: 0, to: 1, content: vec![7; bytes] }]
}

#[test]
fn a_connection_that_is_cut_ends_messages_on_both_sides() {
    let world = World::new(&[0, 1], 1);
    let jobs = long(&world.hosts);
    let sent = to_rank_1(64 << 20);
    let ends = everywhere(&world, &jobs, |rank| {
        let own = rank.core.rank();
        let batch = Arc::new(batch(rank, &sent, 2, PATIENCE));
        rank.lanes.order_batch(&batch);
        std::thread::scope(|scope| {
            let (connection, slots) =
                (rank.lanes.connections[0].clone(), batch.ends[0].slots.clone());
            // In the middle of the message.
            scope.spawn(move || {
                while own == 1 && slots.word(SlotWord::Freed, 0).load(Ordering::Acquire) < 5 {
                    std::thread::yield_now();
                }
                if let (1, Some(fd)) = (own, connection.fd()) {
                    rustix::net::shutdown(&*fd, rustix::net::Shutdown::Both).expect("a socket");
                }
            });
            let left = run(rank, &batch, &sent, &mut Counts::new()).map(drop);
            (left, rank.lanes.failure())
        })
    });
    // The sender's kernel may have published all, and left.
    assert_eq!(ends[1].0, Err(KernelExit::Aborted));
    let lost = |own: usize| match &ends[own].1 {
        Some(Error::LostRank { lost, location: Some(location), .. }) => {
            Some((*lost, location.text.clone()))
        }
        _ => None,
    };
    let texts = [lost(0), lost(1)];
    let wanted = [(1, "send to rank 1".to_string()), (0, "receive from rank 0".to_string())];
    assert!((0..2).any(|own| texts[own].as_ref() == Some(&wanted[own])), "{texts:?}");
}

#[test]
fn a_peer_that_does_not_receive_is_named_in_time() {
    let world = World::new(&[0, 1], 1);
    let jobs = long(&world.hosts);
    let sent = to_rank_1(64 << 20);
    let ends = everywhere(&world, &jobs, |rank| match rank.core.rank() {
        0 => {
            let batch = Arc::new(batch(rank, &sent, 2, Duration::from_millis(150)));
            rank.lanes.order_batch(&batch);
            let left = run(rank, &batch, &sent, &mut Counts::new()).map(drop);
            Some((left, rank.lanes.failure()))
        }
        _ => {
            sees_the_end(rank.core);
            rank.lanes.stop();
            None
        }
    });
    let (location, awaited, remark) = late(&ends);
    assert_eq!((&location.text[..], awaited), ("send to rank 1", "rank 1 to take a message"));
    assert!(remark.contains("of block 0") && remark.contains("raise the timeout"), "{remark}");
}

/// A peer that does not keep to what it was given room for is refused, and nothing of it lands.
#[test]
fn pieces_without_a_slot_are_refused() {
    use roundelay_net::transport::message::{ContentKind as Carried, IoVec, meta};
    use roundelay_net::transport::posted::PostedSender;
    let piece = |count, bytes| ProxyPacket::of_pieces(PacketKind::Piece, 0, count, (77, bytes));
    let whole = |packet: ProxyPacket| (packet.encode(), packet.bytes);
    let spoilt = |at: usize, byte: u8| {
        let mut bytes = piece(1, 0).encode();
        bytes[at] = byte;
        (bytes, 0)
    };
    let forged = [
        (whole(piece(2, 32)), "no slot"),
        (whole(piece(1, batch::PIECE + 1)), "no slot"),
        (whole(ProxyPacket { block: 99, ..piece(1, 16) }), "no slot"),
        (whole(ProxyPacket::of_pieces(PacketKind::Room, 0, 1, (0, 0))), "room for no piece"),
        (spoilt(0, PacketClient::Messages as u8), "no packet of a lane"),
        (spoilt(0, 0), "no packet of a lane"),
        (spoilt(1, 99), "no packet of a lane"),
    ];
    for ((packet, bytes), why) in forged {
        let world = World::new(&[0, 1], 1);
        let jobs = long(&world.hosts);
        let received = [Letter { from: 1, to: 0, content: vec![0; 10 << 20] }];
        let failures = everywhere(&world, &jobs, |rank| {
            if rank.core.rank() == 1 {
                // Its lane has no order, and leaves the connection alone.
                let connection = rank.lanes.connections[0].clone();
                let mut sender = roundelay_net::transport::stream::StreamSender::new(connection);
                let place = sender.stage(1, packet::BYTES);
                // SAFETY: `stage` made room for as many bytes.
                unsafe { place.copy_from_nonoverlapping(packet.as_ptr(), packet::BYTES) };
                let first = (meta(DIGEST, packet::BYTES, Carried::Slot), packet::BYTES);
                let content = vec![1u8; bytes as usize];
                let whole = IoVec { ptr: content.as_ptr().cast_mut(), len: content.len() };
                let header = meta(DIGEST, content.len(), Carried::Slot);
                match content.len() {
                    0 => sender.post(first.0, first.1),
                    // SAFETY: the content lives until the other rank has ended the group.
                    _ => unsafe { sender.post_with(first, header, std::iter::once(whole)) },
                }
                sees_the_end(rank.core);
                return None;
            }
            let batch = Arc::new(batch(rank, &received, 2, PATIENCE));
            rank.lanes.order_batch(&batch);
            let left = run(rank, &batch, &received, &mut Counts::new()).map(drop);
            assert_eq!(left, Err(KernelExit::Aborted));
            assert_eq!(
                batch.ends[0].slots.head(MessageDirection::Recv, 0, 1).load(Ordering::Relaxed),
                0
            );
            rank.lanes.failure()
        });
        let text = failures[0].as_ref().map(Error::to_string).unwrap_or_default();
        assert!(text.contains(why), "{packet:?}: {text}");
    }
}
