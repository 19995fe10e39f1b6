//! A call, how it is run, and its arguments.

use roundelay_compiler::ProvedPlans;
use roundelay_compiler::device::{DeviceProtocol, abi};
use roundelay_compiler::plan::PlanHeader;

use crate::buffer::DevicePtr;
use roundelay_engine::{CallArgs, EngineCore, PlanCall};
use roundelay_support::error::Error;

/// A call on device memory.
pub(crate) type DeviceCall = PlanCall<DevicePtr, DevicePtr>;

/// A call, and how it is run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CudaLaunch {
    /// The call. A buffer without meaning on this rank may be [`DevicePtr::NULL`].
    pub call: DeviceCall,
    /// The protocol by which messages travel; chosen by size and memory if left out. It is the same on all ranks.
    ///
    /// [`DeviceProtocol::Put`], [`DeviceProtocol::Get`] and [`DeviceProtocol::Engine`] ask that what peers address is
    /// memory of `Communicator::alloc_device` or
    /// `Communicator::register`, at the same place of it on every rank. Where the
    /// protocol is left out that decides it: then all ranks must give such memory, or none.
    pub protocol: Option<DeviceProtocol>,
    /// Blocks of the kernel; by size if left out. The same on all ranks.
    pub blocks: Option<u32>,
}

impl From<DeviceCall> for CudaLaunch {
    fn from(call: DeviceCall) -> Self {
        CudaLaunch { call, protocol: None, blocks: None }
    }
}

/// Returns the addresses of data, input, output.
pub(super) fn addresses(call: &DeviceCall) -> [u64; 3] {
    match call.args {
        CallArgs::InPlace { data } => [data.0, 0, 0],
        CallArgs::OutOfPlace { input, output } => [0, input.0, output.0],
    }
}

/// Returns the header of plans that fit a call.
pub(super) fn checked<'a>(
    plans: &'a ProvedPlans,
    launch: &CudaLaunch,
) -> Result<&'a PlanHeader, Error> {
    let Some(header) = plans.plans().first().map(|plan| &plan.header) else {
        return Err(Error::Plan("there are no plans".into()));
    };
    if header.placement != launch.call.args.placement() {
        return Err(Error::Usage("the plan and the buffers differ in placement".into()));
    }
    match launch.blocks.filter(|blocks| !(1..=abi::BLOCKS).contains(blocks)) {
        None => Ok(header),
        Some(blocks) => {
            Err(Error::Usage(format!("{blocks} blocks: a kernel has from 1 to {}", abi::BLOCKS)))
        }
    }
}

/// The arguments of a call beside its key.
#[derive(Debug, Clone, Copy)]
pub(super) struct LaunchArgs {
    /// Addresses of data, input, output; 0 for none.
    pub(super) buffers: [u64; 3],
    pub(super) factor: f64,
    /// Nanoseconds.
    pub(super) timeout: u64,
}

impl LaunchArgs {
    /// Returns the arguments of a call.
    pub(super) fn of(core: &EngineCore, call: &DeviceCall) -> Self {
        LaunchArgs {
            buffers: addresses(call),
            factor: call.factor,
            timeout: u64::try_from(core.timeout().as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// Returns true if all buffers of this rank begin at multiples of 16 bytes.
    pub(super) fn is_even(&self) -> bool {
        self.buffers.iter().all(|b| b.is_multiple_of(16))
    }
}
