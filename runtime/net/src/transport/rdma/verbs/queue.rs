//! Reliable connections: connect, write, poll.

use std::fmt;
use std::io;
use std::ptr;
use std::sync::Arc;

use ibverbs_sys as ffi;
use serde::{Deserialize, Serialize};

use super::check::{check_code, check_pointer};
use super::device::{DeviceGid, VerbsDevice};
use super::memory::{MemorySpan, OwnedRegion};
use crate::tunables::{RDMA_ACK_RETRIES, RDMA_ACK_TIMEOUT_EXPONENT, RDMA_INLINE_BYTES};

/// The address that a peer needs to connect to a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QueueAddress {
    number: u32,
    sequence: u32,
    lid: u16,
    mtu: u32,
    gid: [u8; 16],
    network: Option<[u8; 16]>,
}

impl QueueAddress {
    /// Returns its network, where that is known.
    pub(crate) fn network(&self) -> Option<[u8; 16]> {
        self.network
    }

    /// Returns the part of the address that no other queue has.
    pub(crate) fn identity(&self) -> ([u8; 16], u16, u32) {
        (self.gid, self.lid, self.number)
    }
}

impl fmt::Display for QueueAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", DeviceGid { index: 0, routed: true, bytes: self.gid, network: None })
    }
}

/// The result of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkCompletion {
    /// A write with this number is in the peer's memory, or what was read is here.
    Written(u64),
    /// The peer wrote `len` bytes, with this immediate value.
    Arrived { immediate: u32, len: u32 },
    /// Work failed, and with it the queue: a write, or else a receive.
    Failed { write: bool, status: u32 },
}

/// One write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriteRequest<'a> {
    /// The number that comes back in [`WorkCompletion::Written`].
    pub(crate) id: u64,
    /// The memory that is written.
    pub(crate) from: MemorySpan<'a>,
    /// Address and key of the peer's memory.
    pub(crate) to: u64,
    pub(crate) to_key: u32,
    /// The word that the peer's completion carries.
    pub(crate) immediate: u32,
}

/// One access to memory of the peer, in which its process takes no part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AccessRequest<'a> {
    /// The number that comes back in [`WorkCompletion::Written`].
    pub id: u64,
    /// True if it brings bytes here, else it takes them there.
    pub reads: bool,
    /// True if it waits for reads before it.
    pub(crate) fenced: bool,
    /// The memory here.
    pub here: MemorySpan<'a>,
    /// Address and key of the peer's memory.
    pub there: u64,
    pub key: u32,
}

/// A reliable connection and the queue of its completions.
pub(crate) struct QueuePair {
    pair: *mut ffi::ibv_qp,
    completions: *mut ffi::ibv_cq,
    inline: u32,
    sequence: u32,
    gid: DeviceGid,
    device: Arc<VerbsDevice>,
    /// The region for which receives were posted, and whose memory writes name.
    _region: Arc<OwnedRegion>,
}

// SAFETY: a queue belongs to one thread at a time, and the library allows it to move.
unsafe impl Send for QueuePair {}

/// The number of receives; no write has it.
const RECEIVE: u64 = u64::MAX;

impl QueuePair {
    /// Makes a queue in its first state, for `depth` writes and as many receives at once.
    pub(crate) fn new(
        device: &Arc<VerbsDevice>,
        gid: DeviceGid,
        region: &Arc<OwnedRegion>,
        depth: u32,
        sequence: u32,
    ) -> io::Result<QueuePair> {
        let entries = 2 * depth as i32;
        // SAFETY: an open context.
        let completions = check_pointer(unsafe {
            ffi::ibv_create_cq(device.context, entries, ptr::null_mut(), ptr::null_mut(), 0)
        })?;
        let mut queue = QueuePair {
            pair: ptr::null_mut(),
            completions,
            inline: RDMA_INLINE_BYTES,
            sequence: sequence & 0xff_ffff,
            gid,
            device: device.clone(),
            _region: region.clone(),
        };
        let mut init = ffi::ibv_qp_init_attr {
            send_cq: completions,
            recv_cq: completions,
            qp_type: ffi::ibv_qp_type::IBV_QPT_RC,
            ..Default::default()
        };
        init.cap.max_send_wr = depth;
        init.cap.max_recv_wr = depth;
        init.cap.max_send_sge = 1;
        init.cap.max_recv_sge = 1;
        init.cap.max_inline_data = RDMA_INLINE_BYTES;
        // SAFETY: domain and completion queue are of one device, and outlive the pair.
        queue.pair = match check_pointer(unsafe { ffi::ibv_create_qp(device.domain, &mut init) }) {
            Ok(pair) => pair,
            Err(_) => {
                (init.cap.max_inline_data, queue.inline) = (0, 0);
                // SAFETY: as above.
                check_pointer(unsafe { ffi::ibv_create_qp(device.domain, &mut init) })?
            }
        };
        let mut attr = ffi::ibv_qp_attr {
            qp_state: ffi::ibv_qp_state::IBV_QPS_INIT,
            port_num: 1,
            qp_access_flags: ffi::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0
                | ffi::ibv_access_flags::IBV_ACCESS_REMOTE_READ.0,
            ..Default::default()
        };
        queue.modify(
            &mut attr,
            &[
                ffi::ibv_qp_attr_mask::IBV_QP_STATE,
                ffi::ibv_qp_attr_mask::IBV_QP_PKEY_INDEX,
                ffi::ibv_qp_attr_mask::IBV_QP_PORT,
                ffi::ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS,
            ],
        )?;
        Ok(queue)
    }

