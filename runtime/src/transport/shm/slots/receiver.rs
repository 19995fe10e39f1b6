//! The receiving end of a connection.

use std::time::{Duration, Instant};

use super::super::cells::Taker;
use super::super::foreign;
use super::super::ways::Ways;
use super::*;
use crate::transport::tcp::PieceMut;

/// The receiving end of a connection.
pub(crate) struct Receiver {
    pub(super) end: End,
    /// Messages consumed since the job began.
    received: u64,
    /// The sender's process, once it is known that its memory can be read.
    reach: Option<i32>,
    from: u32,
    ways: Ways,
    /// None where ranks outnumber cores: two that are to copy at the same time would wait for each other.
    pub(super) taker: Option<Taker>,
    /// Since when a message has been coming through cells.
    began: Option<Instant>,
    /// Where such messages are put together that have no other place: the next message, the one after it, and so on.
    stage: Vec<Stage>,
    /// Whether the next message is where it is to be.
    landed: bool,
}

/// Memory for a message, and whether it is all there.
#[derive(Default)]
struct Stage {
    lines: Vec<Line>,
    whole: bool,
}

/// Aligned as kernels like it.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[allow(dead_code, reason = "only its place is used")] [u8; 64]);

impl Receiver {
    pub(crate) fn open(
        segment: &Arc<Segment>,
        from: u32,
        to: u32,
        channel: u32,
    ) -> Result<Self, Error> {
        let end = End::open(segment, from, to, channel)?;
        Ok(Receiver {
            end,
            received: 0,
            reach: None,
            from,
            ways: Ways::default(),
            taker: None,
            began: None,
            stage: Vec::new(),
            landed: false,
        })
    }

    /// Finds out whether the sender's memory can be read, and tells it. The sender has joined.
    pub(crate) fn try_reach(&mut self) {
        if self.reach.is_some() || self.taker.is_some() {
            return;
        }
        self.reach = foreign::reach(&self.end.segment, self.from);
        if !self.end.segment.layout().crowded {
            self.taker = Taker::open(&self.end.segment, self.end.cells).ok();
        }
        let cells = match (&self.taker, self.reach) {
            (Some(_), None) => Ways::CELLS,
            _ => 0,
        };
        self.wish(cells);
    }

    pub(super) fn wish(&self, cells: u64) {
        let wishes = cells << 1 | u64::from(self.reach.is_some());
        let word = self.end.word(WISHES);
        if word.load(Ordering::Relaxed) != wishes {
            word.store(wishes, Ordering::Relaxed);
        }
    }

    /// Notes how long it took to have a message of the sender's private memory.
    pub(crate) fn note(&mut self, cells: bool, len: usize, took: Duration) {
        if self.taker.is_some() && self.reach.is_some() {
            let wishes = self.ways.note(cells, len, took);
            self.wish(wishes);
        }
    }

    /// The sender's process, if its memory can be read.
    pub(crate) fn reach(&self) -> Option<i32> {
        self.reach
    }

    /// Bytes of memory that are kept to put messages together.
    pub(crate) fn kept(&self) -> u64 {
        self.stage.iter().map(|stage| size_of_val(&stage.lines[..]) as u64).sum()
    }

    /// Cells taken since the beginning: what grows is not stuck.
    #[inline]
    pub(crate) fn taken(&self) -> u64 {
        self.taker.as_ref().map_or(0, Taker::taken)
    }

    /// Whether the message has begun to come that follows the next `ahead` ones.
    #[inline]
    pub(crate) fn has_begun(&self, ahead: u64) -> bool {
        let message = self.received + ahead;
        self.end.word(Layout::header(message)).load(Ordering::Acquire) == message + 1
    }

    /// Whether the message is there that follows the next `ahead` ones; takes it out of cells if it is there.
    /// It is to have `len` bytes; if it has not, it is there at once.
    #[inline]
    pub(crate) fn is_ready(&mut self, ahead: u64, len: usize) -> bool {
        self.has_begun(ahead) && (!self.is_pushed(ahead, len) || self.put_together(ahead, len))
    }

