//! Brings the ranks of a communicator together, and opens them on their GPUs.

use std::fmt;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use roundelay::cuda::{CudaOptions, GpuDirect};
use roundelay::launch::{EncryptionMode, JobSetup, secret};
use roundelay::{Communicator, Error, Hints, variables};
use roundelay_ffi::CommHandle;
use sha2::{Digest, Sha256};

use crate::board;
use crate::config::CommConfig;
use crate::cuda;
use crate::debug;
use crate::failure::{CallFailure, Outcome};
use crate::id::{self, ParsedId};
use crate::tunables::{CALL_TIMEOUT, JOIN_TIMEOUT};

/// The variable that has all buffers be memory of the host, and streams be ignored: for tests without a GPU.
pub(crate) const HOST: &str = "ROUNDELAY_NCCL_HOST";
/// Bytes of what every rank tells all others: the places of its board, the most blocks, and room.
const CARD: usize = 64;

/// Returns true if buffers are memory of the host.
pub(crate) fn is_host() -> bool {
    static HOSTED: OnceLock<bool> = OnceLock::new();
    *HOSTED
        .get_or_init(|| variables::raw(HOST).is_some_and(|value| !value.is_empty() && value != "0"))
}

/// A rank that opens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpeningRank {
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    pub(crate) gpu: u32,
}

/// An open communicator.
pub(crate) struct OpenComm {
    /// The communicator that runs calls.
    pub(crate) calls: CommHandle,
    /// The same ranks, for what hosts agree on.
    pub(crate) hosts: CommHandle,
    seat: OpeningRank,
    secret: [u8; 32],
    /// The places of every rank's board.
    boards: Vec<Vec<SocketAddr>>,
    /// Communicators that were made of this one.
    made: AtomicU32,
}

impl fmt::Debug for OpenComm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Open").field("seat", &self.seat).finish_non_exhaustive()
    }
}

/// Joins the other ranks of an id.
pub(crate) fn join(id: &ParsedId, seat: OpeningRank, config: &CommConfig) -> Outcome<OpenComm> {
    if !is_host() {
        cuda::load()?;
    }
    let OpeningRank { rank, ranks, gpu } = seat;
    debug::info(|| format!("rank {rank} of {ranks} on GPU {gpu} joins{}", named(config)));
    let hints = Hints::from_env().map_err(|error| CallFailure::usage(error.to_string()))?;
    let wait = hints.timeout().unwrap_or(JOIN_TIMEOUT);
    let setup = JobSetup::from_env()?.timeout(wait);
    let setup = match secret()? {
        // Ranks prove both.
        Some(given) => setup.secret(id.with_secret(&given).spelled()),
        // The id came by ways of the program's: what it keeps out is no reason to give up devices and speed.
        None if hints.encryption().is_none() && hints.certificate_files()[0].is_none() => {
            setup.secret(id.spelled()).encryption(EncryptionMode::Off)
        }
        None => setup.secret(id.spelled()),
    };
    let deadline = Instant::now() + wait;
    let hosts = Communicator::join_with(rank, ranks, &setup, |note| {
        let passed = match note {
            Some(note) => board::post(id, note, deadline).map(|()| note.to_owned()),
            None => board::fetch(id, deadline),
        };
        passed.map_err(|failure| Error::Start(format!("rank {rank}: {}", failure.text)))
    })?;
    opened(hosts, seat, config, id.secret)
}