    fn modify(
        &self,
        attr: &mut ffi::ibv_qp_attr,
        mask: &[ffi::ibv_qp_attr_mask],
    ) -> io::Result<()> {
        let mask = mask.iter().fold(0, |all, m| all | m.0);
        // SAFETY: a pair that lives, and a structure of the library's.
        check_code(unsafe { ffi::ibv_modify_qp(self.pair, attr, mask as i32) })
    }

    /// Returns the address that the peer needs.
    pub(crate) fn address(&self) -> QueueAddress {
        // SAFETY: a pair that lives.
        let number = unsafe { (*self.pair).qp_num };
        let ffi::ibv_port_attr { lid, active_mtu: mtu, .. } = self.device.port;
        let DeviceGid { bytes: gid, network, .. } = self.gid;
        QueueAddress { number, sequence: self.sequence, lid, mtu, gid, network }
    }

    /// Makes the connection; receives must be posted before the peer writes.
    pub(crate) fn connect(&self, peer: &QueueAddress) -> io::Result<()> {
        use ffi::ibv_qp_attr_mask as Mask;
        let mut attr = ffi::ibv_qp_attr {
            qp_state: ffi::ibv_qp_state::IBV_QPS_RTR,
            path_mtu: self.device.port.active_mtu.min(peer.mtu),
            dest_qp_num: peer.number,
            rq_psn: peer.sequence,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 12,
            ..Default::default()
        };
        attr.ah_attr.port_num = 1;
        attr.ah_attr.dlid = peer.lid;
        attr.ah_attr.is_global = 1;
        attr.ah_attr.grh.dgid.raw = peer.gid;
        attr.ah_attr.grh.sgid_index = self.gid.index as u8;
        attr.ah_attr.grh.hop_limit = 64;
        self.modify(
            &mut attr,
            &[
                Mask::IBV_QP_STATE,
                Mask::IBV_QP_AV,
                Mask::IBV_QP_PATH_MTU,
                Mask::IBV_QP_DEST_QPN,
                Mask::IBV_QP_RQ_PSN,
                Mask::IBV_QP_MAX_DEST_RD_ATOMIC,
                Mask::IBV_QP_MIN_RNR_TIMER,
            ],
        )?;
        let mut attr = ffi::ibv_qp_attr {
            qp_state: ffi::ibv_qp_state::IBV_QPS_RTS,
            timeout: RDMA_ACK_TIMEOUT_EXPONENT,
            retry_cnt: RDMA_ACK_RETRIES,
            // For ever: a receiver that is late is the watchdog's business.
            rnr_retry: 7,
            sq_psn: self.sequence,
            max_rd_atomic: 1,
            ..Default::default()
        };
        self.modify(
            &mut attr,
            &[
                Mask::IBV_QP_STATE,
                Mask::IBV_QP_TIMEOUT,
                Mask::IBV_QP_RETRY_CNT,
                Mask::IBV_QP_RNR_RETRY,
                Mask::IBV_QP_SQ_PSN,
                Mask::IBV_QP_MAX_QP_RD_ATOMIC,
            ],
        )
    }

    /// Ends the connection: all its work fails.
    pub(crate) fn end(&self) {
        let mut attr =
            ffi::ibv_qp_attr { qp_state: ffi::ibv_qp_state::IBV_QPS_ERR, ..Default::default() };
        // A pair that cannot even be ended has ended.
        let _ = self.modify(&mut attr, &[ffi::ibv_qp_attr_mask::IBV_QP_STATE]);
    }

    /// Posts a receive, which the peer's next write with an immediate value takes.
    pub(crate) fn receive(&self) -> io::Result<()> {
        let mut work = ffi::ibv_recv_wr { wr_id: RECEIVE, ..Default::default() };
        let mut bad = ptr::null_mut();
        // SAFETY: a pair that lives; the request has no memory, and ends with this call.
        unsafe {
            let post = (*(*self.pair).context).ops.post_recv;
            let Some(post) = post else { return Err(io::ErrorKind::Unsupported.into()) };
            check_code(post(self.pair, &mut work, &mut bad))
        }
    }

