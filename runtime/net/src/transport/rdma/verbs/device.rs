//! Devices of this machine, and their addresses.

use std::ffi::CStr;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use ibverbs_sys as ffi;
use if_addrs::{IfAddr, Interface};

use super::check::{check_code, check_pointer};
use crate::transport::rdma::error::VerbsError;

/// An opened port 1 of a device, with a protection domain.
pub(crate) struct VerbsDevice {
    pub(super) context: *mut ffi::ibv_context,
    pub(super) domain: *mut ffi::ibv_pd,
    pub(crate) name: String,
    pub(super) port: ffi::ibv_port_attr,
    gids: Vec<DeviceGid>,
    /// True if it is on a bus, which takes an aligned word as one; the kernel's devices in software copy bytes.
    pub(crate) is_on_bus: bool,
}

/// An address of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeviceGid {
    pub(super) index: u32,
    /// True if RoCE v2 packets carry it.
    pub(super) routed: bool,
    pub(super) bytes: [u8; 16],
    /// Its network, where that is known.
    pub(super) network: Option<[u8; 16]>,
}

impl DeviceGid {
    /// Returns the network of an address: of InfiniBand the subnet's prefix, else that of its interface.
    fn network(bytes: [u8; 16], is_infiniband: bool, interfaces: &[Interface]) -> Option<[u8; 16]> {
        let length = if is_infiniband {
            64
        } else {
            let address = Ipv6Addr::from(bytes).to_canonical();
            // Every network has addresses of that kind.
            if matches!(address, IpAddr::V6(address) if address.is_unicast_link_local()) {
                return None;
            }
            match &interfaces.iter().find(|interface| interface.ip() == address)?.addr {
                IfAddr::V4(known) => 96 + u32::from(known.prefixlen),
                IfAddr::V6(known) => u32::from(known.prefixlen),
            }
        };
        let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
        Some((u128::from_be_bytes(bytes) & mask).to_be_bytes())
    }

    /// Returns true if it is an IPv4 address mapped to IPv6.
    fn is_v4(&self) -> bool {
        self.bytes[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]
    }
}

impl fmt::Display for DeviceGid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = Ipv6Addr::from(self.bytes);
        match address.to_ipv4_mapped() {
            Some(address) => write!(f, "{address}"),
            None => write!(f, "{address}"),
        }
    }
}

// SAFETY: libibverbs allows calls on a context and a domain from any thread.
unsafe impl Send for VerbsDevice {}
// SAFETY: as above.
unsafe impl Sync for VerbsDevice {}

