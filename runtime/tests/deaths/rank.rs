//! Runs each rank of a job: calls without end, every result compared with what it must be.

use std::fs::File;
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::FileExt;

use roundelay::{Buffer, CallOptions, Communicator, Error, Hints, RedOp};
use rustix::process::getpid;

use crate::deaths::{Random, SPLITS, WORDS};
use crate::support::scene::{self, say};

/// The largest vector of a job, in elements: 8 MiB.
const MOST: usize = 1 << 20;
/// Different calls of a job, so that most of its time goes into moving and not into compiling.
const CALLS: usize = 6;

/// A call that ranks make together.
#[derive(Debug, Clone)]
struct Call {
    collective: &'static str,
    /// The algorithm; `None` leaves the choice to the runtime.
    algorithm: Option<&'static str>,
    /// Elements of a vector or block.
    count: usize,
    /// True if peers can read the buffers.
    arena: bool,
    root: u32,
}

impl Call {
    fn any(random: &mut Random, ranks: u32) -> Call {
        let kinds: &[(&str, &[&str])] = &[
            ("all_reduce", &["ring", "one_shot", "two_shot", "recursive_doubling", "circulant"]),
            ("all_gather", &["ring", "bruck", "direct", "circulant", "pat"]),
            ("broadcast", &["binomial", "chain", "double_binary_tree", "scatter_all_gather"]),
            ("all_to_all", &["bruck", "direct", "pairwise"]),
            ("barrier", &[]),
            ("batch", &[]),
        ];
        let &(collective, algorithms) = random.of(kinds);
        let algorithm =
            (random.below(4) > 0 && !algorithms.is_empty()).then(|| *random.of(algorithms));
        // As many small ones as large ones; the blocks of all ranks together are the vector.
        let blocks = if collective == "all_gather" { ranks as usize } else { 1 };
        let most = MOST >> random.below(21);
        let count = (1 + random.below(most as u64) as usize).div_ceil(blocks);
        let root = random.below(ranks.into()) as u32;
        Call { collective, algorithm, count, arena: random.below(2) == 0, root }
    }

    /// Draws calls in parts of the ranks.
    fn in_parts(random: &mut Random, ranks: u32) -> Call {
        Call { collective: "parts", ..Call::any(random, ranks) }
    }

    /// Returns true if no rank can complete it before all have begun it.
    fn needs_all(&self) -> bool {
        matches!(self.collective, "all_reduce" | "all_gather" | "all_to_all" | "barrier" | "parts")
    }

    fn options(&self) -> CallOptions {
        let hints = self.algorithm.map(|name| format!("algorithm={name}")).unwrap_or_default();
        CallOptions::new().hints(hints.parse::<Hints>().expect("hints"))
    }

    /// Makes the call, and compares what came out of it.
    fn make(&self, comm: &mut Communicator, salt: u64) -> Result<(), Error> {
        let (n, r) = (comm.size() as usize, comm.rank() as usize);
        let count = self.count;
        let room = |comm: &Communicator, len| Room::new(comm, len, self.arena);
        match self.collective {
            "barrier" => comm.barrier()?,
            "all_reduce" => {
                let mut data = room(comm, count)?;
                data.copy_from_slice(&tile(&pattern(salt, r), count));
                comm.with(self.options()).all_reduce(&mut *data, RedOp::Sum)?;
                let mut sum = pattern(salt, 0);
                for other in 1..n {
                    sum.iter_mut().zip(pattern(salt, other)).for_each(|(s, x)| *s += x);
                }
                self.check(salt, &data, &tile(&sum, count));
            }
            "all_gather" => {
                let (mut input, mut output) = (room(comm, count)?, room(comm, n * count)?);
                input.copy_from_slice(&tile(&pattern(salt, r), count));
                comm.with(self.options()).all_gather(&mut *output, &*input)?;
                for (b, block) in output.chunks(count).enumerate() {
                    self.check(salt, block, &tile(&pattern(salt, b), count));
                }
            }
            "broadcast" => {
                let root = self.root % n as u32;
                let mut data = room(comm, count)?;
                if comm.rank() == root {
                    data.copy_from_slice(&tile(&pattern(salt, r), count));
                }
                comm.with(self.options()).broadcast(&mut *data, root)?;
                self.check(salt, &data, &tile(&pattern(salt, root as usize), count));
            }
            "all_to_all" => {
                let count = count.div_ceil(n);
                let (mut input, mut output) = (room(comm, n * count)?, room(comm, n * count)?);
                for (to, block) in input.chunks_mut(count).enumerate() {
                    block.copy_from_slice(&tile(&pattern(salt, r * n + to), count));
                }
                comm.with(self.options()).all_to_all(&mut *output, &*input)?;
                for (from, block) in output.chunks(count).enumerate() {
                    self.check(salt, block, &tile(&pattern(salt, from * n + r), count));
                }
            }
            "parts" => self.in_part(comm, salt)?,
            _ => self.exchange(comm, salt)?,
        }
        Ok(())
    }

