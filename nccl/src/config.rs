//! `ncclConfig_t` and `ncclSimInfo_t`, as callers that were compiled against other versions have them.

use std::ffi::{CStr, c_char, c_int, c_uint};

use crate::failure::{CallFailure, Outcome};
use crate::id::VERSION;

/// The head of every configuration.
const MAGIC: c_uint = 0xcafe_beef;
/// The same of what is asked of a simulation.
const SIMULATION: c_uint = 0x7468_5283;
/// The value of what is not set.
const UNDEFINED: c_int = c_int::MIN;

/// `ncclConfig_t` of NCCL 2.28. Older versions end earlier, newer ones later.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawConfig {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    cga_cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
    traffic_class: c_int,
    comm_name: *const c_char,
    collnet_enable: c_int,
    cta_policy: c_int,
    shrink_share: c_int,
    nvls_ctas: c_int,
    channels_per_net_peer: c_int,
    nvlink_centric_sched: c_int,
}

impl RawConfig {
    const UNSET: RawConfig = RawConfig {
        size: size_of::<RawConfig>(),
        magic: MAGIC,
        version: VERSION.unsigned_abs(),
        blocking: UNDEFINED,
        cga_cluster_size: UNDEFINED,
        min_ctas: UNDEFINED,
        max_ctas: UNDEFINED,
        net_name: std::ptr::null(),
        split_share: UNDEFINED,
        traffic_class: UNDEFINED,
        comm_name: std::ptr::null(),
        collnet_enable: UNDEFINED,
        cta_policy: UNDEFINED,
        shrink_share: UNDEFINED,
        nvls_ctas: UNDEFINED,
        channels_per_net_peer: UNDEFINED,
        nvlink_centric_sched: UNDEFINED,
    };
}

/// The settings of a configuration that mean something here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CommConfig {
    /// True if functions return before they are done.
    pub(crate) is_nonblocking: bool,
    /// The most blocks of a kernel.
    pub(crate) max_blocks: Option<u32>,
    /// The name of the communicator in messages.
    pub(crate) name: Option<String>,
    /// The settings that were given and change nothing.
    pub(crate) ignored: Vec<&'static str>,
}

impl CommConfig {
    /// Reads a configuration; NULL is one that sets nothing.
    ///
    /// # Safety
    ///
    /// `config` is NULL, or begins with its size, and has that many bytes; its texts are texts.
    pub(crate) unsafe fn read(config: *const RawConfig) -> Outcome<Self> {
        if config.is_null() {
            return Ok(CommConfig::default());
        }
        // SAFETY: what the caller promises.
        let size = unsafe { (&raw const (*config).size).read_unaligned() };
        let least = std::mem::offset_of!(RawConfig, cga_cluster_size);
        let uninitialised = || {
            CallFailure::argument(
                "the configuration was not initialised: assign NCCL_CONFIG_INITIALIZER to it first",
            )
        };
        // No version will be so long, and what lies here by accident nearly always is.
        if !(least..=4096).contains(&size) {
            return Err(uninitialised());
        }
        // SAFETY: the structure is that long at least.
        let version = unsafe { (&raw const (*config).version).read_unaligned() };
        let mut raw = RawConfig::UNSET;
        // Before NCCL 2.17 there was one setting, and behind it nothing but padding.
        let known = if version < 21700 { least } else { size.min(size_of::<RawConfig>()) };
        // SAFETY: the caller's structure has that many bytes, and so has ours; fields are numbers and pointers. A field
        // that begins within an older structure ends within it.
        unsafe {
            std::ptr::copy_nonoverlapping(config.cast::<u8>(), (&raw mut raw).cast::<u8>(), known);
        }
        if raw.magic != MAGIC {
            return Err(uninitialised());
        }
        // SAFETY: what the caller promises.
        unsafe { CommConfig::of(&raw) }
    }

