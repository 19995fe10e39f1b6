//! The few calls of libibverbs that are needed: open, register, connect, write, poll.
//!
//! The published `ibverbs` crate sends and receives, but neither writes into a peer's memory nor registers
//! memory that it did not allocate, and keeps its handles to itself. So the objects are made here, over
//! `ibverbs-sys`; `ibverbs` says which devices there are. Everything `unsafe` about verbs is in this
//! file: handles are freed in the order that the library asks for (queue, registration, device), and work
//! names memory of a [`Region`] only, which lives as long as its queues.

use std::ffi::CStr;
use std::io;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use ibverbs_sys as ffi;
use serde::{Deserialize, Serialize};

/// Which GID of a device is used, counted as the device does; `None` picks the one of RoCE v2 over IPv4,
/// else the first that is not 0.
pub(crate) type GidIndex = Option<u32>;

/// An opened port 1 of a device, with a protection domain.
pub(super) struct Device {
    context: *mut ffi::ibv_context,
    domain: *mut ffi::ibv_pd,
    pub(super) name: String,
    lid: u16,
    mtu: u32,
    gid: [u8; 16],
    gid_index: u8,
}

// SAFETY: libibverbs allows calls on a context and a domain from any thread.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

fn errno(code: i32) -> io::Result<()> {
    match code {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// A pointer that the library returned, or the reason why it returned none.
fn handle<T>(pointer: *mut T) -> io::Result<*mut T> {
    match pointer.is_null() {
        true => Err(io::Error::last_os_error()),
        false => Ok(pointer),
    }
}

impl Device {
    /// Opens every device with an active port 1, in the library's order.
    pub(super) fn all(gid: GidIndex) -> io::Result<Vec<Arc<Device>>> {
        let mut count = 0;
        // SAFETY: the library fills in the count; the list is freed below, after its last use.
        let list = handle(unsafe { ffi::ibv_get_device_list(&mut count) })?;
        let mut devices = Vec::new();
        let mut trouble = None;
        for at in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: the list has `count` entries.
            match unsafe { Device::open(*list.add(at), gid) } {
                Ok(Some(device)) => devices.push(Arc::new(device)),
                Ok(None) => {}
                Err(error) => trouble = Some(error),
            }
        }
        // SAFETY: the list of above; open contexts stay valid.
        unsafe { ffi::ibv_free_device_list(list) };
        match (devices.is_empty(), trouble) {
            (true, Some(error)) => Err(error),
            _ => Ok(devices),
        }
    }

    /// # Safety
    ///
    /// The device is in a list that was not freed.
    unsafe fn open(device: *mut ffi::ibv_device, gid: GidIndex) -> io::Result<Option<Device>> {
        // SAFETY: promised by the caller; the name is a string of the library.
        let name = unsafe { CStr::from_ptr(ffi::ibv_get_device_name(device)) };
        let mut opened = Device {
            // SAFETY: promised by the caller.
            context: handle(unsafe { ffi::ibv_open_device(device) })?,
            domain: ptr::null_mut(),
            name: name.to_string_lossy().into_owned(),
            lid: 0,
            mtu: 0,
            gid: [0; 16],
            gid_index: 0,
        };
        let mut port = ffi::ibv_port_attr::default();
        // SAFETY: the library knows the old form of the structure alone and fills in its length of it.
        errno(unsafe { ffi::ibv_query_port(opened.context, 1, (&raw mut port).cast()) })?;
        if port.state != ffi::ibv_port_state::IBV_PORT_ACTIVE {
            return Ok(None);
        }
        (opened.lid, opened.mtu) = (port.lid, port.active_mtu);
        let Some((index, bytes)) = opened.pick(gid) else { return Ok(None) };
        (opened.gid_index, opened.gid) = (index as u8, bytes);
        // SAFETY: an open context.
        opened.domain = handle(unsafe { ffi::ibv_alloc_pd(opened.context) })?;
        Ok(Some(opened))
    }

    /// The GID to use, and its index.
    fn pick(&self, wanted: GidIndex) -> Option<(u32, [u8; 16])> {
        let size = size_of::<ffi::ibv_gid_entry>();
        let mut table = vec![ffi::ibv_gid_entry::default(); 64];
        // SAFETY: the table has as many entries as it says, of the size it says.
        let filled = unsafe {
            ffi::_ibv_query_gid_table(self.context, table.as_mut_ptr(), table.len(), 0, size)
        };
        table.truncate(usize::try_from(filled).unwrap_or(0));
        // SAFETY: both fields of the union are plain bytes.
        let raw = |entry: &ffi::ibv_gid_entry| unsafe { entry.gid.raw };
        let usable = |entry: &&ffi::ibv_gid_entry| entry.port_num == 1 && raw(entry) != [0; 16];
        let v4 = |entry: &&ffi::ibv_gid_entry| {
            entry.gid_type == ffi::IBV_GID_TYPE_ROCE_V2
                && raw(entry)[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]
        };
        let entry = match wanted {
            Some(index) => table.iter().filter(usable).find(|e| e.gid_index == index),
            None => {
                let best = table.iter().filter(usable).find(v4);
                best.or_else(|| table.iter().find(usable))
            }
        };
        entry.map(|e| (e.gid_index, raw(e)))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: made by the library, freed once, after all that was made from them.
        unsafe {
            if !self.domain.is_null() {
                ffi::ibv_dealloc_pd(self.domain);
            }
            ffi::ibv_close_device(self.context);
        }
    }
}

/// Memory of this process that devices read, and peers write.
pub(super) struct Region {
    bytes: Box<[u64]>,
    registrations: Vec<Registration>,
}

struct Registration {
    handle: *mut ffi::ibv_mr,
    _device: Arc<Device>,
}

// SAFETY: a registration is a handle of the library, which allows its use from any thread.
unsafe impl Send for Registration {}
// SAFETY: as above.
unsafe impl Sync for Registration {}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: made by the library, freed once, before its device.
        unsafe { ffi::ibv_dereg_mr(self.handle) };
    }
}

