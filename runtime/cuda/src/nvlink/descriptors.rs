//! Descriptors from process to process.
//!
//! Every rank has a socket for messages, whose name comes from a random number, its *token*. Ranks exchange
//! the tokens where strangers cannot read them; a message carries the token of the rank that it is for,
//! and so proves that its sender belongs here. The name is a digest of the token, since everybody on the
//! machine can list names. The system says of which user the sender is. What proves nothing is dropped, with
//! the descriptors that came along.
//!
//! All ranks exchange messages at the same time, one from each to each, in rounds that are counted: a rank
//! may be a round ahead of another.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    bind, recvmsg, sendmsg_addr, socket_with, sockopt,
};
use sha2::{Digest, Sha256};

use roundelay_support::fork::give_up_in_children;

/// The head of every message: this, the receiver's token, the sender, the round; 8 bytes each.
const MARK: u64 = 0x726f_756e_6465_6c01;
const HEAD: usize = 32;
/// The most bytes of a message's content.
pub(crate) const CONTENT: usize = 1024;
/// The most descriptors of a message.
const DESCRIPTORS: usize = 4;
/// The time that a rank sleeps until it looks up.
const NAP: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// The reason for which messages cannot be exchanged.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DescriptorError {
    /// A rank's socket takes no message.
    #[error("rank {rank} cannot be written to: {source}")]
    Send { rank: usize, source: Errno },
    /// This rank's socket gives no message.
    #[error("no messages can be received: {0}")]
    Receive(#[source] Errno),
    /// A message came without its descriptors.
    #[error(
        "the descriptors of rank {0} did not fit: this process has too many open (`ulimit -n`)"
    )]
    Truncated(u32),
}

/// The message of one rank to another in a round.
#[derive(Debug)]
pub(crate) struct DescriptorMessage {
    from: u32,
    round: u64,
    /// Any bytes.
    pub(crate) content: Vec<u8>,
    /// Descriptors, good in this process.
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// A rank's socket for messages.
#[derive(Debug)]
pub(crate) struct DescriptorSocket {
    socket: OwnedFd,
    rank: u32,
    token: u64,
    round: u64,
    /// Messages of ranks that are a round ahead.
    early: Vec<DescriptorMessage>,
}

impl DescriptorSocket {
    /// Opens the socket of a rank.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub(crate) fn open(rank: u32) -> std::io::Result<Self> {
        let mut token = [0; 8];
        rustix::rand::getrandom(&mut token, rustix::rand::GetRandomFlags::empty())?;
        let token = u64::from_ne_bytes(token);
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        give_up_in_children(&socket);
        sockopt::set_socket_passcred(&socket, true)?;
        bind(&socket, &address(token)?)?;
        Ok(DescriptorSocket { socket, rank, token, round: 0, early: Vec::new() })
    }

    /// Returns the word that the other ranks need to write to this one, which is a secret of theirs.
    pub(crate) fn token(&self) -> u64 {
        self.token
    }

    /// Sends a message to every other rank of this host and waits for one from each; `tokens` are those of all ranks,
    /// none of ranks on other hosts. `go_on` is asked about once a millisecond, with a rank whose message is missing,
    /// whether to wait on.
    ///
    /// # Errors
    ///
    /// The error of `go_on`; or that a rank cannot be written to.
    pub(crate) fn exchange<E: From<DescriptorError>>(
        &mut self,
        tokens: &[Option<u64>],
        content: &[u8],
        descriptors: &[BorrowedFd<'_>],
        mut go_on: impl FnMut(u32) -> Result<(), E>,
    ) -> Result<Vec<Option<DescriptorMessage>>, E> {
        self.round += 1;
        let own = self.rank as usize;
        let mut messages: Vec<Option<DescriptorMessage>> = tokens.iter().map(|_| None).collect();
        let peers: Vec<(usize, u64)> = (0..)
            .zip(tokens)
            .filter_map(|(rank, token)| Some((rank, (*token)?)))
            .filter(|(rank, _)| *rank != own)
            .collect();
        let mut unsent = peers.clone();
        for message in std::mem::take(&mut self.early) {
            self.sort(message, &mut messages);
        }
        loop {
            let mut refused = None;
            unsent.retain(|&(rank, token)| {
                match self.send(token, content, descriptors) {
                    Ok(()) => return false,
                    // Its queue is full: later.
                    Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => {}
                    Err(source) => refused = Some(DescriptorError::Send { rank, source }),
                }
                true
            });
            if let Some(refused) = refused {
                return Err(refused.into());
            }
            while let Some(message) = self.receive().map_err(E::from)? {
                self.sort(message, &mut messages);
            }
            let missing = peers.iter().find(|(rank, _)| messages[*rank].is_none());
            let Some((awaited, _)) = missing.or(unsent.first()) else { return Ok(messages) };
            go_on(*awaited as u32)?;
            let mut ready = [PollFd::new(&self.socket, PollFlags::IN)];
            let _ = poll(&mut ready, Some(&NAP));
        }
    }

    fn sort(&mut self, message: DescriptorMessage, messages: &mut [Option<DescriptorMessage>]) {
        if message.round > self.round {
            self.early.push(message);
        } else if message.round == self.round
            && message.from != self.rank
            && let Some(place) = messages.get_mut(message.from as usize)
        {
            *place = Some(message);
        }
    }

    fn send(
        &self,
        token: u64,
        content: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), Errno> {
        let mut head = [0; HEAD];
        let words = [MARK, token, self.rank.into(), self.round];
        for (place, word) in head.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(Errno::TOOBIG);
        }
        if content.len() > CONTENT {
            return Err(Errno::MSGSIZE);
        }
        let parts = [IoSlice::new(&head), IoSlice::new(content)];
        let to = address(token)?;
        sendmsg_addr(&self.socket, &to, &parts, &mut control, SendFlags::NOSIGNAL).map(drop)
    }