    /// Whether a message of `len` bytes, which has begun to come, comes through cells.
    #[inline]
    fn is_pushed(&self, ahead: u64, len: usize) -> bool {
        let at = Layout::header(self.received + ahead);
        let meta = self.end.word(at + 8).load(Ordering::Relaxed);
        meta & 3 == Kind::Foreign as u64
            && meta as u32 >> 2 == len as u32
            && self.end.word(at + PUSHED).load(Ordering::Relaxed) != 0
    }

    fn put_together(&mut self, ahead: u64, len: usize) -> bool {
        let ahead = ahead as usize;
        if self.stage.len() <= ahead {
            self.stage.resize_with(ahead + 1, Stage::default);
        }
        let stage = &mut self.stage[ahead];
        if !stage.whole {
            let lines = len.div_ceil(size_of::<Line>());
            if stage.lines.len() < lines {
                stage.lines.resize(lines, Line([0; 64]));
            }
            let place = PieceMut { ptr: stage.lines.as_mut_ptr().cast(), len };
            // SAFETY: memory of this end, which nobody reads before it is whole.
            let whole = unsafe { self.take(len, std::iter::once(place)) };
            self.stage[ahead].whole = whole;
        }
        self.stage[ahead].whole
    }

    #[inline]
    fn staged(&self, ahead: u64) -> Option<*const u8> {
        let stage = self.stage.get(ahead as usize).filter(|stage| stage.whole)?;
        Some(stage.lines.as_ptr().cast())
    }

    /// Whether the next message, of `len` bytes, can go [straight](Self::land) to where it is to be; nothing while it
    /// has not begun to come.
    #[inline]
    pub(crate) fn lands(&self, len: usize) -> Option<bool> {
        self.has_begun(0).then(|| self.is_pushed(0, len))
    }

    /// Takes what is there of the next message to its places, after [`Self::lands`] said yes; says whether it is
    /// all there. Until then this is called again and again with the same places.
    ///
    /// # Safety
    ///
    /// They are writable and have `len` bytes together, and nobody else reads or writes them before the message
    /// is consumed.
    #[inline]
    pub(crate) unsafe fn land(
        &mut self,
        len: usize,
        places: impl Iterator<Item = PieceMut>,
    ) -> bool {
        // SAFETY: the caller promises it.
        self.landed = self.landed || unsafe { self.take(len, places) };
        self.landed
    }

    /// Whether the next message went straight to where it is to be.
    #[inline]
    pub(crate) fn has_landed(&self) -> bool {
        self.landed
    }

    /// # Safety
    ///
    /// As of [`Taker::take`].
    unsafe fn take(&mut self, len: usize, places: impl Iterator<Item = PieceMut>) -> bool {
        let began = *self.began.get_or_insert_with(Instant::now);
        let Some(taker) = &mut self.taker else { return false };
        // SAFETY: the caller promises it.
        let whole = unsafe { taker.take(len, places) };
        if whole {
            self.began = None;
            self.note(true, len, began.elapsed());
        }
        whole
    }

    /// The message that follows the next `ahead` ones, after [`Self::is_ready`] said yes.
    #[inline]
    pub(crate) fn message(&self, slots: u64, ahead: u64) -> Message {
        let message = self.received + ahead;
        let at = Layout::header(message);
        let meta = self.end.word(at + 8).load(Ordering::Relaxed);
        let content = if meta & 3 == Kind::Slot as u64 {
            self.end.slot(message % slots).cast_const()
        } else if let Some(content) = self.staged(ahead) {
            // Here it is like one that came in a slot.
            return Message { meta: meta & !3 | Kind::Slot as u64, content };
        } else {
            self.end.base.wrapping_add((at + HEADER_PAYLOAD) as usize).cast_const()
        };
        Message { meta, content }
    }

    /// Says that the message's content is no longer needed.
    #[inline]
    pub(crate) fn consume(&mut self) {
        self.landed = false;
        if let Some(first) = self.stage.first_mut() {
            first.whole = false;
            self.stage.rotate_left(1);
        }
        self.received += 1;
        self.end.consumed().store(self.received, Ordering::Release);
    }
}