    /// Posts a write. Its memory stays as it is until its completion.
    pub(crate) fn write(&self, write: &WriteRequest<'_>) -> io::Result<()> {
        let MemorySpan { start, len, key, .. } = write.from;
        let mut piece = ffi::ibv_sge { addr: start as u64, length: len, lkey: key };
        let inline = match len <= self.inline {
            true => ffi::ibv_send_flags::IBV_SEND_INLINE.0,
            false => 0,
        };
        let mut work = ffi::ibv_send_wr {
            wr_id: write.id,
            sg_list: &mut piece,
            num_sge: i32::from(len > 0),
            opcode: ffi::ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM,
            send_flags: ffi::ibv_send_flags::IBV_SEND_SIGNALED.0 | inline,
            ..Default::default()
        };
        work.__bindgen_anon_1.imm_data = write.immediate.to_be();
        work.wr.rdma.remote_addr = write.to;
        work.wr.rdma.rkey = write.to_key;
        self.post(&mut work)
    }

    /// Posts an access. Nothing else uses its memory here until its completion.
    pub(crate) fn access(&self, access: &AccessRequest<'_>) -> io::Result<()> {
        let MemorySpan { start, len, key, .. } = access.here;
        let mut piece = ffi::ibv_sge { addr: start as u64, length: len, lkey: key };
        let (opcode, inline) = match access.reads {
            true => (ffi::ibv_wr_opcode::IBV_WR_RDMA_READ, 0),
            false if len <= self.inline => {
                let inline = ffi::ibv_send_flags::IBV_SEND_INLINE.0;
                (ffi::ibv_wr_opcode::IBV_WR_RDMA_WRITE, inline)
            }
            false => (ffi::ibv_wr_opcode::IBV_WR_RDMA_WRITE, 0),
        };
        let fence = if access.fenced { ffi::ibv_send_flags::IBV_SEND_FENCE.0 } else { 0 };
        let mut work = ffi::ibv_send_wr {
            wr_id: access.id,
            sg_list: &mut piece,
            num_sge: i32::from(len > 0),
            opcode,
            send_flags: ffi::ibv_send_flags::IBV_SEND_SIGNALED.0 | inline | fence,
            ..Default::default()
        };
        work.wr.rdma.remote_addr = access.there;
        work.wr.rdma.rkey = access.key;
        self.post(&mut work)
    }

    fn post(&self, work: &mut ffi::ibv_send_wr) -> io::Result<()> {
        let mut bad = ptr::null_mut();
        // SAFETY: a pair that lives; the library copies the request. Its memory is there now; the caller
        // keeps it until the completion, and a device refuses what is no longer registered.
        unsafe {
            let post = (*(*self.pair).context).ops.post_send;
            let Some(post) = post else { return Err(io::ErrorKind::Unsupported.into()) };
            check_code(post(self.pair, work, &mut bad))
        }
    }

    /// Calls `each` for what was completed since the last look, at most 16 at once.
    pub(crate) fn poll(&self, mut each: impl FnMut(WorkCompletion)) -> usize {
        let mut done = [const { std::mem::MaybeUninit::<ffi::ibv_wc>::uninit() }; 16];
        // SAFETY: the queue lives; the library fills in as many entries as it says.
        let count = unsafe {
            match (*(*self.completions).context).ops.poll_cq {
                Some(poll) => poll(self.completions, 16, done.as_mut_ptr().cast()),
                None => 0,
            }
        };
        let count = usize::try_from(count).unwrap_or(0);
        for entry in &done[..count] {
            // SAFETY: filled in by the library.
            let entry = unsafe { entry.assume_init_ref() };
            each(match entry.error() {
                Some((status, _)) => {
                    WorkCompletion::Failed { write: entry.wr_id() != RECEIVE, status }
                }
                None if entry.opcode() == ffi::ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM => {
                    let immediate = u32::from_be(entry.imm_data);
                    WorkCompletion::Arrived { immediate, len: entry.len() as u32 }
                }
                None => WorkCompletion::Written(entry.wr_id()),
            });
        }
        count
    }

    /// Gives it a local address that the device does not have: connecting it fails.
    #[cfg(test)]
    pub(crate) fn misplace(&mut self) {
        self.gid.index = 255;
    }

    /// Returns the device.
    pub(crate) fn device(&self) -> &Arc<VerbsDevice> {
        &self.device
    }

    /// Returns the address that it speaks as.
    pub(crate) fn gid(&self) -> DeviceGid {
        self.gid
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: made by the library, freed once, the pair before its completions.
        unsafe {
            if !self.pair.is_null() {
                ffi::ibv_destroy_qp(self.pair);
            }
            ffi::ibv_destroy_cq(self.completions);
        }
    }
}
