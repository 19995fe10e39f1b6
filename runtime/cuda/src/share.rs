//! Shares memory of devices between ranks: all ranks together, and all of them or none.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use super::control::{agree, trade};
use super::region::MappedRegion;
use crate::backend::{
    CudaStream, DeviceAllocation, DeviceContext, DriverFault, ForeignAllocation, IpcHandle,
    IpcMapping, MappedRange, multicast,
};
use crate::nvlink::{DescriptorSocket, SharedRanges, offer};
use crate::tunables::ZERO_TIMEOUT;
use roundelay_engine::EngineCore;
use roundelay_support::error::{Error, ErrorSource};

/// The resources with which memory is shared.
#[derive(Debug)]
pub(super) struct MemorySharing {
    pub(super) rank: u32,
    /// True for each rank of this host.
    pub(super) near: Vec<bool>,
    /// The unit of which the bytes of shared memory are multiples, on all ranks.
    pub(super) granularity: u64,
    pub(super) context: Arc<DeviceContext>,
    pub(super) aside: CudaStream,
    pub(super) socket: DescriptorSocket,
    /// The tokens of the sockets of this host's ranks, by rank.
    pub(super) tokens: Vec<Option<u64>>,
}

impl MemorySharing {
    /// Returns the error of a call of the driver.
    pub(super) fn fault(&self, fault: &DriverFault) -> Error {
        fault.on(self.rank, self.context.device())
    }

    /// Returns the error of something on this rank's device, with the error that underlies it if there is one.
    pub(super) fn failed(&self, what: String, source: Option<ErrorSource>) -> Error {
        let device = self.context.device().to_string();
        Error::Cuda { rank: self.rank, device, what, source }
    }

    fn unshared(&self, address: u64, fault: DriverFault) -> Error {
        let what = format!(
            "the memory at {address:#x} cannot be shared with other processes: {fault}; that of cudaMalloc can: take \
             expandable_segments out of PYTORCH_CUDA_ALLOC_CONF, or use a pool of get_mem_allocator, or memory of the \
             communicator"
        );
        self.failed(what, Some(ErrorSource::new(fault)))
    }

    fn unmapped(&self, peer: u32, fault: DriverFault) -> Error {
        let what = format!("the memory of rank {peer} cannot be mapped: {fault}");
        self.failed(what, Some(ErrorSource::new(fault)))
    }

    /// Makes memory of `bytes` at least on every rank, zeros, mapped by all of a host.
    pub(super) fn whole(
        &mut self,
        core: &mut EngineCore,
        bytes: u64,
    ) -> Result<SharedRanges, Error> {
        let bytes = bytes.max(1).next_multiple_of(self.granularity);
        let reserved = SharedRanges::reserve(&self.context, (self.rank, &self.near), bytes);
        let mut shared = agree(core, reserved.map_err(|fault| self.fault(&fault)))?;
        self.extend(core, &mut shared, bytes)?;
        Ok(shared)
    }

    /// Puts `bytes` at least behind what every rank has there.
    pub(super) fn extend(
        &mut self,
        core: &mut EngineCore,
        shared: &mut SharedRanges,
        bytes: u64,
    ) -> Result<(), Error> {
        let bytes = bytes.next_multiple_of(self.granularity);
        let begun = self.begin(shared, bytes).map_err(|fault| self.fault(&fault));
        let descriptor = agree(core, begun)?;
        let content = bytes.to_le_bytes();
        let messages =
            trade(core, (&mut self.socket, &self.tokens), &content, &[descriptor.as_fd()])?;
        let taken = messages.and_then(|messages| {
            for (peer, message) in (0u32..).zip(messages) {
                let Some(message) = message else { continue };
                let descriptor = message.descriptors.into_iter().next();
                let (true, Some(descriptor)) = (message.content == content, descriptor) else {
                    let what = format!("rank {peer} passed other memory than was agreed");
                    return Err(self.failed(what, None));
                };
                let taken = shared.take(peer, descriptor, bytes);
                taken.map_err(|fault| self.unmapped(peer, fault))?;
            }
            Ok(())
        });
        agree(core, taken)
    }

    /// Makes this rank's part: new memory, mapped here, zeroed.
    fn begin(&self, shared: &mut SharedRanges, bytes: u64) -> Result<OwnedFd, DriverFault> {
        let (memory, descriptor) = offer(&self.context, bytes)?;
        let at = shared.base(self.rank) + shared.bytes();
        shared.put(memory)?;
        // SAFETY: the memory was just mapped, and is not shared yet.
        unsafe { self.aside.set(at, 0, bytes) }?;
        self.aside.drain(ZERO_TIMEOUT)?;
        Ok(descriptor)
    }

