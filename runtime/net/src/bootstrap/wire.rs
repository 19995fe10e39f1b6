//! Messages that come to stores and reporters, and the texts that ranks are given, for tests and fuzzers.

use super::handle::RankHandle;
use super::roster::ReporterRoster;
use super::store::protocol::{
    GUEST, StoreFrame, StoreHello, StoreRequest, digest, failure, failure_body, frame,
    key_and_value, push_frame,
};
use crate::group::ReporterAt;
use crate::wire::{WireMessage, again, sized};
use roundelay_dsl::diag::codes;
use roundelay_support::abort::AbortRecord;

/// Returns the messages of stores and reporters, and handles.
pub fn wires() -> Vec<WireMessage> {
    let hello = |rank| {
        let (job, is_host_bound) = (digest("job"), rank != GUEST);
        StoreHello { rank, size: 4, job, is_host_bound, nonce: [5; 32] }.bytes().to_vec()
    };
    let framed = |op: StoreRequest, body: &[u8]| {
        let mut bytes = Vec::new();
        push_frame(&mut bytes, op as u8, 7, &[body]);
        bytes
    };
    let record = AbortRecord { code: codes::LOST_RANK, rank: 1, text: "it is gone".into() };
    let note = [&[3u8, 0][..], b"key", b"value"].concat();
    let at = (std::net::Ipv4Addr::LOCALHOST.into(), ReporterAt { port: 4711, key: u128::MAX });
    let roster = ReporterRoster { communicator: "0123".into(), reporters: vec![None, Some(at)] };
    vec![
        WireMessage {
            name: "store: hello",
            samples: vec![hello(0), hello(GUEST)],
            read: |bytes| Some(StoreHello::read(sized(bytes)?)?.bytes().to_vec()),
        },
        WireMessage {
            name: "store: frame",
            samples: vec![
                framed(StoreRequest::Set, &note),
                framed(StoreRequest::Get, b"key"),
                framed(StoreRequest::Fail, &failure_body(&record)),
                framed(StoreRequest::Report, b""),
            ],
            read: |bytes| {
                let StoreFrame { head, number, body, whole } = frame(bytes).ok()??;
                let mut again = Vec::new();
                push_frame(&mut again, head, number, &[body]);
                (again == bytes[..whole]).then_some(again)
            },
        },
        WireMessage {
            name: "store: note",
            samples: vec![note],
            read: |bytes| {
                let (key, value) = key_and_value(bytes)?;
                let length = (key.len() as u16).to_le_bytes();
                Some([&length[..], key.as_bytes(), value].concat())
            },
        },
        WireMessage {
            name: "store: failure",
            samples: vec![failure_body(&record)],
            read: |bytes| Some(failure_body(&failure(bytes)?)),
        },
        WireMessage {
            name: "store: roster",
            samples: postcard::to_stdvec(&roster).into_iter().collect(),
            read: again::<ReporterRoster>,
        },
        WireMessage {
            name: "the note of rank 0",
            samples: vec![b"abc;127.0.0.1:1,[::1]:2".to_vec()],
            read: |bytes| {
                let (job, ways) = super::rendezvous::read(std::str::from_utf8(bytes).ok()?)?;
                let ways: Vec<String> = ways.iter().map(ToString::to_string).collect();
                Some(format!("{job};{}", ways.join(",")).into_bytes())
            },
        },
        WireMessage {
            name: "handle",
            samples: vec![
                format!("rl1.7.3.{:016x}.{:016x}.{:032x}@127.0.0.1:1,[fe80::1%2]:3", 1, 2, 3)
                    .into_bytes(),
            ],
            read: |bytes| {
                let handle: RankHandle = std::str::from_utf8(bytes).ok()?.parse().ok()?;
                Some(handle.to_string().into_bytes())
            },
        },
    ]
}
