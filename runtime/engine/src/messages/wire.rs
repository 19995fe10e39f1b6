//! Packets of messages and windows, for tests and fuzzers.

use super::packet::{Packet, Reason, Shape};
use crate::window::{Fetch, Rights};
use roundelay_net::dtype::{DType, RedOp};
use roundelay_net::transport::one_sided::{Grant, May};
use roundelay_net::wire::{Wire, sized};

/// Returns packets of all kinds, as one rank sends them to another.
fn packets() -> Vec<Packet> {
    let shape = Shape { dtype: DType::F32, bytes: 64 };
    let (key, offset, bytes, id) = (11, 16, 64, 5);
    let may = May { read: true, write: false };
    let reasons = [
        Reason::Bounds { bytes },
        Reason::Rights { needed: Rights::WRITE, has: Rights::READ },
        Reason::Alignment { offset },
        Reason::Elements,
        Reason::Over,
    ];
    let mut all = vec![
        Packet::Eager { tag: 1, shape },
        Packet::Offer { tag: 1, shape, id, address: 0 },
        Packet::Accept { id },
        Packet::Data { id, bytes },
        Packet::Credit { messages: 1 },
        Packet::Taken { id, bytes },
        Packet::Put { key, offset, bytes },
        Packet::Accumulate { key, offset, bytes, dtype: DType::U64, op: RedOp::Sum },
        Packet::Get { key, offset, bytes, id },
        Packet::Fetch { key, offset, id, fetch: Fetch::Add(1) },
        Packet::Fetch { key, offset, id, fetch: Fetch::Swap(0, 1) },
        Packet::Signal { key },
        Packet::Flush { key, id },
        Packet::Answer { id, value: 1 },
        Packet::Reach { key },
        Packet::Grant { key, grant: None },
        Packet::Grant { key, grant: Some(Grant { address: 1 << 20, key: 7, may, words: true }) },
    ];
    all.extend(reasons.map(|reason| Packet::Refused { key, id, offset, reason }));
    all
}

/// Returns the messages of connections for messages.
pub fn wires() -> Vec<Wire> {
    vec![Wire {
        name: "messages: packet",
        samples: packets().into_iter().map(|packet| packet.encode().to_vec()).collect(),
        read: |bytes| Some(Packet::decode(sized(bytes)?)?.encode().to_vec()),
    }]
}