/// Opens ranks that know each other.
fn opened(
    mut hosts: Communicator,
    seat: OpeningRank,
    config: &CommConfig,
    secret: [u8; 32],
) -> Outcome<OpenComm> {
    let ranks = hosts.size() as usize;
    let mut card = [0; CARD];
    card[..id::PLACES].copy_from_slice(&id::encode(&board::places()?));
    let blocks = config.max_blocks.unwrap_or(u32::MAX);
    card[CARD - 4..].copy_from_slice(&blocks.to_le_bytes());
    let mut cards = vec![0; ranks * CARD];
    hosts.all_gather(&mut *cards, &card)?;
    let (mut boards, mut fewest) = (Vec::new(), u32::MAX);
    for (rank, card) in cards.chunks_exact(CARD).enumerate() {
        let places = id::decode(&card[..id::PLACES]);
        let unreadable =
            || CallFailure::system(format!("rank {rank} has another version of this library"));
        boards.push(places.ok_or_else(unreadable)?);
        let blocks = card[CARD - 4..].try_into().map_or(u32::MAX, u32::from_le_bytes);
        fewest = fewest.min(blocks);
    }
    let mut calls = match is_host() {
        true => {
            let all: Vec<u32> = (0..hosts.size()).collect();
            let part = hosts.split(&all)?;
            part.ok_or_else(|| CallFailure::system("a rank is not among all ranks"))?
        }
        false => hosts.cuda(CudaOptions { device: Some(seat.gpu), ..CudaOptions::default() })?,
    };
    if fewest < u32::MAX {
        let pairs = [("max_sms", fewest.min(128).to_string())];
        let hints =
            Hints::from_pairs(pairs).map_err(|error| CallFailure::usage(error.to_string()))?;
        calls.set_hints(hints)?;
    }
    let hints = Hints::from_env().map_err(|error| CallFailure::usage(error.to_string()))?;
    if hints.timeout().is_none() {
        calls.set_timeout(CALL_TIMEOUT);
        hosts.set_timeout(CALL_TIMEOUT);
    }
    for setting in &config.ignored {
        debug::info(|| format!("the setting {setting} changes nothing here"));
    }
    let (rank, size) = (calls.rank(), calls.size());
    if !is_host() {
        match calls.gpu_direct()? {
            GpuDirect::Used => debug::info(|| "messages go from GPU to GPU between hosts".into()),
            GpuDirect::Refused(why) => debug::info(|| format!("gpu_direct changes nothing: {why}")),
            _ => {}
        }
    }
    debug::info(|| format!("rank {rank} of {size} on GPU {} is open{}", seat.gpu, named(config)));
    Ok(OpenComm {
        calls: CommHandle::new(calls)?,
        hosts: CommHandle::new(hosts)?,
        seat,
        secret,
        boards,
        made: AtomicU32::new(0),
    })
}

fn named(config: &CommConfig) -> String {
    config.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default()
}

impl OpenComm {
    /// Returns the rank and the number of ranks.
    pub(crate) fn seat(&self) -> (u32, u32) {
        (self.seat.rank, self.seat.ranks)
    }

    /// Makes a communicator of the ranks with the same color, in the order of their keys, then of their ranks; none
    /// without a color. All ranks call together.
    pub(crate) fn split(
        &self,
        color: Option<u32>,
        key: i32,
        config: &CommConfig,
    ) -> Outcome<Option<OpenComm>> {
        // Ranks that a shrink left out have made fewer.
        let made = self.made.load(Ordering::Relaxed);
        let all = self.hosts.with(|hosts| hosts.all_gather_u64(made.into()))?;
        let made = all.iter().copied().max().unwrap_or(0) as u32;
        self.made.store(made.wrapping_add(1), Ordering::Relaxed);
        let word = u64::from(color.unwrap_or(u32::MAX)) << 32 | u64::from(key.cast_unsigned());
        let words = self.hosts.with(|hosts| hosts.all_gather_u64(word))?;
        let ranks = members(&words, self.seat.rank);
        let part = self.hosts.with(|hosts| hosts.split(&ranks))?;
        let Some(part) = part else { return Ok(None) };
        let mut what = [b"split".as_slice(), &made.to_le_bytes()].concat();
        ranks.iter().for_each(|rank| what.extend(rank.to_le_bytes()));
        let secret = ParsedId::derived(&self.secret, &what, Vec::new()).secret;
        let seat = OpeningRank { rank: part.rank(), ranks: part.size(), gpu: self.seat.gpu };
        opened(part, seat, config, secret).map(Some)
    }

