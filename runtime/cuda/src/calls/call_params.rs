//! The parameters of a call's kernel, and whether all that it addresses lies at multiples of 16 bytes.

use roundelay_compiler::device::abi;
use roundelay_emit::cuda::{Element, aligned};

use super::cut::CallCut;
use super::key::CallKey;
use super::program::LoweredProgram;
use crate::memory::SharedMemory;
use crate::params::words;
use crate::rank::GpuRank;
use crate::region::{RegionSpot, RegionTable};
use roundelay_engine::choose::device::groups;

/// Returns true if chunks begin at multiples of 16 bytes, and true if the buffers of peers do.
pub(super) fn evenness(
    regions: &RegionTable,
    ranks: u32,
    key: &CallKey,
    lowered: &LoweredProgram,
) -> (bool, bool) {
    let header = &lowered.program.header;
    let vector = u64::from(header.blocks) * key.count;
    let element = Element::named(key.dtype.name());
    let even = element.is_some_and(|element| aligned(header.chunks, vector, element));
    let spots = key.spots.iter().flatten();
    let peers_even =
        spots.copied().all(|spot| (0..ranks).all(|r| regions.address(spot, r).is_multiple_of(16)));
    (even, peers_even)
}

/// Returns the parameters that do not change from call to call; the user's buffers lie at these places.
pub(super) fn call_params(
    rank: &GpuRank,
    key: &CallKey,
    cut: CallCut,
    lowered: &LoweredProgram,
    spots: &[Option<RegionSpot>; 3],
) -> Vec<u64> {
    let GpuRank { proxies, memory, device, .. } = rank;
    let SharedMemory { layout, arena, regions, united, .. } = memory;
    let (staging, halves) = layout.staging(key.protocol);
    let (abort, report) = device.mailbox.addresses();
    let size = key.dtype.size() as u64;
    let mut params = words(&abi::KernelParams {
        count: key.count,
        pass: cut.pass,
        passes: cut.passes,
        groups: groups(key.protocol, lowered.tasks, cut.pass * size),
        unit: cut.unit,
        staging,
        halves,
        packets: layout.packets,
        packet_half: layout.packet_half,
        scratch: layout.scratch,
        host: proxies.as_ref().map_or(0, |lanes| lanes.memory().device()),
        far: proxies.as_ref().map_or(0, |lanes| lanes.memory().to_slots()),
        state: arena.base(device.rank) + layout.states,
        abort,
        report,
        timeout: 0,
        part: 0,
        program: lowered.number.into(),
        number: 0,
        multicast: spots.map(|spot| {
            let range = spot.and_then(|spot| Some((united.get(&spot.region)?, spot)));
            range.map_or(0, |(range, spot)| range.base() + spot.offset)
        }),
        factor: 1.0,
    })
    .to_vec();
    params.extend((0..device.ranks).map(|peer| arena.base(peer)));
    for spot in spots {
        let address = |peer| spot.map_or(0, |spot| regions.address(spot, peer));
        params.extend((0..device.ranks).map(address));
    }
    params
}
