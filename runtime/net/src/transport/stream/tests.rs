//! Real connections over loopback. One thread runs both sides, unless blocking is the question.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use roundelay_tests::SeededRandom;
use rustix::net::sockopt;

use super::header::{IOV_MAX, LONG, LONGEST, announced, header};
use super::*;
use crate::transport::fault::ConnectionFault;
use crate::transport::message::{self, ArrivedMessage, ContentKind, IoVec, IoVecMut};
use crate::transport::posted::{PostedReceiver, PostedSender};
use crate::transport::tcp::TcpSocket;

fn bytes(dice: &mut SeededRandom, len: usize) -> Vec<u8> {
    (0..len).map(|_| dice.below(256) as u8).collect()
}

/// A wait that fails instead of lasting.
struct Deadline(Instant);

impl Deadline {
    fn new() -> Self {
        Deadline(Instant::now())
    }

    fn wait(&self) {
        assert!(self.0.elapsed() < Duration::from_secs(60), "nothing comes");
        std::thread::yield_now();
    }
}

fn meta(len: usize) -> u64 {
    message::meta(0xfeed_beef, len, ContentKind::Slot)
}

/// Returns what goes over the wire before a content.
fn head(len: usize) -> Vec<u8> {
    let mut head = meta(len).to_le_bytes().to_vec();
    head.resize(header(len), 0);
    head
}

fn streams(to: SocketAddr) -> std::io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind(to)?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    Ok((near, listener.accept()?.0))
}

fn local() -> (TcpStream, TcpStream) {
    streams((Ipv4Addr::LOCALHOST, 0).into()).expect("loopback")
}

fn ends(stream: TcpStream) -> (StreamSender, StreamReceiver) {
    let connection = Arc::new(StreamConnection::new(TcpSocket::new(stream.into())));
    (StreamSender::new(connection.clone()), StreamReceiver::new(connection))
}

/// Returns ends of which the receiver reads `ahead` bytes ahead; 0 for none.
fn ends_ahead(stream: TcpStream, bytes: usize) -> (StreamSender, StreamReceiver) {
    let connection = Arc::new(StreamConnection::new(TcpSocket::new(stream.into())));
    (StreamSender::new(connection.clone()), StreamReceiver::reading_ahead(connection, bytes))
}

/// Cuts a length into random pieces, some of them empty.
fn cuts(dice: &mut SeededRandom, len: usize, longest: usize) -> Vec<std::ops::Range<usize>> {
    let (mut cuts, mut at) = (Vec::new(), 0);
    while at < len {
        let next = len.min(at + dice.below(longest + 1));
        cuts.push(at..next);
        at = next;
    }
    cuts
}

fn pieces(from: &[u8], cuts: &[std::ops::Range<usize>]) -> Vec<IoVec> {
    cuts.iter().map(|cut| IoVec { ptr: from[cut.clone()].as_ptr(), len: cut.len() }).collect()
}

fn places(to: &mut [u8], cuts: &[std::ops::Range<usize>]) -> Vec<IoVecMut> {
    let base = to.as_mut_ptr();
    let place = |cut: &std::ops::Range<usize>| IoVecMut {
        ptr: base.wrapping_add(cut.start),
        len: cut.len(),
    };
    cuts.iter().map(place).collect()
}

/// Returns all of some memory as one place.
fn whole(to: &mut [u8]) -> impl Iterator<Item = IoVecMut> + use<> {
    std::iter::once(IoVecMut { ptr: to.as_mut_ptr(), len: to.len() })
}

fn stage(sender: &mut StreamSender, content: &[u8]) {
    let place = sender.stage(4, content.len());
    assert!(place.addr().is_multiple_of(64));
    // SAFETY: there is room for as many bytes.
    unsafe { std::ptr::copy_nonoverlapping(content.as_ptr(), place, content.len()) };
    sender.post(meta(content.len()), content.len());
}

fn content(message: ArrivedMessage) -> &'static [u8] {
    assert!(message.content.addr().is_multiple_of(64));
    // SAFETY: as many bytes as were asked for; tests look before they consume.
    unsafe { std::slice::from_raw_parts(message.content, announced(message.meta)) }
}