    /// Checks the settings.
    ///
    /// # Safety
    ///
    /// The texts are texts.
    unsafe fn of(raw: &RawConfig) -> Outcome<Self> {
        let within = |name: &str, value: c_int, least: c_int, most: c_int| match value {
            UNDEFINED => Ok(None),
            value if (least..=most).contains(&value) => Ok(Some(value)),
            value => Err(CallFailure::argument(format!(
                "{name} is {value}, and goes from {least} to {most}"
            ))),
        };
        let is_nonblocking = within("blocking", raw.blocking, 0, 1)? == Some(0);
        let most = within("maxCTAs", raw.max_ctas, 1, c_int::MAX)?;
        let least = within("minCTAs", raw.min_ctas, 1, c_int::MAX)?;
        if let (Some(least), Some(most)) = (least, most)
            && least > most
        {
            return Err(CallFailure::argument(format!("minCTAs is {least}, and maxCTAs {most}")));
        }
        within("splitShare", raw.split_share, 0, 1)?;
        within("shrinkShare", raw.shrink_share, 0, 1)?;
        within("cgaClusterSize", raw.cga_cluster_size, 0, 8)?;
        within("CTAPolicy", raw.cta_policy, 0, 3)?;
        let name = match raw.comm_name.is_null() {
            true => None,
            // SAFETY: what the caller promises.
            false => Some(unsafe { CStr::from_ptr(raw.comm_name) }.to_string_lossy().into_owned()),
        };
        let given = [
            ("cgaClusterSize", raw.cga_cluster_size),
            ("minCTAs", raw.min_ctas),
            ("trafficClass", raw.traffic_class),
            ("collnetEnable", raw.collnet_enable),
            ("CTAPolicy", raw.cta_policy),
            ("nvlsCTAs", raw.nvls_ctas),
            ("nChannelsPerNetPeer", raw.channels_per_net_peer),
            ("nvlinkCentricSched", raw.nvlink_centric_sched),
        ];
        let mut ignored: Vec<_> = given
            .into_iter()
            .filter(|(_, value)| *value != UNDEFINED)
            .map(|(name, _)| name)
            .collect();
        ignored.extend((!raw.net_name.is_null()).then_some("netName"));
        Ok(CommConfig { is_nonblocking, max_blocks: most.map(c_int::unsigned_abs), name, ignored })
    }
}

/// `ncclSimInfo_t`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawSimulation {
    size: usize,
    magic: c_uint,
    version: c_uint,
    estimated_time: f32,
}

/// Says that the time of a group is not known.
///
/// # Safety
///
/// `simulation` is NULL, or begins with its size, and has that many bytes.
pub(crate) unsafe fn simulated(simulation: *mut RawSimulation) -> Outcome {
    if simulation.is_null() {
        return Ok(());
    }
    // SAFETY: what the caller promises.
    let (size, magic) = unsafe { ((*simulation).size, (*simulation).magic) };
    if size < size_of::<RawSimulation>() || magic != SIMULATION {
        return Err(CallFailure::argument(
            "simInfo was not initialised: assign NCCL_SIM_INFO_INITIALIZER to it first",
        ));
    }
    // SAFETY: what the caller promises.
    unsafe { (*simulation).estimated_time = -1.0 };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(raw: &RawConfig) -> Outcome<CommConfig> {
        // SAFETY: the structure has as many bytes as it says at most; texts are NULL or texts.
        unsafe { CommConfig::read(raw) }
    }

    #[test]
    fn what_is_not_set_has_its_default() {
        assert_eq!(read(&RawConfig::UNSET), Ok(CommConfig::default()));
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { CommConfig::read(std::ptr::null()) }, Ok(CommConfig::default()));
        assert_eq!(size_of::<RawConfig>(), 80, "as the C compiler lays it out");
    }

    #[test]
    fn settings_are_read() {
        let raw = RawConfig {
            blocking: 0,
            max_ctas: 8,
            comm_name: c"world".as_ptr(),
            traffic_class: 1,
            net_name: c"Socket".as_ptr(),
            ..RawConfig::UNSET
        };
        let config = read(&raw).expect("a configuration");
        assert!(config.is_nonblocking && config.max_blocks == Some(8));
        assert_eq!(config.name.as_deref(), Some("world"));
        assert_eq!(config.ignored, ["trafficClass", "netName"]);
    }

    #[test]
    fn older_versions_end_earlier() {
        // What lies behind the end is not looked at, nor the padding of NCCL 2.14, which had one setting.
        let wild = RawConfig { blocking: 0, max_ctas: -7, split_share: 9, ..RawConfig::UNSET };
        let padded = RawConfig { size: 24, version: 21403, cga_cluster_size: 99, ..wild };
        for raw in [RawConfig { size: 24, ..wild }, padded] {
            let config = read(&raw).expect("a configuration");
            assert!(config.is_nonblocking && config.max_blocks.is_none());
        }
        assert!(read(&RawConfig { size: 32, ..wild }).is_err(), "maxCTAs is in it");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let unset = RawConfig::UNSET;
        for raw in [
            RawConfig { size: 0, ..unset },
            RawConfig { size: usize::MAX, ..unset },
            RawConfig { magic: 1, ..unset },
            RawConfig { blocking: 2, ..unset },
            RawConfig { max_ctas: 0, ..unset },
            RawConfig { min_ctas: 9, max_ctas: 8, ..unset },
            RawConfig { split_share: -1, ..unset },
        ] {
            assert!(read(&raw).is_err(), "{raw:?}");
        }
    }

    #[test]
    fn the_time_of_a_group_is_not_known() {
        let mut info =
            RawSimulation { size: 24, magic: SIMULATION, version: 0, estimated_time: 5.0 };
        // SAFETY: it has as many bytes as it says.
        assert_eq!(unsafe { simulated(&raw mut info) }, Ok(()));
        assert!(info.estimated_time < 0.0);
        info.magic = 0;
        // SAFETY: as above.
        assert!(unsafe { simulated(&raw mut info) }.is_err());
    }
}
