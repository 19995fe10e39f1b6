//! Handles: the address and the identity by which a rank joins another one in a new generation.

use std::cmp::Reverse;
use std::fmt;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use roundelay_support::error::Error;

/// The beginning of a handle of this version.
const VERSION: &str = "rl1";

/// A handle, as it is written: `rl1.GENERATION.RANK.COMMUNICATOR.PROCESS.NONCE@ADDRESS[,ADDRESS...]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankHandle {
    /// The generation.
    pub generation: u64,
    /// The rank in that generation.
    pub rank: u32,
    /// The number of the communicator.
    pub comm: u64,
    /// The rank, over all generations.
    pub process: u64,
    /// The number that only the rank's handle of now has.
    pub nonce: u128,
    /// The addresses at which it listens, by path.
    pub addresses: Vec<SocketAddr>,
}

impl fmt::Display for RankHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RankHandle { generation, rank, comm, process, nonce, addresses } = self;
        write!(f, "{VERSION}.{generation}.{rank}.{comm:016x}.{process:016x}.{nonce:032x}@")?;
        addresses.iter().enumerate().try_for_each(|(at, address)| {
            let comma = if at > 0 { "," } else { "" };
            write!(f, "{comma}{address}")
        })
    }
}

impl FromStr for RankHandle {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        read(text).ok_or_else(|| {
            Error::Usage(format!(
                "`{text}` is not the handle of a rank: give the text that `handle` returned there, and use one \
                 version of roundelay everywhere"
            ))
        })
    }
}

fn read(text: &str) -> Option<RankHandle> {
    let (name, addresses) = text.split_once('@')?;
    let mut parts = name.split('.');
    let version = parts.next()?;
    let (generation, rank) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let mut hex = || u128::from_str_radix(parts.next()?, 16).ok();
    let (comm, process, nonce) = (hex()?, hex()?, hex()?);
    let (comm, process) = (u64::try_from(comm).ok()?, u64::try_from(process).ok()?);
    let addresses = addresses.split(',').map(|at| at.parse().ok()).collect::<Option<_>>()?;
    (version == VERSION && parts.next().is_none()).then_some(RankHandle {
        generation,
        rank,
        comm,
        process,
        nonce,
        addresses,
    })
}

/// Returns the handles in the order of the ranks of a set: ranks of the oldest communicator come first, those of
/// one communicator in the order that they have there.
pub fn order(mut set: Vec<RankHandle>) -> Vec<RankHandle> {
    set.sort_by_key(|h| (Reverse(h.generation), h.comm, h.rank, h.process));
    set
}

/// Returns the names of the generation of these ranks, in this order: of its job, and of its communicator.
/// They cannot be found without all handles.
pub fn names(id: &str, ordered: bool, ranks: &[RankHandle]) -> (u128, u64) {
    let mut digest = Sha256::new();
    digest.update(b"roundelay generation");
    digest.update((id.len() as u64).to_le_bytes());
    digest.update(id);
    digest.update([u8::from(ordered)]);
    let mut text = String::new();
    for rank in ranks {
        text.clear();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{rank}");
        digest.update(&text);
    }
    let bytes = digest.finalize();
    let job = u128::from_le_bytes(std::array::from_fn(|at| bytes[at]));
    (job, u64::from_le_bytes(std::array::from_fn(|at| bytes[16 + at])))
}

/// Returns the place of this rank in the list, which has every rank once.
pub fn place(ranks: &[RankHandle], own: &RankHandle) -> Result<u32, Error> {
    let mut processes: Vec<u64> = ranks.iter().map(|rank| rank.process).collect();
    processes.sort_unstable();
    if let Some(twice) = processes.windows(2).find(|pair| pair[0] == pair[1]) {
        let twice = ranks.iter().find(|rank| rank.process == twice[0]);
        let twice = twice.map(RankHandle::to_string).unwrap_or_default();
        return Err(Error::Usage(format!(
            "the rank of `{twice}` is named twice among the handles"
        )));
    }
    match ranks.iter().position(|rank| rank.process == own.process) {
        Some(at) if ranks[at] == *own => Ok(at as u32),
        Some(at) => Err(Error::Usage(format!(
            "`{}` is a handle that this rank had before; a handle serves for one attempt to reconfigure: ask \
             every rank for its handle of now, which is `{own}` here",
            ranks[at]
        ))),
        None => Err(Error::Usage(format!("this rank's handle, `{own}`, is not among the handles"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(generation: u64, comm: u64, rank: u32) -> RankHandle {
        let process = comm * 100 + u64::from(rank);
        let addresses = vec![
            "127.0.0.1:4000".parse().expect("an address"),
            "[fe80::1%3]:5".parse().expect("an address"),
        ];
        RankHandle {
            generation,
            rank,
            comm,
            process,
            nonce: u128::MAX - u128::from(process),
            addresses,
        }
    }

    #[test]
    fn a_handle_is_read_as_it_was_written() {
        let written = handle(7, 3, 2);
        assert_eq!(written.to_string().parse(), Ok(written.clone()));
        let text = written.to_string();
        assert!(text.len() < 200, "{text}");
        for bad in
            ["", "rl1", "hello@world", &text.replace("rl1", "rl9"), &text.replace('@', ".1@")]
        {
            let error = bad.parse::<RankHandle>().expect_err("no handle").to_string();
            assert!(error.contains("is not the handle of a rank"), "{error}");
        }
        // A prefix never passes for the whole.
        assert!((0..text.len()).all(|end| text[..end].parse() != Ok(written.clone())));
    }

    #[test]
    fn a_set_has_one_order() {
        let expected = vec![handle(4, 9, 0), handle(4, 9, 3), handle(2, 1, 1), handle(0, 0, 0)];
        let mut given = expected.clone();
        for turn in 0..4 {
            given.rotate_left(turn);
            assert_eq!(order(given.clone()), expected);
        }
    }

    #[test]
    fn a_generation_is_named_by_all_of_it() {
        let ranks = vec![handle(1, 1, 0), handle(1, 1, 1)];
        let other = vec![handle(1, 1, 1), handle(1, 1, 0)];
        let mut again = ranks.clone();
        again[1].nonce -= 1;
        let names = [
            names("a", true, &ranks),
            names("b", true, &ranks),
            names("a", false, &ranks),
            names("a", true, &other),
            names("a", true, &again),
            names("a", true, &ranks[..1]),
        ];
        for (i, a) in names.iter().enumerate() {
            assert!(names[..i].iter().all(|b| b.0 != a.0 && b.1 != a.1), "{names:?}");
        }
    }

    #[test]
    fn lists_that_make_no_sense_are_refused() {
        let (own, other) = (handle(1, 1, 0), handle(1, 1, 1));
        assert_eq!(place(&[other.clone(), own.clone()], &own), Ok(1));
        let text = |ranks: &[RankHandle]| place(ranks, &own).expect_err("refused").to_string();
        assert!(text(&[other.clone(), own.clone(), other.clone()]).contains("is named twice"));
        assert!(text(std::slice::from_ref(&other)).contains("is not among the handles"));
        let past = RankHandle { nonce: 1, ..own.clone() };
        assert!(text(&[past, other]).contains("that this rank had before"));
    }
}
