//! The few calls of libibverbs that are needed: open, register, connect, write, poll.
//!
//! The published `ibverbs` crate sends and receives, but neither writes into a peer's memory nor registers
//! memory that it did not allocate, and keeps its handles to itself. So the objects are made here, over
//! `ibverbs-sys`; `ibverbs` says which devices there are. Everything `unsafe` about verbs is in this
//! file: handles are freed in the order that the library asks for (queue, registration, device), and work
//! names memory of a [`Region`] only, which lives as long as its queues.

use std::ffi::CStr;
use std::fmt;
use std::io;
use std::net::Ipv6Addr;
use std::ptr;
use std::sync::Arc;

use ibverbs_sys as ffi;
use serde::{Deserialize, Serialize};

/// An opened port 1 of a device, with a protection domain.
pub(super) struct Device {
    context: *mut ffi::ibv_context,
    domain: *mut ffi::ibv_pd,
    pub(super) name: String,
    port: ffi::ibv_port_attr,
    gids: Vec<Gid>,
}

/// An address of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gid {
    index: u32,
    /// Whether RoCE v2 packets carry it.
    routed: bool,
    bytes: [u8; 16],
}

impl Gid {
    /// Whether it is an IPv4 address in the clothes of an IPv6 one.
    fn is_v4(&self) -> bool {
        self.bytes[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = Ipv6Addr::from(self.bytes);
        match address.to_ipv4_mapped() {
            Some(address) => write!(f, "{address}"),
            None => write!(f, "{address}"),
        }
    }
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
    pub(super) fn all() -> io::Result<Vec<Arc<Device>>> {
        let mut count = 0;
        // SAFETY: the library fills in the count; the list is freed below, after its last use.
        let list = handle(unsafe { ffi::ibv_get_device_list(&mut count) })?;
        let mut devices = Vec::new();
        let mut trouble = None;
        for at in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: the list has `count` entries.
            match unsafe { Device::open(*list.add(at)) } {
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
    unsafe fn open(device: *mut ffi::ibv_device) -> io::Result<Option<Device>> {
        // SAFETY: promised by the caller; the name is a string of the library.
        let name = unsafe { CStr::from_ptr(ffi::ibv_get_device_name(device)) };
        let mut opened = Device {
            // SAFETY: promised by the caller.
            context: handle(unsafe { ffi::ibv_open_device(device) })?,
            domain: ptr::null_mut(),
            name: name.to_string_lossy().into_owned(),
            port: ffi::ibv_port_attr::default(),
            gids: Vec::new(),
        };
        // SAFETY: an open context. The library knows the old form of the structure alone, which is the
        // beginning of this one.
        errno(unsafe { ffi::ibv_query_port(opened.context, 1, (&raw mut opened.port).cast()) })?;
        opened.gids = opened.table();
        if opened.port.state != ffi::ibv_port_state::IBV_PORT_ACTIVE || opened.gids.is_empty() {
            return Ok(None);
        }
        // SAFETY: an open context.
        opened.domain = handle(unsafe { ffi::ibv_alloc_pd(opened.context) })?;
        Ok(Some(opened))
    }

    /// The addresses that are set.
    fn table(&self) -> Vec<Gid> {
        let size = size_of::<ffi::ibv_gid_entry>();
        let mut table = vec![ffi::ibv_gid_entry::default(); 256];
        // SAFETY: the table has as many entries as it says, of the size it says.
        let filled = unsafe {
            ffi::_ibv_query_gid_table(self.context, table.as_mut_ptr(), table.len(), 0, size)
        };
        table.truncate(usize::try_from(filled).unwrap_or(0));
        let gid = |entry: &ffi::ibv_gid_entry| Gid {
            index: entry.gid_index,
            routed: entry.gid_type == ffi::IBV_GID_TYPE_ROCE_V2,
            // SAFETY: both fields of the union are plain bytes.
            bytes: unsafe { entry.gid.raw },
        };
        let here = table.iter().filter(|entry| entry.port_num == 1 && entry.gid_index < 256);
        here.map(gid).filter(|gid| gid.bytes != [0; 16]).collect()
    }

    /// The address to speak as: the one of this number; else of RoCE v2 over IPv4, else the first.
    pub(super) fn gid(&self, wanted: Option<u32>) -> Result<Gid, String> {
        let find = |fits: &dyn Fn(&&Gid) -> bool| self.gids.iter().find(|gid| fits(gid)).copied();
        let found = match wanted {
            Some(index) => find(&|gid| gid.index == index),
            None => find(&|gid| gid.routed && gid.is_v4()).or_else(|| find(&|_| true)),
        };
        found.ok_or_else(|| {
            let each = |gid: &Gid| format!("{} ({gid})", gid.index);
            let all: Vec<String> = self.gids.iter().map(each).collect();
            format!(
                "device {} has no GID {}; it has {}",
                self.name,
                wanted.unwrap_or(0),
                all.join(", ")
            )
        })
    }

    /// Bytes of a packet.
    fn mtu(&self) -> u32 {
        128 << self.port.active_mtu
    }

    /// Whether memory of a GPU could be registered, as a file descriptor.
    fn takes_dmabuf(&self) -> bool {
        // SAFETY: a domain that lives; the descriptor is none, so that nothing is registered.
        let made = unsafe { ffi::ibv_reg_dmabuf_mr(self.domain, 0, 4096, 0, -1, 0) };
        made.is_null() && io::Error::last_os_error().raw_os_error() == Some(libc::EBADF)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gid = self.gid(None).map_err(|_| fmt::Error)?;
        let kind = match (u32::from(self.port.link_layer), gid.routed) {
            (ffi::IBV_LINK_LAYER_ETHERNET, true) => "RoCE v2",
            (ffi::IBV_LINK_LAYER_ETHERNET, false) => "RoCE v1",
            _ => "InfiniBand",
        };
        let dmabuf = if self.takes_dmabuf() { "" } else { ", no dmabuf" };
        let (name, mtu) = (&self.name, self.mtu());
        write!(f, "{name}: {kind}, GID {} is {gid}, packets of {mtu} B{dmabuf}", gid.index)
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

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Gid { index: 0, routed: true, bytes: self.gid })
    }
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
    /// What the peer hears with it.
    pub(super) immediate: u32,
}

/// A reliable connection and the queue of its completions.
pub(super) struct Queue {
    pair: *mut ffi::ibv_qp,
    completions: *mut ffi::ibv_cq,
    inline: u32,
    sequence: u32,
    gid: Gid,
    device: Arc<Device>,
    /// Receives were posted, and writes name its memory.
    _region: Arc<Region>,
}

// SAFETY: a queue belongs to one thread at a time, and the library allows it to move.
unsafe impl Send for Queue {}

/// Bytes that travel inside the work request itself, where the device can.
const INLINE: u32 = 192;
/// A packet that is not acknowledged is sent again after 4.096 us * 2^17, half a second, so often: a queue whose
/// peer does not answer fails after four seconds (devices may take up to four times that). One more would
/// be for ever with the kernel's device in software.
const TIMEOUT: u8 = 17;
const RETRIES: u8 = 6;

impl Queue {
    /// A queue in its first state, for so many writes and receives at once.
    pub(super) fn new(
        device: &Arc<Device>,
        gid: Gid,
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
        let ffi::ibv_port_attr { lid, active_mtu: mtu, .. } = self.device.port;
        Address { number, sequence: self.sequence, lid, mtu, gid: self.gid.bytes }
    }

    /// Makes the connection; receives must be posted before the peer writes.
    pub(super) fn connect(&self, peer: &Address) -> io::Result<()> {
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
            timeout: TIMEOUT,
            retry_cnt: RETRIES,
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
            num_sge: i32::from(write.len > 0),
            opcode: ffi::ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM,
            send_flags: ffi::ibv_send_flags::IBV_SEND_SIGNALED.0 | inline,
            ..Default::default()
        };
        work.__bindgen_anon_1.imm_data = write.immediate.to_be();
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

/// A status of the library in its words, and what it means for users.
pub(super) fn status(code: u32) -> String {
    // SAFETY: a table of the library, which has words for any number.
    let words = unsafe { CStr::from_ptr(ffi::ibv_wc_status_str(code)) };
    let meaning = match code {
        ffi::ibv_wc_status::IBV_WC_RETRY_EXC_ERR => {
            ": the peer's device does not answer; its process, its port or the way there is down, or the \
             two devices are of different networks (see the hint `rdma_gid`)"
        }
        ffi::ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR => ": the peer posts no receives",
        ffi::ibv_wc_status::IBV_WC_REM_ACCESS_ERR => {
            ": the peer's device refused the key or the address of its memory"
        }
        ffi::ibv_wc_status::IBV_WC_WR_FLUSH_ERR => ": the queue pair had ended before",
        _ => "",
    };
    format!("{}{meaning}", words.to_string_lossy())
}
