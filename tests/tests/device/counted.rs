//! Runs exchanges whose counts lie in device memory: the protocol of `emit/cuda/counted.cuh`, a step of a block at a
//! time, on the weak memory. What comes out is compared with the counts and rows that were drawn. Then the same with
//! one thing left out, which must show: a release, an acquire, the wait for room, words of the ring, the checks of
//! counts.

use std::rc::Rc;

use roundelay_emit::cuda::counted::RING;
use roundelay_tests::SeededRandom;

use super::memory::{At, Eye, Memory, View, join};
use super::setting;

/// Slots of a lane, and rows of a piece.
const SLOTS: u64 = 4;
const PIECE: usize = 2;
/// Rows of a vector, and most rows of a block.
const ROWS: usize = 12;
const MOST: usize = 5;
const POISON: u64 = 0xdead;
/// Steps without progress after which everything is seen.
const PATIENCE: usize = 300;

/// The part of the protocol that is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Without {
    Nothing,
    Release,
    Acquire,
    Room,
    Ring,
    Checks,
}

/// Rows of each rank for each other.
type Counts = Vec<Vec<usize>>;

/// The role of a block: it sends to a rank, receives from one, or copies what stays.
#[derive(Clone, Copy)]
enum Role {
    Sends(usize),
    Receives(usize),
    Keeps,
}

/// A block in a call.
struct Block {
    role: Role,
    view: View,
    /// Ranks whose counts are known, and the counts.
    counts: Vec<usize>,
    checked: bool,
    announced: bool,
    /// Rows that were moved.
    rows: usize,
    done: bool,
}

struct Rank {
    call: usize,
    view: View,
    blocks: Vec<Block>,
    /// Pieces that each lane has moved in all calls: to ranks, from ranks.
    moved: [Vec<u64>; 2],
}

struct Machine<'c> {
    n: usize,
    packed: [bool; 2],
    without: Without,
    calls: &'c [Counts],
    memory: Memory,
    ranks: Vec<Rank>,
    dice: SeededRandom,
    eye: Eye,
}

/// A rank that reports counts which are too large, in its call.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Beyond(usize),
    Wrong(String),
}

/// Returns the number that a row has.
fn row(call: usize, from: usize, to: usize, at: usize) -> u64 {
    (((call * 16 + from) * 16 + to) * 64 + at) as u64 + 1
}

impl<'c> Machine<'c> {
    fn new(n: usize, packed: [bool; 2], without: Without, calls: &'c [Counts], seed: u64) -> Self {
        let cells = n * Self::cells(n);
        let memory = Memory::new(cells);
        let view = memory.view();
        let ranks = (0..n).map(|_| Rank {
            call: 0,
            view: view.clone(),
            blocks: Vec::new(),
            moved: [vec![0; n], vec![0; n]],
        });
        let ranks = ranks.collect();
        Machine {
            n,
            packed,
            without,
            calls,
            memory,
            ranks,
            dice: SeededRandom(seed),
            eye: Eye::Any,
        }
    }

    /// Cells of a rank: words that pieces arrived and were taken, rings, slots, input, output.
    fn cells(n: usize) -> usize {
        n * (2 + RING as usize + SLOTS as usize * PIECE) + 2 * ROWS
    }

    fn at(&self, rank: usize, cell: usize) -> At {
        (rank * Self::cells(self.n) + cell) as At
    }

    fn arrived(&self, rank: usize, from: usize) -> At {
        self.at(rank, from)
    }

    fn taken(&self, rank: usize, to: usize) -> At {
        self.at(rank, self.n + to)
    }

    fn count_word(&self, rank: usize, from: usize, turn: usize) -> At {
        let ring = if self.without == Without::Ring { 1 } else { RING as usize };
        self.at(rank, 2 * self.n + from * RING as usize + turn % ring)
    }

    fn slot(&self, rank: usize, from: usize, piece: u64, row: usize) -> At {
        let first = self.n * (2 + RING as usize);
        let slot = from * SLOTS as usize + (piece % SLOTS) as usize;
        self.at(rank, first + slot * PIECE + row)
    }

    /// A row of the input (0) or the output (1).
    fn vector(&self, rank: usize, which: usize, row: usize) -> At {
        self.at(rank, Self::cells(self.n) - (2 - which) * ROWS + row)
    }

