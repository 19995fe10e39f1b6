//! Packets of messages and windows, for tests and fuzzers.

use super::packet::{MessagePacket, MessageShape, RefusalReason};
use crate::window::{AtomicFetch, WindowRights};
use roundelay_net::transport::one_sided::{AccessGrant, AccessRights};
use roundelay_net::wire::{WireMessage, sized};
use roundelay_support::dtype::{DType, RedOp};

/// Returns packets of all kinds, as one rank sends them to another.
fn packets() -> Vec<MessagePacket> {
    let shape = MessageShape { dtype: DType::F32, bytes: 64 };
    let (key, offset, bytes, id) = (11, 16, 64, 5);
    let may = AccessRights { read: true, write: false };
    let reasons = [
        RefusalReason::Bounds { bytes },
        RefusalReason::Rights { needed: WindowRights::WRITE, has: WindowRights::READ },
        RefusalReason::Alignment { offset },
        RefusalReason::Elements,
        RefusalReason::Over,
    ];
    let mut all = vec![
        MessagePacket::Eager { tag: 1, shape },
        MessagePacket::Offer { tag: 1, shape, id, address: 0 },
        MessagePacket::Accept { id },
        MessagePacket::Data { id, bytes },
        MessagePacket::Credit { messages: 1 },
        MessagePacket::Taken { id, bytes },
        MessagePacket::Put { key, offset, bytes },
        MessagePacket::Accumulate { key, offset, bytes, dtype: DType::U64, op: RedOp::Sum },
        MessagePacket::Get { key, offset, bytes, id },
        MessagePacket::Fetch { key, offset, id, fetch: AtomicFetch::Add(1) },
        MessagePacket::Fetch { key, offset, id, fetch: AtomicFetch::Swap(0, 1) },
        MessagePacket::Signal { key },
        MessagePacket::Flush { key, id },
        MessagePacket::Answer { id, value: 1 },
        MessagePacket::Reach { key },
        MessagePacket::Grant { key, grant: None },
        MessagePacket::Grant {
            key,
            grant: Some(AccessGrant { address: 1 << 20, key: 7, may, words: true }),
        },
    ];
    all.extend(reasons.map(|reason| MessagePacket::Refused { key, id, offset, reason }));
    all
}

/// Returns the wire formats of this module.
pub fn wires() -> Vec<WireMessage> {
    vec![WireMessage {
        name: "messages: packet",
        samples: packets().into_iter().map(|packet| packet.encode().to_vec()).collect(),
        read: |bytes| Some(MessagePacket::decode(sized(bytes)?)?.encode().to_vec()),
    }]
}