impl Region {
    /// Zeroed memory, registered with each of some devices.
    pub(super) fn new(len: usize, devices: &[Arc<Device>]) -> io::Result<Region> {
        let mut bytes = vec![0u64; len.div_ceil(8)].into_boxed_slice();
        let flags = ffi::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0
            | ffi::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
        let mut registrations = Vec::new();
        for device in devices {
            let (start, len) = (bytes.as_mut_ptr().cast(), bytes.len() * 8);
            // SAFETY: memory that the region owns; it is freed after its registrations.
            let made = unsafe { ffi::ibv_reg_mr(device.domain, start, len, flags as i32) };
            registrations.push(Registration { handle: handle(made)?, _device: device.clone() });
        }
        Ok(Region { bytes, registrations })
    }

    /// Its first byte.
    pub(super) fn start(&self) -> *mut u8 {
        self.bytes.as_ptr().cast_mut().cast()
    }

    /// The byte at an offset.
    pub(super) fn at(&self, offset: usize) -> *const u8 {
        assert!(offset < self.bytes.len() * 8, "an offset of the stream's own");
        self.start().wrapping_add(offset)
    }

    /// A word, of which a device may be writing this moment.
    pub(super) fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.bytes.len(), "an index of the stream's own");
        // SAFETY: aligned memory that the region owns, and that is used as an atomic only.
        unsafe { AtomicU64::from_ptr(self.start().cast::<u64>().add(index)) }
    }

    /// Copies into it.
    pub(super) fn put(&self, offset: usize, from: &[u8]) {
        assert!(offset + from.len() <= self.bytes.len() * 8, "a place of the stream's own");
        // SAFETY: inside the region; the stream, which one thread uses at a time, writes only slots that
        // no device reads.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.start().add(offset), from.len()) };
    }

    /// Copies out of it.
    pub(super) fn get(&self, offset: usize, to: &mut [u8]) {
        assert!(offset + to.len() <= self.bytes.len() * 8, "a place of the stream's own");
        // SAFETY: inside the region; the stream reads only slots that no device writes any more.
        unsafe { ptr::copy_nonoverlapping(self.start().add(offset), to.as_mut_ptr(), to.len()) };
    }

    /// How many devices it is registered with.
    pub(super) fn devices(&self) -> usize {
        self.registrations.len()
    }

    /// The keys of a registration: for work of this process, for a peer.
    pub(super) fn keys(&self, device: usize) -> (u32, u32) {
        // SAFETY: a registration that lives.
        let mr = unsafe { &*self.registrations[device].handle };
        (mr.lkey, mr.rkey)
    }
}