    /// Returns the place at which a block begins.
    fn place(&self, which: usize, counts: &[usize], block: usize) -> usize {
        match self.packed[which] {
            true => counts[..block].iter().sum(),
            false => block * (ROWS / self.n),
        }
    }

    /// Returns true if the counts fit.
    fn fits(&self, which: usize, counts: &[usize]) -> bool {
        let most = if self.packed[which] { MOST } else { MOST.min(ROWS / self.n) };
        let whole: usize = counts.iter().sum();
        self.without == Without::Checks
            || counts.iter().all(|&count| count <= most) && (!self.packed[which] || whole <= ROWS)
    }

    fn begin(&mut self, rank: usize) {
        let call = self.ranks[rank].call;
        let Some(counts) = self.calls.get(call) else { return };
        let sends = counts[rank].clone();
        let mut view = self.ranks[rank].view.clone();
        for (to, &count) in sends.iter().enumerate() {
            for at in 0..count {
                let place = self.place(0, &sends, to) + at;
                if place < ROWS {
                    let cell = self.vector(rank, 0, place);
                    self.memory.tell(cell, row(call, rank, to, at), &mut view, None);
                }
            }
        }
        for place in 0..ROWS {
            let cell = self.vector(rank, 1, place);
            self.memory.tell(cell, POISON, &mut view, None);
        }
        let peers = (0..self.n).filter(|&peer| peer != rank);
        let roles = peers.flat_map(|peer| [Role::Sends(peer), Role::Receives(peer)]);
        let of = &mut self.ranks[rank];
        of.view.clone_from(&view);
        of.blocks = roles
            .chain([Role::Keeps])
            .map(|role| Block {
                role,
                view: view.clone(),
                counts: Vec::new(),
                checked: false,
                announced: false,
                rows: 0,
                done: false,
            })
            .collect();
    }

    fn run(mut self) -> Result<(), End> {
        (0..self.n).for_each(|rank| self.begin(rank));
        let mut idle = 0;
        while self.ranks.iter().any(|rank| rank.call < self.calls.len()) {
            let rank = self.dice.below(self.n);
            if self.ranks[rank].call == self.calls.len() {
                continue;
            }
            let block = self.dice.below(self.ranks[rank].blocks.len());
            match self.step(rank, block)? {
                true => (idle, self.eye) = (0, Eye::Any),
                false => idle += 1,
            }
            if idle > PATIENCE {
                self.eye = Eye::Newest;
            }
            if idle > 20 * PATIENCE {
                return Err(End::Wrong("no rank can go on".into()));
            }
        }
        Ok(())
    }

    /// Runs a step of a block; returns false if it waits.
    fn step(&mut self, rank: usize, block: usize) -> Result<bool, End> {
        let call = self.ranks[rank].call;
        let sends = self.calls[call][rank].clone();
        let mut of = self.ranks[rank].blocks.swap_remove(block);
        let moved = match of.done {
            true => Ok(false),
            false => self.advance(rank, call, &sends, &mut of),
        };
        self.ranks[rank].blocks.push(of);
        let moved = moved?;
        if moved && self.ranks[rank].blocks.iter().all(|block| block.done) {
            self.end(rank)?;
        }
        Ok(moved)
    }

    fn advance(
        &mut self,
        rank: usize,
        call: usize,
        sends: &[usize],
        of: &mut Block,
    ) -> Result<bool, End> {
        if !of.checked {
            if !self.fits(0, sends) {
                return self.beyond(rank, call);
            }
            of.checked = true;
            return Ok(true);
        }
        if let Role::Sends(peer) = of.role {
            if !of.announced {
                let cell = self.count_word(peer, rank, call + 1);
                let value = ((call as u64 + 1) << 32) | sends[peer] as u64;
                self.memory.tell(cell, value, &mut of.view, None);
                of.announced = true;
                return Ok(true);
            }
            return Ok(self.send(rank, peer, sends, of));
        }
        if of.counts.len() < self.n {
            let from = of.counts.len();
            if from == rank {
                of.counts.push(sends[rank]);
                return Ok(true);
            }
            let cell = self.count_word(rank, from, call + 1);
            let seen = self.memory.load(cell, &mut of.view, &mut self.dice, self.eye);
            if seen >> 32 != call as u64 + 1 {
                return Ok(false);
            }
            of.counts.push((seen & 0xffff_ffff) as usize);
            if of.counts.len() == self.n && !self.fits(1, &of.counts) {
                return self.beyond(rank, call);
            }
            return Ok(true);
        }
        match of.role {
            Role::Receives(peer) => self.receive(rank, peer, of),
            _ => self.keep(rank, sends, of),
        }
    }

