//! The communicator: a rank's handle on the others, and the calls it makes together with them.
//!
//! `call` prepares a call for the executor, `meeting` is what ranks say to each other outside plans.

mod call;
mod meeting;

use std::sync::Arc;
use std::time::Duration;

use roundelay_compiler::plan::Plan;

use crate::bind::{Bound, Key};
use crate::collectives::Plans;
use crate::dtype::{DType, Element, RedOp};
use crate::ends::Ends;
use crate::error::Error;
use crate::executor::{Stats, Work};
use crate::memory::{Arena, Buffer, Cut, bytes, bytes_mut};
use crate::transport::shm::{Exchange, Layout, Segment, State};
use crate::watchdog;

/// How long a rank waits for another by default.
const TIMEOUT: Duration = Duration::from_secs(30);

/// One call of a plan.
#[derive(Debug)]
pub struct Call<'a> {
    /// Element count, in the unit of the plan's collective: the vector has `blocks * count` elements.
    pub count: u64,
    /// Type of the elements.
    pub dtype: DType,
    /// How contributions are reduced; of no meaning where the collective only copies.
    pub op: RedOp,
    /// By what this rank's elements are multiplied first, for [`RedOp::PremulSum`].
    pub factor: f64,
    /// The buffers.
    pub args: Args<'a>,
}

/// The buffers of a call, as bytes.
#[derive(Debug)]
pub enum Args<'a> {
    /// For a plan in place: the whole vector.
    InPlace {
        /// Read and written.
        data: &'a mut [u8],
    },
    /// For a plan out of place. A buffer that this rank's part of the plan never touches may be
    /// empty.
    OutOfPlace {
        /// Never written.
        input: &'a [u8],
        /// Written.
        output: &'a mut [u8],
    },
}

/// A rank of a job whose ranks share memory. Calls are collective: all ranks make the same ones in
/// the same order. After a failed call (other than one refused for its arguments) the communicator
/// cannot be used any more.
pub struct Communicator {
    segment: Arc<Segment>,
    rank: u32,
    timeout: Duration,
    arena: Arc<Arena>,
    scratch: Option<Cut>,
    exchange: Exchange,
    ends: Ends,
    work: Work,
    bounds: Vec<Bound>,
    next_bound: usize,
    /// The bound plan of the call in progress, or of the last one.
    current: Option<usize>,
    /// Calls made, and a digest of all of them in order.
    calls: u64,
    history: u64,
    failed: Option<String>,
    pub(crate) plans: Plans,
}

impl Communicator {
    pub(crate) fn join(segment: Arc<Segment>, rank: u32) -> Self {
        segment.set_state(rank, State::Present);
        Communicator {
            rank,
            timeout: TIMEOUT,
            arena: Arena::new(segment.clone(), rank),
            scratch: None,
            exchange: Exchange::new(),
            ends: Ends::new(segment.clone(), rank),
            work: Work::default(),
            bounds: Vec::new(),
            next_bound: 0,
            current: None,
            calls: 0,
            history: 0,
            failed: None,
            plans: Plans::default(),
            segment,
        }
    }

    /// This rank, from 0.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of ranks.
    pub fn size(&self) -> u32 {
        self.segment.layout().ranks
    }

    /// The parameters of the job's shared memory.
    pub fn layout(&self) -> &Layout {
        self.segment.layout()
    }

    /// How long this rank waits for another before it gives up, 30 s by default. A wait begins anew
    /// whenever something moved.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// A buffer of zeros that the other ranks can read, so that its data need not be copied on the
    /// way. It is this rank's own: other ranks touch it only within calls that it is passed to.
    ///
    /// # Errors
    ///
    /// [`Error::Memory`] if the machine or the rank's arena has no room for it.
    pub fn alloc<T: Element>(&self, len: usize) -> Result<Buffer<T>, Error> {
        Buffer::zeroed(&self.arena, len)
    }