/// One direction of a connection, moved step by step.
struct MessageFlow {
    dice: SeededRandom,
    contents: Vec<Vec<u8>>,
    posted: usize,
    got: usize,
    landing: Option<(Vec<u8>, Vec<std::ops::Range<usize>>)>,
}

impl MessageFlow {
    fn new(seed: u64, longest: usize) -> Self {
        let mut dice = SeededRandom(seed);
        let contents = (0..150)
            .map(|_| {
                let len = [0, 8, 100, longest][dice.below(4)];
                let len = dice.below(len + 1);
                bytes(&mut dice, len)
            })
            .collect();
        MessageFlow { dice, contents, posted: 0, got: 0, landing: None }
    }

    fn send(&mut self, sender: &mut StreamSender) {
        sender.flush();
        if self.posted == self.contents.len() || !sender.has_room(4) {
            return;
        }
        let content = &self.contents[self.posted];
        if self.dice.below(2) == 0 {
            stage(sender, content);
        } else {
            let cuts = cuts(&mut self.dice, content.len(), 1 + content.len() / 3);
            // SAFETY: the contents outlive the connection, unchanged.
            unsafe { sender.post_from(meta(content.len()), pieces(content, &cuts).into_iter()) };
            assert_eq!(sender.zero_copied(), sender.sent());
        }
        self.posted += 1;
    }

    fn receive(&mut self, receiver: &mut StreamReceiver) {
        if self.got == self.contents.len() {
            return;
        }
        let expected = &self.contents[self.got];
        let len = expected.len();
        if self.landing.is_none() && self.dice.below(3) == 0 {
            let cuts = cuts(&mut self.dice, len, 1 + len / 3);
            self.landing = Some((vec![0; len], cuts));
        }
        if let Some((to, cuts)) = &mut self.landing {
            // SAFETY: the places stay until all of the message is there.
            if unsafe { receiver.land(len, places(to, cuts).into_iter()) } {
                assert_eq!(receiver.message(0).meta, meta(len));
                assert!(to == expected, "message {} of {len} bytes landed wrongly", self.got);
                receiver.consume();
                self.landing = None;
                self.got += 1;
            }
            return;
        }
        let ahead = self.dice.below(3).min(self.contents.len() - 1 - self.got);
        let lens = self.contents[self.got..].iter().map(Vec::len);
        if lens.take(ahead + 1).enumerate().all(|(i, len)| receiver.is_ready(i as u64, len)) {
            for (i, expected) in self.contents[self.got..=self.got + ahead].iter().enumerate() {
                assert!(content(receiver.message(i as u64)) == expected, "message {}", self.got);
            }
            // Not always all of them: what is staged may land later.
            for _ in 0..=self.dice.below(ahead + 1) {
                receiver.consume();
                self.got += 1;
            }
        }
    }
}

#[test]
fn messages_arrive_in_order_and_whole_both_ways() {
    let mut seen = 0;
    for (case, to) in
        [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), SocketAddr::from((Ipv6Addr::LOCALHOST, 0))]
            .into_iter()
            .cycle()
            .take(12)
            .enumerate()
    {
        let (near, far) = match streams(to) {
            Ok(streams) => streams,
            Err(e) if to.is_ipv6() && e.kind() == ErrorKind::AddrNotAvailable => continue,
            Err(e) => panic!("{to}: {e}"),
        };
        if case >= 2 {
            // Whatever is longer than this goes in parts.
            for stream in [&near, &far] {
                sockopt::set_socket_send_buffer_size(stream, 1).expect("a small buffer");
            }
        }
        let ahead = [0, 0, 1, 50, 5000, 100_000][case % 6];
        let (mut near, mut far) = (ends(near), ends_ahead(far, ahead));
        let (mut there, mut back) =
            (MessageFlow::new(case as u64, 20_000), MessageFlow::new(99 + case as u64, 3_000));
        let deadline = Deadline::new();
        while there.got < there.contents.len() || back.got < back.contents.len() {
            there.send(&mut near.0);
            back.send(&mut far.0);
            there.receive(&mut far.1);
            back.receive(&mut near.1);
            deadline.wait();
        }
        assert!(near.0.flush() && far.0.flush());
        assert!(near.0.is_consumed(near.0.sent() - 1) && !near.0.is_consumed(near.0.sent()));
        assert_eq!(near.0.bytes(), far.1.bytes());
        assert_eq!(far.0.bytes(), near.1.bytes());
        seen += 1;
    }
    assert!(seen >= 4);
}

