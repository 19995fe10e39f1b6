//! Messages over a stream of bytes: the data path of a posted link.
//!
//! `net` connects, checks the peer's identity and watches for failures; this folder begins where a connection exists.
//! It carries the messages of one (peer, channel) in both directions: a [`StreamSender`] and a [`StreamReceiver`] share
//! its [`StreamConnection`], and belong to one thread.
//!
//! | file, in reading order | holds |
//! |---|---|
//! | `byte_stream` | the trait of what moves the bytes: a socket (`transport/tcp`) or devices (`transport/rdma`) |
//! | `handshake` | how two ends of a byte stream meet |
//! | `connection`, `resume` | one carrier, or one after the other where there are several paths ([`ResumableStream`]) |
//! | `header`, `ring` | the header of a message, and the memory that messages are staged in |
//! | `sender`, `receiver` | the two ends |
//!
//! "The kernel" stands below for any of the byte streams.
//!
//! **On the wire** a message is eight bytes, `meta` (little-endian; the same word as in shared memory: digest of the
//! call, length in bytes, kind), and its content. Both sides execute a plan, so the receiver has the length of the next
//! message before it comes, and reads header and content with one system call to their destinations. The length in the
//! header only confirms it. If it differs, the receiver shows the odd `meta` and reads nothing more; its caller reports
//! the mismatch.
//!
//! From `LONG` bytes on 56 bytes of nothing follow the word. The kernel copies content behind the header into pages
//! that begin with it, and where the target lies 1 to 15 bytes further in its page than the source does in its own,
//! `rep movsb` of AMD's processors copies 2.6 GB/s, else 54 (docs/performance.md). Content that begins with a line of
//! memory is copied to one.
//!
//! **Sending.** Content is either *staged*: written to `StreamSender::stage`, right behind the place of its header, and
//! kept here until the kernel has it; or it is sent from where it lies (`StreamSender::post_from`), and must stay as it
//! is until `StreamSender::is_consumed`. Posting writes at once. What the kernel does not take waits, and goes out with
//! what is posted after it. *Consumed* here means that the kernel has taken all of a message, not that the peer has
//! read it; or, where a device reads it from where it lies, that it was delivered.
//!
//! **Receiving.** A message is either staged (`StreamReceiver::is_ready`, `StreamReceiver::message`), as many of them
//! as are asked for, or *landed*: read to its destination (`StreamReceiver::land`).
//!
//! **Progress** happens in calls only. Every call does what the kernel lets it do at once, at most one read, and
//! returns. A rank that waits must go on calling `StreamSender::flush` on every end with `StreamSender::has_backlog`: a
//! peer may be waiting for those bytes.
//!
//! **Faults.** The first read or write that fails, and the end of the stream, are recorded in the connection
//! ([`StreamConnection::fault`]). After that nothing is ever ready, consumed or sent.
//!
//! `unsafe` is here for one reason: system calls read and write memory of a plan, which is known by address and length.

mod byte_stream;
mod connection;
mod handshake;
mod header;
mod receiver;
mod resume;
mod ring;
mod sender;
#[cfg(test)]
mod tests;

pub(crate) use byte_stream::ByteStream;
pub use connection::StreamConnection;
pub(crate) use handshake::{PendingHandshake, StreamHandshake, handshake};
pub use receiver::StreamReceiver;
pub(crate) use resume::DialResult;
pub(crate) use resume::PeerDialer;
pub use resume::ResumableStream;
pub use sender::StreamSender;
