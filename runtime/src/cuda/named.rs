//! Finds the algorithm that a call by name plays.

use std::sync::Arc;

use roundelay_compiler::{Placement, Proved};

use super::call::{CudaArgs, CudaBuffers};
use super::comm::CudaComm;
use super::{CudaStream, DevicePtr};
use crate::choose::How;
use crate::collectives::Reduction;
use crate::dtype::DType;
use crate::engine::Named;
use crate::error::Error;

/// Calls whose plans are remembered.
const KEPT: usize = 256;

/// Plans, and how they are best played, as measured.
type Chosen = (Arc<Proved>, Option<How>);

/// Calls by name and the plans that they play; the oldest make protocol.
#[derive(Debug, Default)]
pub(super) struct Choices {
    list: Vec<(Named, Chosen)>,
    next: usize,
}

impl Choices {
    /// Forgets all: other hints hold.
    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.next = 0;
    }

    fn find(&self, call: &Named) -> Option<Chosen> {
        self.list.iter().find(|(known, _)| known == call).map(|(_, chosen)| chosen.clone())
    }

    fn keep(&mut self, call: Named, chosen: Chosen) {
        let at = self.next % KEPT;
        self.next += 1;
        match self.list.get_mut(at) {
            Some(oldest) => *oldest = (call, chosen),
            None => self.list.push((call, chosen)),
        }
    }
}

/// A call by name, apart from its buffers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub(super) collective: &'static str,
    pub(super) root: u32,
    pub(super) reduction: Reduction,
    /// Blocks of the whole vector.
    pub(super) blocks: u32,
    /// Elements of a block.
    pub(super) count: usize,
    pub(super) dtype: DType,
}

impl Asked {
    /// Describes a call that copies, from or to nobody in particular: of a vector of so many blocks of
    /// `count` elements.
    pub(super) fn of(collective: &'static str, blocks: u32, count: usize, dtype: DType) -> Self {
        Asked { collective, root: 0, reduction: Reduction::NONE, blocks, count, dtype }
    }

    pub(super) fn root(self, root: u32) -> Self {
        Asked { root, ..self }
    }

    pub(super) fn reduced(self, by: impl Into<Reduction>) -> Self {
        Asked { reduction: by.into(), ..self }
    }
}

impl CudaComm {
    /// Performs a call by name.
    pub(super) fn named(
        &mut self,
        asked: Asked,
        buffers: CudaBuffers,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let Asked { collective, root, reduction, blocks, count, dtype } = asked;
        if root >= self.size() {
            return Err(Error::Usage(format!(
                "{collective}: root {root} is not one of {} ranks; roots go from 0 to {}",
                self.size(),
                self.size() - 1
            )));
        }
        let count = count as u64;
        let elements = u64::from(blocks).saturating_mul(count);
        let bytes = elements.saturating_mul(dtype.size() as u64);
        let placement = buffers.placement();
        let call = Named { collective, bytes, dtype, op: reduction.op, root, placement };
        let (plans, how) = match self.gpu.choices.find(&call) {
            Some(chosen) => chosen,
            None => {
                let chosen = self.chosen(&call)?;
                self.gpu.choices.keep(call, chosen.clone());
                chosen
            }
        };
        let args = CudaArgs { buffers, count, dtype, reduction, protocol: None, blocks: None };
        self.play(&plans, &args, how, stream)
    }

    fn chosen(&mut self, call: &Named) -> Result<Chosen, Error> {
        let ranks = self.size();
        let (algorithm, how) = self.comm.core()?.device_algorithm(call)?;
        if !algorithm.allows(call.placement) && call.placement == Placement::InPlace {
            return Err(Error::Usage(format!(
                "{algorithm} moves `input` to `output`: on GPUs it is called with two buffers"
            )));
        }
        Ok((algorithm.proved(ranks, call.root, call.placement)?, how))
    }
}

/// Returns the buffers of a call in place.
pub(super) fn in_place(data: DevicePtr) -> CudaBuffers {
    CudaBuffers::InPlace { data }
}

/// Returns the buffers of a call out of place.
pub(super) fn moved(output: DevicePtr, input: DevicePtr) -> CudaBuffers {
    CudaBuffers::OutOfPlace { input, output }
}