    /// Returns the next message that is for this rank, if one has come.
    fn receive(&self) -> Result<Option<DescriptorMessage>, DescriptorError> {
        loop {
            let mut bytes = [0; HEAD + CONTENT];
            let mut space =
                [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS), ScmCredentials(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::CMSG_CLOEXEC;
            let mut parts = [IoSliceMut::new(&mut bytes)];
            let got = match recvmsg(&self.socket, &mut parts, &mut control, flags) {
                Ok(got) => got,
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(DescriptorError::Receive(errno)),
            };
            let (mut descriptors, mut user) = (Vec::new(), None);
            for message in control.drain() {
                match message {
                    RecvAncillaryMessage::ScmRights(fds) => descriptors.extend(fds),
                    RecvAncillaryMessage::ScmCredentials(of) => user = Some(of.uid),
                    _ => {}
                }
            }
            let Some((from, round)) = self.accept(bytes.get(..got.bytes).unwrap_or_default())
            else {
                continue;
            };
            if user != Some(rustix::process::geteuid()) {
                continue;
            }
            if got.flags.contains(ReturnFlags::CTRUNC) {
                return Err(DescriptorError::Truncated(from));
            }
            let content = bytes[HEAD..got.bytes].to_vec();
            return Ok(Some(DescriptorMessage { from, round, content, descriptors }));
        }
    }

    /// Returns sender and round of a message, if it is for this rank.
    fn accept(&self, bytes: &[u8]) -> Option<(u32, u64)> {
        let head = bytes.get(..HEAD)?;
        let mut words = head.chunks_exact(8).map(|w| w.try_into().map_or(0, u64::from_le_bytes));
        let (mark, token) = (words.next()?, words.next()?);
        let (from, round) = (u32::try_from(words.next()?).ok()?, words.next()?);
        (mark == MARK && token == self.token).then_some((from, round))
    }
}

/// Returns the address of the rank with that token: a name without a file, which goes with its socket.
fn address(token: u64) -> Result<SocketAddrUnix, Errno> {
    let digest = Sha256::digest(token.to_le_bytes());
    let hex: String = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    SocketAddrUnix::new_abstract_name(format!("roundelay-{hex}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Read, Seek, Write};
    use std::os::fd::AsFd;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    /// The variable in the environment of the second process that says it is one.
    const CHILD: &str = "ROUNDELAY_TEST_POST";

    /// The reason for which a test's messages did not come.
    #[derive(Debug, thiserror::Error)]
    enum ExchangeEnd {
        #[error("no message of rank {0}")]
        Late(u32),
        #[error(transparent)]
        Socket(#[from] DescriptorError),
    }

    fn within(seconds: u64) -> impl FnMut(u32) -> Result<(), ExchangeEnd> {
        let deadline = Instant::now() + Duration::from_secs(seconds);
        move |rank| match Instant::now() < deadline {
            true => Ok(()),
            false => Err(ExchangeEnd::Late(rank)),
        }
    }

    fn memory(text: &str) -> OwnedFd {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let fd = rustix::fs::memfd_create("message", flags).expect("a file in memory");
        let mut file = std::fs::File::from(fd);
        file.write_all(text.as_bytes()).expect("room");
        file.into()
    }

    fn text(fd: &OwnedFd) -> String {
        let mut file = std::fs::File::from(fd.try_clone().expect("a descriptor"));
        let mut text = String::new();
        file.rewind().expect("a file");
        file.read_to_string(&mut text).expect("text");
        text
    }

    /// Runs both ranks: three rounds, each with a descriptor, whose memory the other one reads and then
    /// writes.
    fn run_rounds(socket: &mut DescriptorSocket, tokens: &[Option<u64>], own: &str, other: &str) {
        let peer = 1 - socket.rank as usize;
        for round in 0..3 {
            let fd = memory(&format!("{own}{round}"));
            let content = format!("content of {own}{round}");
            let messages = socket
                .exchange(tokens, content.as_bytes(), &[fd.as_fd()], within(60))
                .expect("messages");
            let message = messages[peer].as_ref().expect("of the other");
            assert_eq!(message.content, format!("content of {other}{round}").as_bytes());
            assert_eq!(text(&message.descriptors[0]), format!("{other}{round}"));
            let mut theirs = std::fs::File::from(message.descriptors[0].try_clone().expect("fd"));
            theirs.write_all(b"!").expect("their memory");
            let messages = socket.exchange(tokens, b"written", &[], within(60)).expect("messages");
            assert!(messages[peer].as_ref().is_some_and(|l| l.descriptors.is_empty()));
            assert_eq!(text(&fd), format!("{own}{round}!"), "it is the same memory");
        }
    }

    /// The second process; on its own it does nothing.
    #[test]
    fn child() {
        let Ok(parent) = std::env::var(CHILD) else { return };
        let mut socket = DescriptorSocket::open(1).expect("a socket");
        // Apart from the lines of the test harness.
        let mut out = std::io::stdout();
        writeln!(out, "\ntoken {}", socket.token()).expect("a pipe");
        out.flush().expect("a pipe");
        let tokens = [parent.parse().ok(), Some(socket.token())];
        run_rounds(&mut socket, &tokens, "child", "parent");
    }

    #[test]
    fn two_processes_pass_descriptors() {
        let mut socket = DescriptorSocket::open(0).expect("a socket");
        let name = module_path!().split_once("::").expect("a crate").1;
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", &format!("{name}::child"), "--nocapture", "--test-threads=1"])
            .env(CHILD, socket.token().to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let token = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("token ")?.parse().ok())
            .expect("its token");
        let tokens = [socket.token(), token].map(Some);
        run_rounds(&mut socket, &tokens, "parent", "child");
        // Its last lines must not be written to a closed pipe.
        lines.by_ref().for_each(drop);
        assert!(child.wait().expect("its end").success());
    }

    #[test]
    fn strangers_are_not_heard() {
        let mut posts = [
            DescriptorSocket::open(0).expect("a socket"),
            DescriptorSocket::open(1).expect("a socket"),
        ];
        let tokens = [posts[0].token(), posts[1].token()].map(Some);
        // A sender that found the name, but has no token.
        let stranger =
            DescriptorSocket { token: 1, ..DescriptorSocket::open(0).expect("a socket") };
        let to = address(posts[1].token()).expect("a name");
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        for bytes in [&b"?"[..], &[0; HEAD], &[0; HEAD + 8]] {
            let parts = [IoSlice::new(bytes)];
            let mut control = SendAncillaryBuffer::new(&mut space);
            sendmsg_addr(&stranger.socket, &to, &parts, &mut control, SendFlags::empty())
                .expect("the name is known");
        }
        let [zero, one] = &mut posts;
        std::thread::scope(|scope| {
            scope.spawn(|| zero.exchange(&tokens, b"zero", &[], within(60)).expect("messages"));
            let messages = one.exchange(&tokens, b"one", &[], within(60)).expect("messages");
            assert_eq!(messages[0].as_ref().expect("a message").content, b"zero");
        });
    }

    #[test]
    fn a_rank_that_is_silent_is_named_and_one_that_is_gone_too() {
        let mut socket = DescriptorSocket::open(0).expect("a socket");
        let other = DescriptorSocket::open(1).expect("a socket");
        let tokens = [socket.token(), other.token()].map(Some);
        let error = socket.exchange(&tokens, b"", &[], within(0)).expect_err("no rank answers");
        assert_eq!(error.to_string(), "no message of rank 1");
        drop(other);
        let error = socket.exchange(&tokens, b"", &[], within(60)).expect_err("no socket is there");
        assert!(error.to_string().contains("rank 1 cannot be written to"), "{error}");
    }

    #[test]
    fn ranks_of_other_hosts_are_left_out() {
        let mut one = DescriptorSocket::open(1).expect("a socket");
        let messages = one.exchange(&[None, Some(one.token()), None], b"", &[], within(0));
        assert!(messages.expect("no rank to wait for").iter().all(Option::is_none));
    }
}