    /// Maps memory of another allocator on all ranks: `bytes` from an address on, in the allocation that was
    /// found there. `alike` is true if all ranks give as many bytes.
    pub(super) fn import(
        &mut self,
        core: &mut EngineCore,
        found: Result<ForeignAllocation, Error>,
        (address, bytes): (u64, u64),
        alike: bool,
    ) -> Result<MappedRegion, Error> {
        let named = found.and_then(|found| {
            let fits =
                address.checked_add(bytes).is_some_and(|end| end <= found.base + found.bytes);
            match (alike, fits) {
                (false, _) => Err(Error::Usage(
                    "ranks register memory of different lengths: all must register the same".into(),
                )),
                (_, false) => Err(Error::Usage(format!(
                    "{bytes} bytes at {address:#x} are more than the allocation has"
                ))),
                _ => {
                    let name = self.context.name(found.base);
                    Ok((found, name.map_err(|fault| self.unshared(address, fault))?))
                }
            }
        });
        let (found, name) = agree(core, named)?;
        let offset = address - found.base;
        let content = [&name[..], &offset.to_le_bytes()].concat();
        let messages = trade(core, (&mut self.socket, &self.tokens), &content, &[])?;
        let mapped = messages.and_then(|messages| {
            let (mut peers, mut offsets) = (Vec::new(), Vec::new());
            for (peer, message) in (0u32..).zip(messages) {
                let (map, offset) = match message {
                    // This rank itself, or one on another host.
                    None => (None, offset),
                    Some(message) => {
                        let (map, offset) = self.open(peer, &message.content)?;
                        (Some(map), offset)
                    }
                };
                peers.push(map);
                offsets.push(offset);
            }
            Ok((peers, offsets))
        });
        let (peers, offsets) = agree(core, mapped)?;
        Ok(MappedRegion::IpcMemory { found, own: self.rank, peers, offsets, bytes })
    }

    /// Maps the memory of all ranks at one address, by the switch. `own` is this rank's memory, of as many bytes on
    /// each; all ranks are on this host. Nothing of this was tried on hardware.
    pub(super) fn unite(
        &mut self,
        core: &mut EngineCore,
        own: Option<&DeviceAllocation>,
    ) -> Result<MappedRange, Error> {
        let devices = self.near.len() as u32;
        let made = self.bindable(own, devices).and_then(|own| {
            let made = (self.rank == 0).then(|| {
                let object = DeviceAllocation::of_all(&self.context, devices, own.bytes())?;
                let descriptor = object.export()?;
                Ok((object, descriptor))
            });
            let made: Option<(DeviceAllocation, OwnedFd)> =
                made.transpose().map_err(|fault| self.fault(&fault))?;
            Ok((own, made))
        });
        let (own, made) = agree(core, made)?;
        let bytes = own.bytes();
        let passed: Vec<_> = made.iter().map(|(_, descriptor)| descriptor.as_fd()).collect();
        let content = bytes.to_le_bytes();
        let messages = trade(core, (&mut self.socket, &self.tokens), &content, &passed)?;
        let joined = messages.and_then(|messages| {
            let first = messages.into_iter().next().flatten();
            let descriptor = first.and_then(|message| message.descriptors.into_iter().next());
            let object = match (made, descriptor) {
                (Some((object, _)), _) => object,
                (None, Some(descriptor)) => {
                    DeviceAllocation::import(&self.context, descriptor, bytes)
                        .map_err(|fault| self.fault(&fault))?
                }
                (None, None) => return Err(self.failed("rank 0 passed no object".into(), None)),
            };
            object.join().map_err(|fault| self.fault(&fault))?;
            Ok(object)
        });
        // Memory is bound when all devices have joined.
        let object = agree(core, joined)?;
        let bound = object.bind(own).and_then(|()| {
            let mut range = MappedRange::reserve(&self.context, bytes)?;
            range.map(object)?;
            Ok(range)
        });
        agree(core, bound.map_err(|fault| self.fault(&fault)))
    }

    /// Returns `own`, if it can be bound for that number of devices.
    fn bindable<'p>(
        &self,
        own: Option<&'p DeviceAllocation>,
        devices: u32,
    ) -> Result<&'p DeviceAllocation, Error> {
        let fault = |fault: DriverFault| self.fault(&fault);
        if !self.context.multicasts().map_err(fault)? {
            return Err(self.failed("no switch joins it to others, for `multicast`".into(), None));
        }
        let Some(own) = own else {
            return Err(Error::Unsupported(
                "`multicast` takes memory of `Communicator::alloc_device`, and none of other allocators".into(),
            ));
        };
        let least = multicast::granularity(devices, own.bytes()).map_err(fault)?;
        match own.bytes().is_multiple_of(least) {
            true => Ok(own),
            false => Err(Error::Unsupported(format!(
                "`multicast` takes multiples of {least} bytes, and the buffer has {}",
                own.bytes()
            ))),
        }
    }

    /// Maps what a peer's message names; returns it with the offset at which the peer's memory begins.
    fn open(&self, peer: u32, content: &[u8]) -> Result<(IpcMapping, u64), Error> {
        let handle = content.get(..64).and_then(|h| IpcHandle::try_from(h).ok());
        let offset = content.get(64..).and_then(|o| o.try_into().ok()).map(u64::from_le_bytes);
        let (Some(handle), Some(offset)) = (handle, offset) else {
            return Err(self.failed(format!("rank {peer} passed no name of memory"), None));
        };
        let opened = IpcMapping::open(&self.context, &handle);
        Ok((opened.map_err(|fault| self.unmapped(peer, fault))?, offset))
    }
}