#[test]
fn what_is_on_the_wire_may_come_in_any_parts() {
    let mut dice = SeededRandom(5);
    for round in 0..40 {
        let (mut raw, far) = local();
        raw.set_nodelay(true).expect("no delay");
        let (_, mut receiver) = ends_ahead(far, [0, 20, 1000][round % 3]);
        let messages: Vec<_> =
            [0, 7, LONG, 14, LONG - 1, 28].map(|len| bytes(&mut dice, len)).into();
        let mut wire = Vec::new();
        for message in &messages {
            wire.extend(head(message.len()));
            wire.extend(message);
        }
        let parts = cuts(&mut dice, wire.len(), 1 + round / 2);
        let mut parts = parts.iter();
        for message in &messages {
            let (len, mut to) = (message.len(), vec![0; message.len()]);
            let cuts = cuts(&mut dice, len, 5);
            // First it is staged for a while, then it lands.
            let mut polls_before = dice.below(6);
            let deadline = Deadline::new();
            loop {
                if let Some(part) = parts.next() {
                    raw.write_all(&wire[part.clone()]).expect("to send");
                }
                if polls_before > 0 {
                    polls_before -= 1;
                    receiver.is_ready(0, len);
                // SAFETY: the places stay until all of the message is there.
                } else if unsafe { receiver.land(len, places(&mut to, &cuts).into_iter()) } {
                    break;
                }
                deadline.wait();
            }
            assert_eq!(&to, message);
            assert_eq!(receiver.message(0).meta, meta(len));
            assert!(receiver.is_ready(0, len));
            receiver.consume();
        }
    }
}

#[test]
fn a_message_is_its_word_and_its_bytes() {
    let (near, mut raw) = local();
    raw.set_nonblocking(true).expect("not to block");
    sockopt::set_socket_send_buffer_size(&near, 1).expect("a small buffer");
    let (mut sender, _receiver) = ends(near);
    let mut dice = SeededRandom(11);
    let contents: Vec<_> = [3_000_000, 0, 8, 100_000, 1].map(|len| bytes(&mut dice, len)).into();
    let mut expected = Vec::new();
    for (i, content) in contents.iter().enumerate() {
        expected.extend(head(content.len()));
        expected.extend(content);
        match i % 2 {
            0 => stage(&mut sender, content),
            _ => {
                let cuts = cuts(&mut dice, content.len(), 9_000);
                let pieces = pieces(content, &cuts);
                // SAFETY: the contents outlive the connection, unchanged.
                unsafe { sender.post_from(meta(content.len()), pieces.into_iter()) };
            }
        }
    }
    assert_eq!((sender.sent(), sender.zero_copied()), (5, 4));
    assert!(!sender.has_room(5) && sender.has_room(6), "the first fills the buffers");
    assert!(sender.has_backlog() && !sender.is_consumed(0));
    let (mut got, mut part) = (Vec::<u8>::new(), vec![0; 7_000]);
    let deadline = Deadline::new();
    while got.len() < expected.len() {
        sender.flush();
        match raw.read(&mut part[..1 + dice.below(6_999)]) {
            Ok(n) => got.extend(&part[..n]),
            Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
        }
        deadline.wait();
    }
    assert!(got == expected);
    assert!(sender.flush() && sender.has_room(1) && sender.is_consumed(4));
    assert!(!sender.has_backlog());
}