    /// Splits the ranks and makes calls in the parts. A part that fails takes the whole with it.
    fn in_part(&self, comm: &mut Communicator, salt: u64) -> Result<(), Error> {
        let mut random = Random::new(salt);
        let list = part(&mut random, comm.size(), comm.rank());
        let Some(mut part) = comm.split(&list)? else { return Ok(()) };
        for i in 1..4 {
            let call = Call { count: self.count, ..Call::any(&mut random, part.size()) };
            let Err(error) = call.make(&mut part, salt + (i << 40)) else { continue };
            is_unusable(&mut part);
            say(&format!("part {list:?} {} {error}", error.code()));
            return Err(comm.barrier().expect_err("the part has failed"));
        }
        Ok(())
    }

    /// Sends messages to both neighbours at once.
    fn exchange(&self, comm: &mut Communicator, salt: u64) -> Result<(), Error> {
        let (n, r) = (comm.size(), comm.rank());
        let (right, left) = ((r + 1) % n, (r + n - 1) % n);
        let room = || Room::new(comm, self.count, self.arena);
        let (mut up, mut down, mut lower, mut higher) = (room()?, room()?, room()?, room()?);
        up.copy_from_slice(&tile(&pattern(salt, 2 * r as usize), self.count));
        down.copy_from_slice(&tile(&pattern(salt, 2 * r as usize + 1), self.count));
        let mut batch = comm.batch();
        batch.send(&*up, right).send(&*down, left);
        batch.recv(&mut *lower, left).recv(&mut *higher, right);
        batch.run(comm)?;
        self.check(salt, &lower, &tile(&pattern(salt, 2 * left as usize), self.count));
        self.check(salt, &higher, &tile(&pattern(salt, 2 * right as usize + 1), self.count));
        Ok(())
    }

    fn check(&self, salt: u64, got: &[i64], wanted: &[i64]) {
        if got != wanted {
            let at = (0..wanted.len()).find(|&i| got.get(i) != wanted.get(i));
            say(&format!("wrong: element {at:?} of call {salt}, {self:?}"));
            std::process::exit(4);
        }
    }
}

/// Returns the ranks of the part that a rank is in, if it is in one: all of them in another order, odd and
/// even ones, or all but one.
fn part(random: &mut Random, size: u32, rank: u32) -> Vec<u32> {
    let by = random.below(size.into()) as u32;
    let turned = (0..size).map(|r| (r + by) % size);
    match random.below(3) {
        0 => turned.collect(),
        1 => turned.filter(|r| r % 2 == rank % 2).collect(),
        _ if rank == by => Vec::new(),
        _ => turned.filter(|&r| r != by).collect(),
    }
}

/// Checks that no call can be made after an error: of a communicator whose own call failed, because of that error;
/// of one whose part's failed, because the job has ended, with the cause.
fn is_unusable(comm: &mut Communicator) {
    let after = comm.barrier().expect_err("the communicator has failed");
    let ended =
        matches!(after, Error::LostRank { .. } | Error::Aborted { .. } | Error::Timeout { .. });
    assert!(ended || after.to_string().contains("cannot be used after an error"), "{after}");
}