/// What a peer must know to connect to a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Address {
    number: u32,
    sequence: u32,
    lid: u16,
    mtu: u32,
    gid: [u8; 16],
}

/// What became of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Completion {
    /// A write with this number is in the peer's memory.
    Written(u64),
    /// The peer wrote so many bytes, with this immediate value.
    Arrived { immediate: u32, len: u32 },
    /// Work failed, and with it the queue.
    Failed(u32),
}

/// One write.
#[derive(Debug, Clone, Copy)]
pub(super) struct Write {
    /// Given back in [`Completion::Written`].
    pub(super) id: u64,
    /// Memory of the region that the queue was made for.
    pub(super) from: *const u8,
    pub(super) len: u32,
    pub(super) key: u32,
    /// Address and key of the peer's memory.
    pub(super) to: u64,
    pub(super) to_key: u32,
    pub(super) immediate: Option<u32>,
}

/// A reliable connection and the queue of its completions.
pub(super) struct Queue {
    pair: *mut ffi::ibv_qp,
    completions: *mut ffi::ibv_cq,
    inline: u32,
    sequence: u32,
    device: Arc<Device>,
    /// Receives were posted, and writes name its memory.
    _region: Arc<Region>,
}

// SAFETY: a queue belongs to one thread at a time, and the library allows it to move.
unsafe impl Send for Queue {}

/// Bytes that travel inside the work request itself, where the device can.
const INLINE: u32 = 192;

