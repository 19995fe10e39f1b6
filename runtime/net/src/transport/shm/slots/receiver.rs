//! The receiving end of a connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::end::{POSTED, PREFERENCES, PUSHED, SlotEnd, now, path_of};
use crate::transport::mapped::MappedReceiver;
use crate::transport::message::{ArrivedMessage, ContentKind};
use crate::transport::shm::cma;
use crate::transport::shm::copy_path::{CopyPath, CopyPaths};
use crate::transport::shm::layout::{HEADER_PAYLOAD, SegmentLayout};
use crate::transport::shm::pipe::PipeReceiver;
use crate::transport::shm::segment::ShmSegment;
use roundelay_support::backend::CacheLine;
use roundelay_support::error::Error;

/// The receiving end of a connection.
pub struct SlotReceiver {
    pub(super) end: SlotEnd,
    /// Messages consumed since the job began.
    received: u64,
    /// The sender's process, once it is known that its memory can be read.
    reach: Option<i32>,
    from: u32,
    paths: Box<CopyPaths>,
    /// The time at which the last message of private memory was consumed.
    last: u64,
    /// The end of the pipe; `None` where ranks outnumber cores: two that are to copy at the same time would
    /// wait for each other.
    pub(super) taker: Option<PipeReceiver>,
    /// The memory in which such messages are put together that have no other place: the next message, the one
    /// after it, and so on.
    stage: Vec<StagedMessage>,
    /// Bytes of the next message that were given part by part; whether it is where it is to be, or all of it
    /// in the pipe, to be read there.
    given: usize,
    landed: bool,
    whole: bool,
}

/// Memory for a message, and whether it is all there.
#[derive(Default)]
struct StagedMessage {
    lines: Vec<CacheLine>,
    whole: bool,
}

impl SlotReceiver {
    pub(crate) fn open(
        segment: &Arc<ShmSegment>,
        from: u32,
        to: u32,
        channel: u32,
    ) -> Result<Self, Error> {
        let end = SlotEnd::open(segment, (from, to), channel, from)?;
        Ok(SlotReceiver {
            end,
            received: 0,
            reach: None,
            from,
            last: 0,
            paths: Box::new(CopyPaths::new(false)),
            taker: None,
            stage: Vec::new(),
            given: 0,
            landed: false,
            whole: false,
        })
    }

    /// Publishes to the sender how this end asks for private memory.
    pub(super) fn publish_preferences(&self) {
        let paths = if self.taker.is_some() { self.paths.preferences() } else { 0 };
        let samples = u64::from(self.paths.samples()) << 32;
        let preferences = samples | paths << 1 | u64::from(self.reach.is_some());
        let word = self.end.word(PREFERENCES);
        if word.load(Ordering::Relaxed) != preferences {
            word.store(preferences, Ordering::Relaxed);
        }
    }

    /// Returns the position at which a message begins that comes through the pipe, and its bytes; it has
    /// begun to come.
    #[inline]
    fn pushed(&self, ahead: u64) -> Option<(u64, usize)> {
        self.taker.as_ref()?;
        let at = SegmentLayout::header(self.received + ahead);
        let meta = self.end.word(at + 8).load(Ordering::Relaxed);
        if meta & 3 != ContentKind::Cma as u64 {
            return None;
        }
        let (path, start) = path_of(self.end.word(at + PUSHED).load(Ordering::Relaxed));
        (path != CopyPath::Kernel).then_some((start, (meta as u32 >> 2) as usize))
    }

    /// Returns true if a message that comes through the pipe can be read: there, if it is the next one and
    /// fits.
    fn is_there(&mut self, ahead: u64, start: u64, len: usize) -> bool {
        let Some(taker) = &mut self.taker else { return false };
        if ahead > 0 || taker.place(start, len).is_none() {
            return (0..=ahead).all(|ahead| self.put_together(ahead));
        }
        self.whole = self.whole || taker.is_whole(start, len);
        self.whole
    }

    /// Takes a message to memory of this end if it comes through the pipe, and gives back its place there: of several
    /// that are wanted at the same time the last might have none.
    fn put_together(&mut self, ahead: u64) -> bool {
        let Some((start, len)) = self.pushed(ahead) else { return true };
        let at = ahead as usize;
        if self.stage.len() <= at {
            self.stage.resize_with(at + 1, StagedMessage::default);
        }
        let stage = &mut self.stage[at];
        if !stage.whole {
            let lines = len.div_ceil(size_of::<CacheLine>());
            if stage.lines.len() < lines {
                stage.lines.resize(lines, CacheLine::ZERO);
            }
            let to = stage.lines.as_mut_ptr().cast();
            // SAFETY: memory of this end, which is not read before it is whole.
            let whole = self.taker.as_mut().is_some_and(|t| unsafe { t.take(start, len, to) });
            self.stage[at].whole = whole;
            self.end.wake();
        }
        self.stage[at].whole
    }