#[test]
fn another_length_is_shown_and_nothing_read_after_it() {
    // Nothing comes after the last message: a header that is longer than its own is not waited for.
    let pairs = [(40, 8), (40, 0), (40, 100), (40, LONG), (LONG, 40), (LONG, 2 * LONG), (0, LONG)];
    for ((sent, expected), lands) in pairs.into_iter().flat_map(|p| [(p, false), (p, true)]) {
        let (mut near, mut far) = {
            let (near, far) = local();
            (ends(near), ends(far))
        };
        for len in [3, sent] {
            stage(&mut near.0, &vec![1; len]);
        }
        let deadline = Deadline::new();
        while !far.1.is_ready(0, 3) {
            deadline.wait();
        }
        far.1.consume();
        let mut to = vec![0; expected];
        let mut poll = || match lands {
            // SAFETY: the place stays until the message is consumed.
            true => unsafe { far.1.land(expected, whole(&mut to)) },
            false => far.1.is_ready(0, expected),
        };
        while !poll() {
            deadline.wait();
        }
        assert_eq!(far.1.message(0).meta, meta(sent));
        let before = far.1.bytes();
        far.1.consume();
        assert!(!far.1.is_ready(0, sent));
        // SAFETY: there are no places.
        assert!(unsafe { !far.1.land(0, std::iter::empty()) });
        assert_eq!(far.1.bytes(), before);
    }
}

#[test]
fn a_staged_message_of_another_length_does_not_land() {
    let (near, far) = local();
    let ((mut sender, _keep), (_, mut receiver)) = (ends(near), ends(far));
    stage(&mut sender, &[7; 16]);
    let deadline = Deadline::new();
    while !receiver.is_ready(0, 16) {
        deadline.wait();
    }
    let mut to = [0; 8];
    // SAFETY: the place stays until the message is consumed.
    assert!(unsafe { receiver.land(8, whole(&mut to)) });
    assert_eq!((receiver.message(0).meta, to), (meta(16), [0; 8]));
}

#[test]
fn a_peer_that_goes_is_a_fault() {
    for lands in [false, true] {
        for (sent, resets) in [(0, false), (5, false), (8, false), (60, false), (60, true)] {
            let (mut raw, far) = local();
            let (mut sender, mut receiver) = ends(far);
            let message = [&meta(100).to_le_bytes()[..], &[1; 100]].concat();
            raw.write_all(&message[..sent]).expect("to send");
            let mut to = [0; 100];
            let mut poll = |receiver: &mut StreamReceiver| match lands {
                // SAFETY: the place stays as long as the receiver.
                true => unsafe { receiver.land(100, whole(&mut to)) },
                false => receiver.is_ready(0, 100),
            };
            let deadline = Deadline::new();
            while receiver.bytes() < sent as u64 {
                assert!(!poll(&mut receiver));
                deadline.wait();
            }
            assert_eq!(receiver.connection().fault(), None);
            if resets {
                sockopt::set_socket_linger(&raw, Some(Duration::ZERO)).expect("to linger");
            }
            drop(raw);
            while receiver.connection().fault().is_none() {
                assert!(!poll(&mut receiver));
                deadline.wait();
            }
            let reason = if resets { ConnectionFault::Reset } else { ConnectionFault::Closed };
            assert_eq!(receiver.connection().fault(), Some(&reason));
            assert!(!poll(&mut receiver));
            stage(&mut sender, &[1; 10]);
            assert!(!sender.flush() && !sender.is_consumed(0) && !sender.has_room(1));
        }
    }
}

#[test]
fn posting_to_a_peer_that_is_gone_is_a_fault() {
    let (near, far) = local();
    let (mut sender, mut receiver) = ends(near);
    drop(far);
    let deadline = Deadline::new();
    while receiver.connection().fault().is_none() {
        stage(&mut sender, &[1; 1000]);
        deadline.wait();
    }
    assert!(!receiver.is_ready(0, 0));
}

#[test]
fn no_connection_is_a_fault() {
    let file = std::fs::File::open("/dev/null").expect("a file");
    let (mut sender, mut receiver) = {
        let connection = Arc::new(StreamConnection::new(TcpSocket::new(
            std::os::fd::OwnedFd::from(file).into(),
        )));
        assert!(matches!(connection.fault(), Some(ConnectionFault::SetUp(_))));
        (StreamSender::new(connection.clone()), StreamReceiver::new(connection))
    };
    stage(&mut sender, &[1]);
    assert!(!sender.flush() && !receiver.is_ready(0, 0));
}

