//! The choice of devices.

/// The devices that carry a connection, and the addresses they use. Both ends choose for themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceChoice {
    /// The names of the devices, in this order; if empty all that there are.
    pub(crate) devices: Vec<String>,
    /// The entry of each device's table of GIDs. By default the one of RoCE v2 over IPv4, else the
    /// first that is not 0.
    pub gid: Option<u32>,
}