    #[inline]
    fn staged(&self, ahead: u64) -> Option<*const u8> {
        let stage = self.stage.get(ahead as usize).filter(|stage| stage.whole)?;
        Some(stage.lines.as_ptr().cast())
    }

    #[inline]
    fn in_place(&self, ahead: u64) -> Option<*const u8> {
        let (start, len) = self.pushed(ahead)?;
        self.taker.as_ref()?.place(start, len)
    }

    /// Gives back the next message's place in the pipe, and notes how long it took if it could have come another path.
    fn note(&mut self) {
        let at = SegmentLayout::header(self.received);
        let meta = self.end.word(at + 8).load(Ordering::Relaxed);
        if meta & 3 != ContentKind::Cma as u64 {
            return;
        }
        let (path, start) = path_of(self.end.word(at + PUSHED).load(Ordering::Relaxed));
        let len = meta as u32 >> 2;
        if let Some(taker) = self.taker.as_mut().filter(|_| path != CopyPath::Kernel) {
            taker.release(start + u64::from(len));
        }
        let posted = self.end.word(at + POSTED).load(Ordering::Relaxed);
        // A sender may be ahead: its message waits while this end is busy with the one before.
        let (now, began) = (now(), posted.max(self.last));
        self.last = now;
        self.paths.note(path, len as usize, Duration::from_nanos(now.saturating_sub(began)));
        self.publish_preferences();
    }
}

impl MappedReceiver for SlotReceiver {
    fn try_reach(&mut self) {
        if self.reach.is_some() || self.taker.is_some() {
            return;
        }
        let (_, pid) = self.end.segment.state(self.from);
        let sign = self.end.segment.sign(self.from);
        self.reach = cma::can_read(pid, sign).then_some(pid);
        if !self.end.segment.layout().crowded {
            self.taker = PipeReceiver::new(&self.end.segment, self.end.pipe).ok();
        }
        *self.paths = CopyPaths::new(self.reach.is_some());
        self.publish_preferences();
    }

    fn reach(&self) -> Option<i32> {
        self.reach
    }

    fn lose_reach(&mut self) {
        self.reach = None;
        *self.paths = CopyPaths::new(false);
        self.publish_preferences();
    }

    fn received(&self) -> u64 {
        self.received
    }

    fn kept(&self) -> u64 {
        self.stage.iter().map(|stage| size_of_val(&stage.lines[..]) as u64).sum()
    }

    #[inline]
    fn taken(&self) -> u64 {
        self.taker.as_ref().map_or(0, PipeReceiver::taken)
    }

    #[inline]
    fn has_begun(&self, ahead: u64) -> bool {
        let message = self.received + ahead;
        self.end.word(SegmentLayout::header(message)).load(Ordering::Acquire) == message + 1
    }

    #[inline]
    fn is_ready(&mut self, ahead: u64, len: usize) -> bool {
        self.has_begun(ahead)
            && match self.pushed(ahead) {
                Some((start, pushed)) if pushed == len => self.is_there(ahead, start, len),
                _ => true,
            }
    }

    #[inline]
    fn lands(&self, meta: u64) -> Option<bool> {
        self.has_begun(0).then(|| {
            let came =
                self.end.word(SegmentLayout::header(self.received) + 8).load(Ordering::Relaxed);
            (came ^ meta) >> 2 == 0 && self.pushed(0).is_some()
        })
    }

    #[inline]
    fn part(&mut self) -> Option<(*const u8, usize, usize)> {
        let (start, len) = self.pushed(0)?;
        let taker = self.taker.as_mut()?;
        taker.release(start + self.given as u64);
        self.end.wake();
        let part = taker.part(start, len);
        match part {
            Some((_, before, bytes)) => self.given = before + bytes,
            None => self.landed = self.given == len,
        }
        part
    }

    #[inline]
    fn has_landed(&self) -> bool {
        self.landed
    }

    #[inline]
    fn message(&self, slots: u64, ahead: u64) -> ArrivedMessage {
        let message = self.received + ahead;
        let at = SegmentLayout::header(message);
        let meta = self.end.word(at + 8).load(Ordering::Relaxed);
        let content = if meta & 3 == ContentKind::Slot as u64 {
            self.end.slot(message % slots).cast_const()
        } else if let Some(content) = self.staged(ahead).or_else(|| self.in_place(ahead)) {
            // Here it is like one that came in a slot.
            return ArrivedMessage { meta: meta & !3 | ContentKind::Slot as u64, content };
        } else {
            self.end.base.wrapping_add((at + HEADER_PAYLOAD) as usize).cast_const()
        };
        ArrivedMessage { meta, content }
    }

    #[inline]
    fn consume(&mut self) {
        (self.given, self.landed, self.whole) = (0, false, false);
        if self.taker.is_some() {
            self.note();
        }
        if let Some(first) = self.stage.first_mut() {
            first.whole = false;
            self.stage.rotate_left(1);
        }
        self.received += 1;
        self.end.consumed().store(self.received, Ordering::Release);
        self.end.wake();
    }
}
