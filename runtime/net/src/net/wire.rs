//! Messages that come to a listener and over links, for tests and fuzzers.

use super::endpoint::EndpointAddress;
use super::hello::{CONTROL, ConnectionName, HelloRefusal, HelloReply, PeerHello};
use super::link_frame::LinkFrame;
use super::shrink::ShrinkMessage;
use crate::wire::{WireMessage, again, sized};

/// Returns the messages of sockets between ranks.
pub fn wires() -> Vec<WireMessage> {
    let name =
        ConnectionName { job: 1 << 100 | 5, comm: 1 << 50, to: 3, from: 131_071, lane: CONTROL };
    let hello = |has_secret| {
        let is_host_bound = has_secret;
        PeerHello { name, has_secret, is_host_bound, nonce: [7; 32] }.encode().to_vec()
    };
    let replies = [
        HelloReply::Challenge([3; 32]),
        HelloReply::Accepted([9; 32]),
        HelloReply::Refused(HelloRefusal::Job),
        HelloReply::Refused(HelloRefusal::Ended),
    ];
    let endpoint = EndpointAddress {
        addresses: vec!["10.0.0.1:4711".parse(), "[fe80::1%3]:9".parse()]
            .into_iter()
            .flatten()
            .collect(),
        host: u128::MAX,
        pid: 7,
        note: vec![1, 2, 3],
    };
    let bytes = |endpoint| postcard::to_stdvec(endpoint).unwrap_or_default();
    let frames = [
        LinkFrame::Endpoints(2, vec![bytes(&endpoint), Vec::new()]),
        LinkFrame::Words { round: u64::MAX, step: 3, words: vec![(1, u64::MAX), (2, 0)] },
        LinkFrame::Alarm("RL0704".into(), 3, "it is gone".into()),
        LinkFrame::Gone(5, "it crashed".into()),
        LinkFrame::Wait { rank: 1, number: 9, words: Some([8; 8]), asks: true },
        LinkFrame::Left,
        LinkFrame::Ended(6, "its process 17 no longer exists".into()),
        LinkFrame::Call { call: 1 << 40, digest: 7 },
        LinkFrame::Stopped { rank: 3, witness: 2, number: 9 },
    ];
    let messages =
        [ShrinkMessage::Here(3, "rl1.0".into()), ShrinkMessage::List(vec!["a".into(), "b".into()])];
    vec![
        WireMessage {
            name: "listener: hello",
            samples: vec![hello(false), hello(true)],
            read: |bytes| Some(PeerHello::decode(sized(bytes)?).ok()?.encode().to_vec()),
        },
        WireMessage {
            name: "listener: reply",
            samples: replies.iter().map(|reply| reply.encode().to_vec()).collect(),
            read: |bytes| Some(HelloReply::decode(sized(bytes)?)?.encode().to_vec()),
        },
        WireMessage {
            name: "link: endpoint",
            samples: vec![bytes(&endpoint)],
            read: again::<EndpointAddress>,
        },
        WireMessage {
            name: "link: frame",
            samples: frames.iter().filter_map(|frame| postcard::to_stdvec(frame).ok()).collect(),
            read: again::<LinkFrame>,
        },
        WireMessage {
            name: "shrink: message",
            samples: messages
                .iter()
                .filter_map(|message| postcard::to_stdvec(message).ok())
                .collect(),
            read: again::<ShrinkMessage>,
        },
    ]
}