impl Queue {
    /// A queue in its first state, for so many writes and receives at once.
    pub(super) fn new(
        device: &Arc<Device>,
        region: &Arc<Region>,
        depth: u32,
        sequence: u32,
    ) -> io::Result<Queue> {
        let entries = 2 * depth as i32;
        // SAFETY: an open context.
        let completions = handle(unsafe {
            ffi::ibv_create_cq(device.context, entries, ptr::null_mut(), ptr::null_mut(), 0)
        })?;
        let mut queue = Queue {
            pair: ptr::null_mut(),
            completions,
            inline: INLINE,
            sequence: sequence & 0xff_ffff,
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
        init.cap.max_inline_data = INLINE;
        // SAFETY: domain and completion queue are of one device, and outlive the pair.
        queue.pair = match handle(unsafe { ffi::ibv_create_qp(device.domain, &mut init) }) {
            Ok(pair) => pair,
            Err(_) => {
                (init.cap.max_inline_data, queue.inline) = (0, 0);
                // SAFETY: as above.
                handle(unsafe { ffi::ibv_create_qp(device.domain, &mut init) })?
            }
        };
        let mut attr = ffi::ibv_qp_attr {
            qp_state: ffi::ibv_qp_state::IBV_QPS_INIT,
            port_num: 1,
            qp_access_flags: ffi::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0,
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
        errno(unsafe { ffi::ibv_modify_qp(self.pair, attr, mask as i32) })
    }

    /// What the peer must know.
    pub(super) fn address(&self) -> Address {
        // SAFETY: a pair that lives.
        let number = unsafe { (*self.pair).qp_num };
        let Device { lid, mtu, gid, .. } = *self.device;
        Address { number, sequence: self.sequence, lid, mtu, gid }
    }

    /// Makes the connection; receives must be posted before the peer writes.
    pub(super) fn connect(&self, peer: &Address) -> io::Result<()> {
        use ffi::ibv_qp_attr_mask as Mask;
        let mut attr = ffi::ibv_qp_attr {
            qp_state: ffi::ibv_qp_state::IBV_QPS_RTR,
            path_mtu: self.device.mtu.min(peer.mtu),
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
        attr.ah_attr.grh.sgid_index = self.device.gid_index;
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
            // 4.096 us * 2^16: a quarter of a second, seven times.
            timeout: 16,
            retry_cnt: 7,
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
    pub(super) fn end(&self) {
        let mut attr =
            ffi::ibv_qp_attr { qp_state: ffi::ibv_qp_state::IBV_QPS_ERR, ..Default::default() };
        // A pair that cannot even be ended has ended.
        let _ = self.modify(&mut attr, &[ffi::ibv_qp_attr_mask::IBV_QP_STATE]);
    }

    /// Posts a receive, which the peer's next write with an immediate value takes.
    pub(super) fn receive(&self) -> io::Result<()> {
        let mut work = ffi::ibv_recv_wr::default();
        let mut bad = ptr::null_mut();
        // SAFETY: a pair that lives; the request has no memory, and ends with this call.
        unsafe {
            let post = (*(*self.pair).context).ops.post_recv;
            let Some(post) = post else { return Err(io::ErrorKind::Unsupported.into()) };
            errno(post(self.pair, &mut work, &mut bad))
        }
    }

    /// Posts a write. Its memory stays as it is until its completion.
    pub(super) fn write(&self, write: &Write) -> io::Result<()> {
        let mut piece =
            ffi::ibv_sge { addr: write.from as u64, length: write.len, lkey: write.key };
        let inline = match write.len <= self.inline {
            true => ffi::ibv_send_flags::IBV_SEND_INLINE.0,
            false => 0,
        };
        let mut work = ffi::ibv_send_wr {
            wr_id: write.id,
            sg_list: &mut piece,
            num_sge: 1,
            opcode: match write.immediate {
                Some(_) => ffi::ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM,
                None => ffi::ibv_wr_opcode::IBV_WR_RDMA_WRITE,
            },
            send_flags: ffi::ibv_send_flags::IBV_SEND_SIGNALED.0 | inline,
            ..Default::default()
        };
        work.__bindgen_anon_1.imm_data = write.immediate.unwrap_or(0).to_be();
        work.wr.rdma.remote_addr = write.to;
        work.wr.rdma.rkey = write.to_key;
        let mut bad = ptr::null_mut();
        // SAFETY: a pair that lives; the library copies the request. Its memory is the region's, which
        // the queue keeps alive.
        unsafe {
            let post = (*(*self.pair).context).ops.post_send;
            let Some(post) = post else { return Err(io::ErrorKind::Unsupported.into()) };
            errno(post(self.pair, &mut work, &mut bad))
        }
    }

    /// What was completed since the last look, at most 16 at once.
    pub(super) fn poll(&self, mut each: impl FnMut(Completion)) -> usize {
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
                Some((status, _)) => Completion::Failed(status),
                None if entry.opcode() == ffi::ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM => {
                    let immediate = u32::from_be(entry.imm_data);
                    Completion::Arrived { immediate, len: entry.len() as u32 }
                }
                None => Completion::Written(entry.wr_id()),
            });
        }
        count
    }

    /// The device.
    pub(super) fn device(&self) -> &str {
        &self.device.name
    }
}

impl Drop for Queue {
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

/// A status of the library in its words.
pub(super) fn status(code: u32) -> String {
    // SAFETY: a table of the library, which has words for any number.
    let words = unsafe { CStr::from_ptr(ffi::ibv_wc_status_str(code)) };
    words.to_string_lossy().into_owned()
}