    fn send(&mut self, rank: usize, peer: usize, sends: &[usize], of: &mut Block) -> bool {
        let piece = self.ranks[rank].moved[0][peer] + 1;
        if piece > SLOTS && self.without != Without::Room {
            let cell = self.taken(rank, peer);
            let wanted = piece - SLOTS;
            let (view, eye) = (&mut of.view, self.eye);
            if self.memory.acquire(cell, wanted, view, &mut self.dice, eye) < wanted {
                return false;
            }
        }
        let rows = PIECE.min(sends[peer] - of.rows);
        for k in 0..rows {
            let place = (self.place(0, sends, peer) + of.rows + k).min(ROWS - 1);
            let from = self.vector(rank, 0, place);
            let bits = self.memory.load(from, &mut of.view, &mut self.dice, self.eye);
            let to = self.slot(peer, rank, piece, k);
            self.memory.tell(to, bits, &mut of.view, None);
        }
        let released = (self.without != Without::Release).then(|| Rc::new(of.view.clone()));
        let cell = self.arrived(peer, rank);
        self.memory.tell(cell, piece, &mut of.view, released);
        self.ranks[rank].moved[0][peer] = piece;
        of.rows += rows;
        of.done = of.rows == sends[peer];
        true
    }

    fn receive(&mut self, rank: usize, peer: usize, of: &mut Block) -> Result<bool, End> {
        let piece = self.ranks[rank].moved[1][peer] + 1;
        let (cell, eye) = (self.arrived(rank, peer), self.eye);
        let seen = match self.without {
            Without::Acquire => self.memory.load(cell, &mut of.view, &mut self.dice, eye),
            _ => self.memory.acquire(cell, piece, &mut of.view, &mut self.dice, eye),
        };
        if seen < piece {
            return Ok(false);
        }
        let rows = PIECE.min(of.counts[peer] - of.rows);
        for k in 0..rows {
            let from = self.slot(rank, peer, piece, k);
            let bits = self.memory.load(from, &mut of.view, &mut self.dice, self.eye);
            self.write(rank, self.place(1, &of.counts, peer) + of.rows + k, bits, of)?;
        }
        let (cell, released) = (self.taken(peer, rank), Some(Rc::new(of.view.clone())));
        self.memory.tell(cell, piece, &mut of.view, released);
        self.ranks[rank].moved[1][peer] = piece;
        of.rows += rows;
        of.done = of.rows == of.counts[peer];
        Ok(true)
    }

    fn keep(&mut self, rank: usize, sends: &[usize], of: &mut Block) -> Result<bool, End> {
        for k in 0..sends[rank] {
            let from = self.vector(rank, 0, (self.place(0, sends, rank) + k).min(ROWS - 1));
            let bits = self.memory.load(from, &mut of.view, &mut self.dice, self.eye);
            self.write(rank, self.place(1, &of.counts, rank) + k, bits, of)?;
        }
        of.done = true;
        Ok(true)
    }

    fn write(&mut self, rank: usize, place: usize, bits: u64, of: &mut Block) -> Result<(), End> {
        if place >= ROWS {
            return Err(End::Wrong(format!("rank {rank} writes row {place} of {ROWS}")));
        }
        let cell = self.vector(rank, 1, place);
        self.memory.store(cell, bits, &mut of.view, &mut self.dice);
        Ok(())
    }

    /// A rank reports counts that are too large: it has written nothing of this call.
    fn beyond(&self, rank: usize, call: usize) -> Result<bool, End> {
        let newest = |at: At| self.memory.certain(at, &self.ranks[rank].view);
        let clean = (0..ROWS).all(|place| newest(self.vector(rank, 1, place)) == Some(POISON));
        match clean {
            true => Err(End::Beyond(call)),
            false => Err(End::Wrong(format!("rank {rank} wrote before it checked"))),
        }
    }