    /// Returns the id at which the ranks that are left meet, and this rank's place among them: the ranks in `excluded`
    /// do not take part, and need not be alive.
    pub(crate) fn shrunk(&self, excluded: &[u32]) -> Outcome<(ParsedId, OpeningRank)> {
        let left: Vec<u32> = (0..self.seat.ranks).filter(|rank| !excluded.contains(rank)).collect();
        let own = left.iter().position(|&rank| rank == self.seat.rank);
        let Some(own) = own else {
            return Err(CallFailure::argument(format!(
                "rank {} is in excludeRanksList: ranks that are left out do not call ncclCommShrink",
                self.seat.rank
            )));
        };
        let mut hash = Sha256::new();
        hash.update(b"shrink");
        left.iter().for_each(|rank| hash.update(rank.to_le_bytes()));
        let first = left.first().and_then(|&rank| self.boards.get(rank as usize));
        let places = first.cloned().unwrap_or_default();
        let made = self.made.fetch_add(1, Ordering::Relaxed);
        hash.update(made.to_le_bytes());
        let id = ParsedId::derived(&self.secret, &hash.finalize(), places);
        let seat = OpeningRank { rank: own as u32, ranks: left.len() as u32, gpu: self.seat.gpu };
        Ok((id, seat))
    }

    /// Ends all calls, here and on the other ranks.
    pub(crate) fn abort(&self, why: &str) {
        // The handle was found in the process that is the rank, which may end its calls.
        let _ = (self.calls.abort(why), self.hosts.abort(why));
        // Kernels hear it from the host, unless a thread of it is in a call, which hears it by itself.
        let _ = self.look();
    }

    /// Looks whether a rank has failed. Does not wait: while another thread is in a call, that finds out.
    pub(crate) fn look(&self) -> Outcome {
        let looked = self.calls.try_with(|calls| match is_host() {
            true => Ok(()),
            false => calls.look(),
        });
        match looked {
            Some(Err(error)) => Err(error.into()),
            _ if self.calls.is_aborted() => Err(CallFailure {
                code: crate::failure::ResultCode::RemoteError,
                text: "a rank has failed, or ended the communicator".into(),
            }),
            _ => Ok(()),
        }
    }

    /// Waits for all calls.
    pub(crate) fn finish(&self) -> Outcome {
        match is_host() {
            true => Ok(()),
            false => Ok(self.calls.with(Communicator::finish)?),
        }
    }

    /// Frees what it holds.
    pub(crate) fn close(&self) {
        let _ = (self.calls.shutdown(), self.hosts.shutdown());
    }
}

/// Returns the ranks of this one's color, by key and rank; none if it has no color.
fn members(words: &[u64], own: u32) -> Vec<u32> {
    let color = |word: u64| (word >> 32) as u32;
    let key = |word: u64| (word as u32).cast_signed();
    let Some(mine) = words.get(own as usize).map(|&word| color(word)) else { return Vec::new() };
    if mine == u32::MAX {
        return Vec::new();
    }
    let same = (0..).zip(words).filter(|(_, word)| color(**word) == mine);
    let mut members: Vec<(i32, u32)> = same.map(|(rank, &word)| (key(word), rank)).collect();
    members.sort_unstable();
    members.into_iter().map(|(_, rank)| rank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_a_color_are_ordered_by_key_and_rank() {
        let word = |color: i32, key: i32| {
            u64::from(color.cast_unsigned()) << 32 | u64::from(key.cast_unsigned())
        };
        let words = [word(7, 0), word(3, 5), word(7, -1), word(-1, 0), word(3, 5), word(7, 0)];
        assert_eq!(members(&words, 0), [2, 0, 5]);
        assert_eq!(members(&words, 5), [2, 0, 5]);
        assert_eq!(members(&words, 4), [1, 4]);
        assert_eq!(members(&words, 3), [0; 0]);
    }
}
