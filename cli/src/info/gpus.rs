//! Reports the GPUs of this machine, and whether jobs can run on them.

use roundelay::cuda::{CudaDevice, probe};
use serde::Serialize;

use crate::peer::nccl;
use crate::values::size_text;

/// GPUs, the driver, the compiler of kernels, and NCCL.
#[derive(Serialize)]
pub(super) struct GpuInventory {
    /// The reason why there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
    /// Version of the driver, and of CUDA that it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    driver: Option<String>,
    /// Version and setting of the compiler; why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    nvrtc: Option<FoundLibrary>,
    /// Version and setting of NCCL, with which `bench` compares; why there is none.
    nccl: FoundLibrary,
    devices: Vec<GpuRow>,
}

/// A library.
#[derive(Serialize)]
struct FoundLibrary {
    found: bool,
    what: String,
}

#[derive(Serialize)]
struct GpuRow {
    index: u32,
    name: String,
    bus: String,
    memory_bytes: u64,
    capability: String,
    sms: u32,
}

impl<E: ToString> From<Result<String, E>> for FoundLibrary {
    fn from(result: Result<String, E>) -> Self {
        let found = result.is_ok();
        FoundLibrary { found, what: result.unwrap_or_else(|why| why.to_string()) }
    }
}

impl GpuRow {
    fn of(device: &CudaDevice) -> Self {
        let (major, minor) = device.capability;
        GpuRow {
            index: device.index,
            name: device.name.clone(),
            bus: device.bus.clone(),
            memory_bytes: device.memory,
            capability: format!("{major}.{minor}"),
            sms: device.sms,
        }
    }
}

impl GpuInventory {
    /// Looks for everything.
    pub(super) fn here() -> Self {
        let nccl = nccl::probe().into();
        let machine = match probe() {
            Ok(machine) => machine,
            Err(why) => {
                let fault = Some(why.to_string());
                return GpuInventory { fault, driver: None, nvrtc: None, nccl, devices: vec![] };
            }
        };
        let (major, minor) = machine.cuda;
        let driver = machine.driver.unwrap_or_else(|| "of unknown version".into());
        let nvrtc = machine.nvrtc.map(|nvrtc| {
            let (major, minor) = nvrtc.version;
            format!("{major}.{minor}, {}", nvrtc.path.display())
        });
        GpuInventory {
            fault: None,
            driver: Some(format!("{driver}, CUDA {major}.{minor}")),
            nvrtc: Some(nvrtc.map_err(|why| why.to_string()).into()),
            nccl,
            devices: machine.devices.iter().map(GpuRow::of).collect(),
        }
    }

    /// Returns the lines that people read.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let said = |found: &FoundLibrary| match found.found {
            true => found.what.clone(),
            false => format!("not available: {}", found.what),
        };
        if let Some(why) = &self.fault {
            lines.push(format!("CUDA    not available: {why}"));
        }
        lines.extend(self.driver.iter().map(|driver| format!("driver  {driver}")));
        lines.extend(self.nvrtc.iter().map(|nvrtc| format!("NVRTC   {}", said(nvrtc))));
        lines.push(format!("NCCL    {}", said(&self.nccl)));
        lines.extend(self.devices.iter().map(|d| {
            let GpuRow { index, name, bus, capability, sms, .. } = d;
            let memory = size_text(d.memory_bytes >> 20 << 20);
            format!("GPU {index}   {name}, {memory}, {sms} SMs, {capability}, {bus}")
        }));
        lines
    }
}