#[test]
fn full_buffers_both_ways_block_nobody() {
    let (near, far) = local();
    let far = std::thread::spawn(move || exchange(ends(far), 2, 1));
    exchange(ends(near), 1, 2);
    far.join().expect("the other side");
}

/// Posts more than the kernel takes before it reads anything.
fn exchange((mut sender, mut receiver): (StreamSender, StreamReceiver), mine: u8, theirs: u8) {
    const LEN: usize = 3 << 20;
    for _ in 0..8 {
        stage(&mut sender, &vec![mine; LEN]);
    }
    let (mut got, deadline) = (0, Deadline::new());
    while !sender.flush() || got < 8 {
        if got < 8 && receiver.is_ready(0, LEN) {
            assert!(content(receiver.message(0)).iter().all(|&byte| byte == theirs));
            receiver.consume();
            got += 1;
        }
        deadline.wait();
    }
    assert_eq!(receiver.connection().fault(), None);
}

#[test]
fn long_messages_and_many_pieces() {
    let mut dice = SeededRandom(21);
    // 64 MiB in a few pieces; many more pieces than one system call takes, differing at both sides.
    for (len, longest) in [(64 << 20, 9 << 20), (200_000, 60), (5_000, 1)] {
        let from: Vec<u8> = match len > 1 << 20 {
            true => (0..len).map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8).collect(),
            false => bytes(&mut dice, len),
        };
        let mut to = vec![0u8; len];
        let (ours, theirs) = (cuts(&mut dice, len, longest), cuts(&mut dice, len, longest));
        assert!(longest > 60 || ours.len().min(theirs.len()) > 3 * IOV_MAX);
        let (near, far) = local();
        let ((mut sender, _keep), (_, mut receiver)) = (ends(near), ends(far));
        // SAFETY: it stays until the end, unchanged.
        unsafe { sender.post_from(meta(len), pieces(&from, &ours).into_iter()) };
        stage(&mut sender, b"after");
        let deadline = Deadline::new();
        // SAFETY: the places stay until all of the message is there.
        while !unsafe { receiver.land(len, places(&mut to, &theirs).into_iter()) } {
            sender.flush();
            deadline.wait();
        }
        assert!(from == to);
        while !receiver.is_ready(1, 5) {
            sender.flush();
            deadline.wait();
        }
        receiver.consume();
        assert_eq!(content(receiver.message(0)), b"after");
        assert!(sender.is_consumed(1));
    }
}

#[test]
fn staged_memory_is_kept() {
    let (near, far) = local();
    let ((mut sender, _keep), (_, mut receiver)) = (ends(near), ends(far));
    let (mut places, mut contents) = (Vec::new(), Vec::new());
    for _ in 0..10 {
        places.push(sender.stage(2, 5_000).addr());
        sender.post(meta(5_000), 5_000);
        let deadline = Deadline::new();
        while !receiver.is_ready(0, 5_000) {
            sender.flush();
            deadline.wait();
        }
        contents.push(receiver.message(0).content.addr());
        receiver.consume();
    }
    for kept in [places, contents] {
        assert!(kept.iter().all(|&at| at == kept[0]));
    }
}

#[test]
fn pieces_without_room_are_a_fault() {
    let (near, far) = local();
    let ((mut sender, _keep), (_, mut receiver)) = (ends(near), ends(far));
    stage(&mut sender, &[1; 20]);
    let mut to = [0; 8];
    let deadline = Deadline::new();
    while receiver.connection().fault().is_none() {
        // SAFETY: the place stays; that it is too small is what is tested.
        assert!(unsafe { !receiver.land(20, whole(&mut to)) });
        deadline.wait();
    }
    assert_eq!(to, [1; 8]);
}

#[test]
fn the_header_is_the_one_of_shared_memory() {
    for len in [0, 1, 63, 64, LONGEST] {
        for kind in [ContentKind::Inline, ContentKind::Slot, ContentKind::ZeroCopy] {
            assert_eq!(announced(message::meta(u32::MAX, len, kind)), len);
        }
    }
}