impl VerbsDevice {
    /// Opens every device with an active port 1, in the library's order.
    pub(crate) fn all() -> io::Result<Vec<Arc<VerbsDevice>>> {
        let mut count = 0;
        // SAFETY: the library fills in the count; the list is freed below, after its last use.
        let list = check_pointer(unsafe { ffi::ibv_get_device_list(&mut count) })?;
        let mut devices = Vec::new();
        let mut trouble = None;
        for at in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: the list has `count` entries.
            match unsafe { VerbsDevice::open(*list.add(at)) } {
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

    /// Opens a device; `None` if its port 1 is not active, or has no address.
    ///
    /// # Safety
    ///
    /// The device is in a list that was not freed.
    unsafe fn open(device: *mut ffi::ibv_device) -> io::Result<Option<VerbsDevice>> {
        // SAFETY: promised by the caller; the name is a string of the library.
        let name = unsafe { CStr::from_ptr(ffi::ibv_get_device_name(device)) };
        // SAFETY: as above; a string of the library's too.
        let folder = unsafe { CStr::from_ptr((*device).ibdev_path.as_ptr()) };
        let mut opened = VerbsDevice {
            // SAFETY: promised by the caller.
            context: check_pointer(unsafe { ffi::ibv_open_device(device) })?,
            domain: ptr::null_mut(),
            name: name.to_string_lossy().into_owned(),
            port: ffi::ibv_port_attr::default(),
            gids: Vec::new(),
            is_on_bus: Path::new(&*folder.to_string_lossy()).join("device").exists(),
        };
        // SAFETY: an open context. The library knows the old form of the structure alone, which is the
        // beginning of this one.
        check_code(unsafe {
            ffi::ibv_query_port(opened.context, 1, (&raw mut opened.port).cast())
        })?;
        opened.gids = opened.table();
        if opened.port.state != ffi::ibv_port_state::IBV_PORT_ACTIVE || opened.gids.is_empty() {
            return Ok(None);
        }
        // SAFETY: an open context.
        opened.domain = check_pointer(unsafe { ffi::ibv_alloc_pd(opened.context) })?;
        Ok(Some(opened))
    }

    /// Returns the addresses that are set.
    fn table(&self) -> Vec<DeviceGid> {
        let size = size_of::<ffi::ibv_gid_entry>();
        let mut table = vec![ffi::ibv_gid_entry::default(); 256];
        // SAFETY: the table has as many entries, of the size, as are given.
        let filled = unsafe {
            ffi::_ibv_query_gid_table(self.context, table.as_mut_ptr(), table.len(), 0, size)
        };
        table.truncate(usize::try_from(filled).unwrap_or(0));
        let is_infiniband = u32::from(self.port.link_layer) != ffi::IBV_LINK_LAYER_ETHERNET;
        let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
        let gid = |entry: &ffi::ibv_gid_entry| {
            // SAFETY: both fields of the union are plain bytes.
            let bytes = unsafe { entry.gid.raw };
            DeviceGid {
                index: entry.gid_index,
                routed: entry.gid_type == ffi::IBV_GID_TYPE_ROCE_V2,
                bytes,
                network: DeviceGid::network(bytes, is_infiniband, &interfaces),
            }
        };
        let here = table.iter().filter(|entry| entry.port_num == 1 && entry.gid_index < 256);
        here.map(gid).filter(|gid| gid.bytes != [0; 16]).collect()
    }

    /// Returns the address to use: the one of this number; else of RoCE v2 over IPv4, else the first.
    pub(crate) fn gid(&self, wanted: Option<u32>) -> Result<DeviceGid, VerbsError> {
        let find =
            |fits: &dyn Fn(&&DeviceGid) -> bool| self.gids.iter().find(|gid| fits(gid)).copied();
        let found = match wanted {
            Some(index) => find(&|gid| gid.index == index),
            None => find(&|gid| gid.routed && gid.is_v4()).or_else(|| find(&|_| true)),
        };
        found.ok_or_else(|| {
            let gids = self.gids.iter().map(|gid| format!("{} ({gid})", gid.index)).collect();
            VerbsError::NoSuchGid { device: self.name.clone(), gid: wanted.unwrap_or(0), gids }
        })
    }

    /// Returns true if its port works now.
    pub(crate) fn is_active(&self) -> bool {
        let mut port = ffi::ibv_port_attr::default();
        // SAFETY: as in `open`.
        let asked =
            check_code(unsafe { ffi::ibv_query_port(self.context, 1, (&raw mut port).cast()) });
        asked.is_ok() && port.state == ffi::ibv_port_state::IBV_PORT_ACTIVE
    }

    /// Returns the bytes of a packet.
    fn mtu(&self) -> u32 {
        128 << self.port.active_mtu
    }

    /// Describes the device in a line; `dmabuf` says whether memory of a GPU can be registered with it.
    pub(crate) fn describe(&self, dmabuf: bool) -> String {
        let Ok(gid) = self.gid(None) else { return self.name.clone() };
        let kind = match (u32::from(self.port.link_layer), gid.routed) {
            (ffi::IBV_LINK_LAYER_ETHERNET, true) => "RoCE v2",
            (ffi::IBV_LINK_LAYER_ETHERNET, false) => "RoCE v1",
            _ => "InfiniBand",
        };
        let dmabuf = if dmabuf { "" } else { ", no dmabuf" };
        let (name, mtu) = (&self.name, self.mtu());
        format!("{name}: {kind}, GID {} is {gid}, packets of {mtu} B{dmabuf}", gid.index)
    }
}

impl Drop for VerbsDevice {
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_network_is_told_by_the_interface_or_the_prefix() {
        let interfaces = if_addrs::get_if_addrs().expect("interfaces");
        let network = |address: IpAddr, is_infiniband| {
            let bytes = match address {
                IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                IpAddr::V6(address) => address.octets(),
            };
            DeviceGid::network(bytes, is_infiniband, &interfaces).map(|network| {
                let address = Ipv6Addr::from(network);
                address.to_ipv4_mapped().map_or(address.to_string(), |address| address.to_string())
            })
        };
        assert_eq!(network(Ipv4Addr::LOCALHOST.into(), false).as_deref(), Some("127.0.0.0"));
        assert_eq!(network(Ipv4Addr::new(192, 0, 2, 7).into(), false), None, "no interface has it");
        let address: IpAddr = "fe80::1:2:3:4".parse().expect("an address");
        assert_eq!(network(address, false), None);
        assert_eq!(network(address, true).as_deref(), Some("fe80::"));
    }
}