    /// Plays a plan in place.
    ///
    /// # Errors
    ///
    /// As [`Communicator::run`].
    pub fn run_in_place<T: Element>(
        &mut self,
        plan: &Plan,
        op: RedOp,
        data: &mut [T],
    ) -> Result<Stats, Error> {
        let count = count_of(data.len(), plan.header.blocks, "data")?;
        let args = Args::InPlace { data: bytes_mut(data) };
        self.run(plan, Call { count, dtype: T::DTYPE, op, factor: 1.0, args })
    }

    /// Plays a plan out of place.
    ///
    /// # Errors
    ///
    /// As [`Communicator::run`].
    pub fn run_out_of_place<T: Element>(
        &mut self,
        plan: &Plan,
        op: RedOp,
        count: u64,
        input: &[T],
        output: &mut [T],
    ) -> Result<Stats, Error> {
        let args = Args::OutOfPlace { input: bytes(input), output: bytes_mut(output) };
        self.run(plan, Call { count, dtype: T::DTYPE, op, factor: 1.0, args })
    }

    /// Plays a plan: this rank's side of a collective call. Returns when this rank's result is
    /// there and its buffers are its own again.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`], [`Error::Unsupported`] and [`Error::Plan`] if the call cannot be made;
    /// nothing has moved then, and the communicator stays usable. All others end the job:
    /// [`Error::PlanMismatch`] if another rank makes another call, [`Error::Timeout`],
    /// [`Error::LostRank`], [`Error::Aborted`], [`Error::Memory`].
    pub fn run(&mut self, plan: &Plan, call: Call<'_>) -> Result<Stats, Error> {
        self.usable()?;
        if call.count == 0 && plan.header.collective != "barrier" {
            return Ok(Stats::default());
        }
        let Call { count, dtype, op, factor, mut args } = call;
        let key = Key { hash: plan.header.hash, count, dtype, op };
        let known = |b: &Bound| b.key == key && plan.part.rank == self.rank;
        let at = match self.bounds.iter().position(known) {
            Some(at) => at,
            None => self.bind(plan, key)?,
        };
        self.buffers(at, &mut args)?;
        self.current = Some(at);
        let in_place = matches!(args, Args::InPlace { .. });
        let result = self.play(at, factor, in_place);
        result.map_err(|error| self.fail(error))
    }

    /// Waits until all ranks have come here.
    ///
    /// # Errors
    ///
    /// As [`Communicator::run`].
    pub fn barrier(&mut self) -> Result<(), Error> {
        self.meet(0, |_, _| {})
    }

    /// The word of every rank, by rank.
    ///
    /// # Errors
    ///
    /// As [`Communicator::run`].
    pub fn all_gather_u64(&mut self, word: u64) -> Result<Vec<u64>, Error> {
        let mut words = vec![0; self.size() as usize];
        self.meet(word, |rank, word| words[rank as usize] = word)?;
        Ok(words)
    }

    /// The largest of all ranks' values.
    ///
    /// # Errors
    ///
    /// As [`Communicator::run`].
    pub fn max_f64(&mut self, value: f64) -> Result<f64, Error> {
        let mut most = value;
        self.meet(value.to_bits(), |_, bits| most = most.max(f64::from_bits(bits)))?;
        Ok(most)
    }

    fn usable(&self) -> Result<(), Error> {
        match &self.failed {
            None => Ok(()),
            Some(cause) => Err(Error::Usage(format!(
                "this communicator cannot be used after an error ({cause}): start the job again"
            ))),
        }
    }

    /// Notes an error that ends the job, and tells the others.
    #[cold]
    fn fail(&mut self, error: Error) -> Error {
        self.segment.abort(&watchdog::record(self.rank, &error));
        self.failed = Some(error.to_string());
        error
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        self.segment.set_state(self.rank, State::Left);
    }
}

impl std::fmt::Debug for Communicator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Communicator")
            .field("rank", &self.rank)
            .field("size", &self.size())
            .finish()
    }
}

fn count_of(len: usize, blocks: u32, what: &str) -> Result<u64, Error> {
    match (len as u64).checked_rem(u64::from(blocks)) {
        Some(0) => Ok(len as u64 / u64::from(blocks)),
        _ => Err(Error::Usage(format!(
            "the {what} has {len} elements, which is not a multiple of the plan's {blocks} blocks"
        ))),
    }
}