    /// Ends a rank's call: looks at what it gave.
    fn end(&mut self, rank: usize) -> Result<(), End> {
        let call = self.ranks[rank].call;
        let blocks = std::mem::take(&mut self.ranks[rank].blocks);
        for block in &blocks {
            join(&mut self.ranks[rank].view, &block.view);
        }
        let receives: Vec<usize> = self.calls[call].iter().map(|sends| sends[rank]).collect();
        let mut wanted = [POISON; ROWS];
        for from in 0..self.n {
            for at in 0..receives[from] {
                let place = self.place(1, &receives, from) + at;
                if let Some(cell) = wanted.get_mut(place) {
                    *cell = row(call, from, rank, at);
                }
            }
        }
        for (place, wanted) in wanted.into_iter().enumerate() {
            let is = self.memory.certain(self.vector(rank, 1, place), &self.ranks[rank].view);
            if is != Some(wanted) {
                let what =
                    format!("call {call}: rank {rank} has {is:x?} in row {place}, not {wanted:x}");
                return Err(End::Wrong(what));
            }
        }
        self.ranks[rank].call += 1;
        self.begin(rank);
        Ok(())
    }
}

/// Returns counts of some calls that fit, whatever lies how.
fn drawn(n: usize, calls: usize, dice: &mut SeededRandom) -> Vec<Counts> {
    let most = MOST.min(ROWS / n);
    (0..calls)
        .map(|_| (0..n).map(|_| (0..n).map(|_| dice.below(most + 1)).collect()).collect())
        .collect()
}

/// Runs many series with something left out; returns the first fault.
fn fault(without: Without) -> Option<String> {
    let runs = 300 * setting("RUNS", 1);
    (0..runs).find_map(|k| {
        let seed = setting("SEED", 1) * 100_003 + k;
        let mut dice = SeededRandom(seed);
        let (n, packed) = (2 + dice.below(3), [dice.below(2) == 0, dice.below(2) == 0]);
        // No rank waits for a rank that only sends: it runs ahead.
        let mut calls = drawn(n, 8, &mut dice);
        if dice.below(2) == 0 {
            calls.iter_mut().flatten().skip(1).step_by(n).for_each(|sends| sends.fill(0));
        }
        if without == Without::Checks {
            calls[3][0].fill(MOST + 1);
        }
        let outcome = Machine::new(n, packed, without, &calls, seed).run();
        outcome.err().map(|end| format!("seed {seed}: {end:?}"))
    })
}

#[test]
fn rows_come_where_their_counts_say() {
    assert_eq!(fault(Without::Nothing), None);
}

#[test]
fn nothing_can_be_left_out() {
    for without in
        [Without::Release, Without::Acquire, Without::Room, Without::Ring, Without::Checks]
    {
        let found = fault(without).unwrap_or_default();
        assert!(found.contains("Wrong"), "without {without:?}: {found}");
    }
}

/// Counts that are too large for a block, a padded block, an input or an output are reported by the rank that reads
/// them, which has written nothing.
#[test]
fn counts_that_are_too_large_are_reported() {
    let mut executed = 0;
    for seed in 0..100 {
        for (packed, change) in [
            ([true, true], (0, vec![MOST + 1, 0, 0])),
            ([false, true], (1, vec![0, 0, ROWS / 3 + 1])),
            ([true, true], (2, vec![5, 5, 5])),
            ([true, false], (0, vec![0, 5, 0])),
        ] {
            let mut calls = drawn(3, 4, &mut SeededRandom(seed));
            let call = 1 + seed as usize % 3;
            calls[call] = vec![vec![0; 3]; 3];
            calls[call][change.0] = change.1;
            let outcome = Machine::new(3, packed, Without::Nothing, &calls, seed).run();
            assert_eq!(outcome, Err(End::Beyond(call)), "{packed:?} {:?}", calls[call]);
            executed += 1;
        }
        // All that one rank receives is more than its packed output has.
        let mut calls = drawn(3, 3, &mut SeededRandom(seed));
        calls[2] = vec![vec![5, 0, 0]; 3];
        let outcome = Machine::new(3, [true, true], Without::Nothing, &calls, seed).run();
        assert_eq!(outcome, Err(End::Beyond(2)), "an output of {ROWS} rows");
    }
    assert_eq!(executed, 400);
}
