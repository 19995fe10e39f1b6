//! Models how joining a job grows with the number of ranks: what each rank does is counted by running the
//! very logic that runs over sockets, for every rank, and the time is modelled.

use serde::Serialize;

use super::overlay::{BruckGather, GatheredParts, neighbours, steps};

/// The assumptions of the model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScaleAssumptions {
    /// Seconds that a message takes from rank to rank.
    pub message: f64,
    /// Operations a second that the rendezvous store serves.
    pub store_rate: f64,
    /// Bytes a second of a link.
    pub bandwidth: f64,
    /// Bytes of an endpoint.
    pub endpoint: u64,
    /// True if the ranks share a secret, which adds a challenge to each connection.
    pub has_secret: bool,
}

impl Default for ScaleAssumptions {
    fn default() -> Self {
        let (message, store_rate, bandwidth) = (50e-6, 100e3, 10e9);
        ScaleAssumptions { message, store_rate, bandwidth, endpoint: 96, has_secret: true }
    }
}

/// The costs of joining.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ScaleFigures {
    /// The number of ranks.
    pub ranks: u32,
    /// Ranks that end with all endpoints: all ranks, or the logic is wrong.
    pub complete: u32,
    /// Steps of gathering the endpoints.
    pub steps: u32,
    /// Operations of the store, of the rank with most.
    pub store_a_rank: u32,
    /// Operations of the store, of all ranks.
    pub store: u64,
    /// Links of the rank with most; each is a descriptor.
    pub links_a_rank: u32,
    /// Messages that a rank sends, handshakes included, at most.
    pub messages_a_rank: u32,
    /// Bytes that a rank receives, at most.
    pub bytes_a_rank: u64,
    /// Modelled seconds until the store has served all ranks.
    pub store_seconds: f64,
    /// Modelled seconds of connecting and gathering after that.
    pub gather_seconds: f64,
}

impl ScaleFigures {
    /// Returns the modelled seconds from the first rank's start to the last rank's end, if all start at once.
    pub fn seconds(&self) -> f64 {
        self.store_seconds + self.gather_seconds
    }
}

/// Returns the operations of the store that a rank makes: it leaves its endpoint, reads the next one's and
/// the job's number, which rank 0 leaves.
fn store_operations(size: u32) -> u32 {
    if size == 1 { 0 } else { 3 }
}

/// The endpoints of consecutive ranks, by number alone.
struct RankRun {
    first: u32,
    count: u32,
    size: u32,
}

impl GatheredParts for RankRun {
    fn count(&self) -> u32 {
        self.count
    }

    fn part(&self, from: u32, count: u32) -> Self {
        RankRun { first: (self.first + from) % self.size, count, size: self.size }
    }

    fn join(&mut self, more: Self) -> bool {
        let is_next = (self.first + self.count) % self.size == more.first;
        self.count += more.count;
        is_next
    }
}

/// Lets `ranks` ranks join, without sockets.
pub fn join(ranks: u32, given: &ScaleAssumptions) -> ScaleFigures {
    let operations = store_operations(ranks.clamp(1, 1 << 24));
    gather(ranks, given, 2, operations, 0)
}

/// The rounds of words in which ranks of a new generation agree after they have gathered their endpoints: on what the
/// first rank of each machine has made, that all have opened it, and that all are linked.
const AGREEMENTS: u32 = 3;

/// Lets `ranks` ranks come together in a new generation, whose handles all of them were given, without sockets. None of
/// them shares memory with another: links over memory take no handshakes.
pub fn reconfigure(ranks: u32, given: &ScaleAssumptions) -> ScaleFigures {
    gather(ranks, given, 1, 0, AGREEMENTS)
}

/// Lets ranks gather their endpoints after `store_operations` of each; a rank begins with `known` endpoints,
/// and ends with `agreements` rounds of words.
fn gather(
    ranks: u32,
    given: &ScaleAssumptions,
    known: u32,
    store_operations: u32,
    agreements: u32,
) -> ScaleFigures {
    let size = ranks.clamp(1, 1 << 24);
    let own =
        |rank| BruckGather::new(rank, size, RankRun { first: rank, count: known.min(size), size });
    let mut all: Vec<BruckGather<RankRun>> = (0..size).map(own).collect();
    let mut bytes = vec![0_u64; size as usize];
    for _ in 0..steps(size) {
        let mut arrivals: Vec<Option<RankRun>> = (0..size).map(|_| None).collect();
        for gather in &mut all {
            let target = gather.target() as usize;
            arrivals[target] = gather.outgoing();
        }
        for ((gather, run), bytes) in all.iter_mut().zip(arrivals).zip(&mut bytes) {
            if let Some(run) = run {
                *bytes += u64::from(run.count) * given.endpoint;
                gather.incoming(run);
            }
        }
    }
    let is_complete = |gather: &&BruckGather<RankRun>| {
        gather.is_done() && gather.pile().count == gather.pile().size
    };
    let links = (0..size).map(|rank| neighbours(rank, size).len() as u32);
    let links_a_rank = links.max().unwrap_or(0);
    let bytes_a_rank = bytes.into_iter().max().unwrap_or(0);
    let steps = steps(size);
    // A connection is two messages to be made, then a hello and its answer, then what proves the
    // secret; the steps' own connections are made one after the other, as the endpoints come.
    let handshake = if given.has_secret { 6 } else { 4 };
    let messages = f64::from(steps * (handshake + 1 + agreements)) * given.message;
    let store = u64::from(size) * u64::from(store_operations);
    ScaleFigures {
        ranks: size,
        complete: all.iter().filter(is_complete).count() as u32,
        steps,
        store_a_rank: store_operations,
        store,
        links_a_rank,
        messages_a_rank: links_a_rank * handshake.div_ceil(2) + steps * (1 + agreements),
        bytes_a_rank,
        store_seconds: store as f64 / given.store_rate,
        gather_seconds: messages + bytes_a_rank as f64 / given.bandwidth,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rank_has_all_endpoints_at_any_size() {
        for ranks in (1..200).chain([255, 256, 257, 1000, 4096, 65_537, 131_072]) {
            let figures = join(ranks, &ScaleAssumptions::default());
            assert_eq!(figures.complete, ranks, "{ranks} ranks");
            assert!(figures.store_a_rank <= 2 * steps(ranks) + 3);
            assert!(figures.links_a_rank <= 2 * steps(ranks));
        }
    }

    #[test]
    fn a_generation_takes_logarithmically_many_messages_and_no_store() {
        for ranks in (1..200).chain([255, 256, 257, 1000, 4096, 65_537, 131_072]) {
            let figures = reconfigure(ranks, &ScaleAssumptions::default());
            assert_eq!((figures.complete, figures.store), (ranks, 0), "{ranks} ranks");
            assert!(figures.links_a_rank <= 2 * steps(ranks));
            assert!(figures.messages_a_rank <= 10 * steps(ranks), "{figures:?}");
        }
        let figures = reconfigure(131_072, &ScaleAssumptions::default());
        assert_eq!((figures.steps, figures.messages_a_rank), (17, 167));
        assert!(figures.seconds() < 0.1, "{figures:?}");
    }

    #[test]
    fn a_job_of_131072_ranks_joins_in_seconds() {
        let figures = join(131_072, &ScaleAssumptions::default());
        assert_eq!((figures.steps, figures.links_a_rank, figures.store_a_rank), (17, 33, 3));
        assert_eq!(figures.bytes_a_rank, (131_072 - 2) * 96);
        assert!(figures.seconds() < 5.0, "{figures:?}");
    }
}