/// A buffer of a call.
enum Room {
    Arena(Buffer<i64>),
    Own(Vec<i64>),
}

impl Room {
    fn new(comm: &Communicator, len: usize, arena: bool) -> Result<Room, Error> {
        match arena {
            true => comm.alloc(len).map(Room::Arena),
            false => Ok(Room::Own(vec![0; len])),
        }
    }
}

impl Deref for Room {
    type Target = [i64];

    fn deref(&self) -> &[i64] {
        match self {
            Room::Arena(buffer) => buffer,
            Room::Own(vec) => vec,
        }
    }
}

impl DerefMut for Room {
    fn deref_mut(&mut self) -> &mut [i64] {
        match self {
            Room::Arena(buffer) => buffer,
            Room::Own(vec) => vec,
        }
    }
}

/// Returns numbers that are those of this call and place only.
fn pattern(salt: u64, place: usize) -> Vec<i64> {
    let mut random = Random::new(salt << 8 | place as u64);
    (0..521).map(|_| (random.next() >> 8) as i64).collect()
}

/// Returns a pattern again and again, which is quick.
fn tile(pattern: &[i64], len: usize) -> Vec<i64> {
    let mut tiled = Vec::with_capacity(len + pattern.len());
    while tiled.len() < len {
        tiled.extend_from_slice(pattern);
    }
    tiled.truncate(len);
    tiled
}

/// The calls that a rank has begun and completed, kept in a file, where they outlive it.
struct Tally {
    file: File,
    rank: u64,
}

impl Tally {
    fn open(rank: u32) -> Tally {
        let path = std::env::var_os(WORDS).expect("a file");
        Tally { file: File::options().write(true).open(path).expect("a file"), rank: rank.into() }
    }

    fn note(&self, word: u64, call: u64) {
        self.file.write_all_at(&call.to_le_bytes(), 16 * self.rank + 8 * word).expect("a word");
    }
}

/// The module of [`rank_process`].
pub(crate) const MODULE: &str = module_path!();

/// Runs a rank of a job; not a test by itself.
#[test]
fn rank_process() {
    scene::rank(|seed| {
        say(&format!("pid {}", getpid().as_raw_nonzero()));
        let mut comm = Communicator::from_env()?;
        Err(calls(&mut comm, seed.parse().expect("a seed")))
    });
}

/// Calls, the same on all ranks, until one fails.
fn calls(comm: &mut Communicator, seed: u64) -> Error {
    let mut random = Random::new(seed);
    let splits = std::env::var_os(SPLITS).is_some();
    let kept: Vec<Call> = (0..CALLS)
        .map(|i| match splits && i % 2 == 0 {
            true => Call::in_parts(&mut random, comm.size()),
            false => Call::any(&mut random, comm.size()),
        })
        .collect();
    let tally = Tally::open(comm.rank());
    for call in 1.. {
        let next = random.of(&kept);
        tally.note(0, call);
        let done = match random.below(4) {
            0 => background(comm, next, call),
            _ => next.make(comm, call),
        };
        if let Err(error) = done {
            is_unusable(comm);
            return error;
        }
        if next.needs_all() {
            tally.note(1, call);
        }
        if call.is_power_of_two() {
            say(&format!("at {call}"));
        }
    }
    unreachable!()
}

/// Makes the same call three times, in the background.
fn background(comm: &mut Communicator, call: &Call, salt: u64) -> Result<(), Error> {
    let start = |i: u64| {
        let call = call.clone();
        comm.start(move |comm| call.make(comm, salt + (i << 40)))
    };
    let works: Vec<_> = (1..4).map(start).collect();
    let results: Vec<_> = works.into_iter().map(|work| work.wait()).collect();
    let failed = results.iter().position(Result::is_err).unwrap_or(results.len());
    assert!(results[failed..].iter().all(Result::is_err), "{results:?}");
    results.into_iter().collect()
}
