//! Connections and ranks fail while a kernel waits for another host: two ranks, a GPU each as far as there are as many.
//! Without a GPU the tests say why they are skipped. `ROUNDELAY_TEST_ROUNDS` rounds, 3 by default.

use std::os::fd::AsRawFd;
use std::process::{Child, Command};
use std::sync::Barrier;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use roundelay_compiler::device::{DeviceProtocol, abi};
use roundelay_compiler::{BufferPlacement, CompileOptions, ProvedPlans, Shape, compile};
use roundelay_tests::{CheckNeeds, of_library, skip};
use rustix::net::Shutdown;
use rustix::process::{Signal, getpid, kill_process};

use super::direct_slots::GpuDirect;
use crate::backend::{DeviceContext, NetworkMemory};
use crate::gpu::Gpu;
use crate::{CudaBuffer, CudaLaunch, CudaOptions, open, probe};
use roundelay::Communicator;
use roundelay::launch::JobSetup;
use roundelay_engine::{CallArgs, EngineCore, PlanCall};
use roundelay_support::dtype::{DType, RedOp};
use roundelay_support::error::Error;

/// The variable with the note by which the second process joins.
const NOTE: &str = "ROUNDELAY_TEST_FAR_NOTE";
/// Elements of a call: many passes.
const COUNT: usize = 4 << 20;
/// The time within which all must have ended.
const SOON: Duration = Duration::from_secs(10);

fn rounds() -> u32 {
    std::env::var("ROUNDELAY_TEST_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3)
}

/// Returns the number of GPUs, if there are some.
fn gpus() -> Option<u32> {
    match probe() {
        Ok(machine) => Some(machine.devices.len() as u32),
        Err(why) => {
            skip(CheckNeeds::Gpus, why);
            None
        }
    }
}

fn setup(rank: u32) -> JobSetup {
    JobSetup::new().host_label(format!("host {rank}")).timeout(Duration::from_secs(20))
}

fn ring() -> ProvedPlans {
    let entry = roundelay_algorithms::find("all_reduce", "ring").expect("the library has it");
    let (sources, program) = of_library(entry).expect("it resolves");
    let (shape, options) = (Shape::flat(2), CompileOptions::default());
    compile(&program, &sources, &shape, &options, BufferPlacement::InPlace).expect("it is proved")
}

/// Runs two ranks, a thread each.
fn on_both(body: impl Fn(Communicator) + Sync) {
    let comms = Communicator::local_over(2, setup).expect("ranks");
    let body = &body;
    std::thread::scope(|scope| {
        let ranks: Vec<_> = comms.into_iter().map(|comm| scope.spawn(move || body(comm))).collect();
        ranks.into_iter().for_each(|rank| rank.join().expect("no panic"));
    });
}

/// A rank with its GPU.
struct CallExecutor<'a> {
    gpu: Gpu,
    core: &'a mut EngineCore,
    plans: ProvedPlans,
    data: CudaBuffer<f32>,
}

impl<'a> CallExecutor<'a> {
    /// Opens the GPU, and makes a call that is right.
    fn new(core: &'a mut EngineCore, gpus: u32) -> Self {
        let device = Some(core.rank() % gpus);
        Self::with(core, &CudaOptions { device, ..CudaOptions::default() })
    }

    fn with(core: &'a mut EngineCore, options: &CudaOptions) -> Self {
        let rank = core.rank();
        let mut gpu = open(core, options).expect("a GPU");
        let data = gpu.alloc::<f32>(core, COUNT).expect("memory");
        data.copy_from(&vec![rank as f32 + 1.0; COUNT]).expect("a copy");
        let mut executor = CallExecutor { gpu, core, plans: ring(), data };
        executor.call().expect("a call");
        executor.synchronize().expect("it ends well");
        let mut sums = vec![0.0; COUNT];
        executor.data.copy_to(&mut sums).expect("a copy");
        assert!(sums.iter().all(|&sum| sum == 3.0), "1 and 2");
        executor
    }

    fn call(&mut self) -> Result<(), Error> {
        let args = CallArgs::InPlace { data: self.data.ptr() };
        let (count, dtype, op) = (COUNT as u64, DType::F32, RedOp::Sum);
        let call = PlanCall { count, dtype, op, factor: 1.0, args };
        let launch = CudaLaunch { protocol: Some(DeviceProtocol::Put), ..call.into() };
        let stream = self.gpu.stream().clone();
        self.gpu.execute(self.core, &self.plans, &launch, None, &stream)
    }

    fn synchronize(&mut self) -> Result<(), Error> {
        let stream = self.gpu.stream().clone();
        self.gpu.watch(self.core, || stream.is_done())
    }

    /// Waits until a kernel has entered a call.
    fn enters(&self, epoch: u32) {
        let memory = self.gpu.proxies().expect("another host").memory();
        let word = memory.kernel_word(abi::entered(2, self.core.rank(), 0));
        let since = Instant::now();
        while !abi::reached(word.load(Ordering::Acquire), abi::mark(epoch, 1)) {
            assert!(since.elapsed() < SOON, "no kernel enters call {epoch}");
            std::thread::yield_now();
        }
    }

    /// Makes calls until one fails; returns its error.
    fn fails(&mut self) -> Error {
        let error = (0..).find_map(|_| self.call().and_then(|()| self.synchronize()).err());
        error.expect("it ended with an error")
    }

    fn leave(mut self) {
        self.gpu.leave(Duration::ZERO);
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum How {
    Abort,
    Cut,
}

/// Runs two ranks as threads; what is done to one while its kernel waits ends both.
fn end(how: How, round: u32, gpus: u32) {
    let ready = Barrier::new(2);
    let body = |mut comm: Communicator| {
        let mut part = comm.split(&[0, 1]).expect("a part").expect("of all");
        let abort = part.abort_handle();
        let core = roundelay::internal::core(&mut part).expect("at home");
        let mut executor = CallExecutor::new(core, gpus);
        let rank = executor.core.rank();
        ready.wait();
        let since;
        // The other one makes no call before this one's has waited and failed.
        let error = if rank == round % 2 {
            executor.call().expect("a call");
            executor.enters(2);
            since = Instant::now();
            std::thread::scope(|scope| {
                let lanes = executor.gpu.proxies().expect("another host");
                let connection =
                    lanes.connections[round as usize % lanes.connections.len()].clone();
                scope.spawn(move || match how {
                    How::Abort => drop(abort.abort("enough")),
                    How::Cut => {
                        let fd = connection.fd().expect("a socket");
                        rustix::net::shutdown(&*fd, Shutdown::Both).expect("it is open");
                    }
                });
                executor.synchronize().expect_err("it ended with an error")
            })
        } else {
            since = Instant::now();
            let failed = (0..).find_map(|_| executor.core.hear(None).err()).expect("an alarm");
            let error = executor.fails();
            assert!(matches!(
                error,
                Error::Usage(_) | Error::Aborted { .. } | Error::LostRank { .. }
            ));
            failed
        };
        let text = error.to_string();
        let said = match how {
            How::Abort => text.contains("abort was called: enough"),
            How::Cut => text.contains("between their hosts") && text.contains("all_reduce.ring"),
        };
        assert!(said, "{how:?} in round {round}: {text}");
        executor.leave();
        assert!(since.elapsed() < SOON, "{how:?} in round {round}: {:?}", since.elapsed());
    };
    on_both(body);
}

/// Keeps the GPUs open, which takes long to do again.
fn kept(gpus: u32) -> Vec<Communicator> {
    let open = |device| {
        let options = roundelay::cuda::CudaOptions { device: Some(device), ..Default::default() };
        Communicator::local(1).expect("a rank").remove(0).cuda(options).expect("a GPU")
    };
    (0..gpus.min(2)).map(open).collect()
}

/// Says how many rounds came to their end, and in which time.
fn count(what: &str, rounds: u32, since: Instant) {
    let _ = std::io::Write::write_fmt(
        &mut std::io::stderr(),
        format_args!(
            "{what}: {rounds} of {rounds} rounds in {:.1} s\n",
            since.elapsed().as_secs_f64()
        ),
    );
}

#[test]
fn an_abort_ends_kernels_that_wait() {
    let Some(gpus) = gpus() else { return };
    let (_kept, since) = (kept(gpus), Instant::now());
    (0..rounds()).for_each(|round| end(How::Abort, round, gpus));
    count("abort", rounds(), since);
}

#[test]
fn a_cut_connection_ends_kernels_that_wait() {
    let Some(gpus) = gpus() else { return };
    let (_kept, since) = (kept(gpus), Instant::now());
    (0..rounds()).for_each(|round| end(How::Cut, round, gpus));
    count("cut", rounds(), since);
}

/// The second process, which ends in the middle of its calls; on its own it does nothing.
#[test]
fn child() {
    let Ok(note) = std::env::var(NOTE) else { return };
    let mut comm = Communicator::join_with(1, 2, &setup(1), |_| Ok(note)).expect("rank 1");
    let mut part = comm.split(&[0, 1]).expect("a part").expect("of all");
    let mut executor = CallExecutor::new(
        roundelay::internal::core(&mut part).expect("at home"),
        gpus().expect("GPUs"),
    );
    (0..20).try_for_each(|_| executor.call()).expect("calls");
    executor.enters(5);
    kill_process(getpid(), Signal::KILL).expect("the end");
}

#[test]
fn a_rank_that_is_killed_ends_kernels_that_wait() {
    let Some(gpus) = gpus() else { return };
    let (_kept, since) = (kept(gpus), Instant::now());
    let name = module_path!().split_once("::").expect("a crate").1;
    for round in 0..rounds() {
        let mut child: Option<Child> = None;
        let comm = Communicator::join_with(0, 2, &setup(0), |note| {
            let note = note.expect("rank 0 has it");
            let program = std::env::current_exe().expect("this test");
            let mut command = Command::new(program);
            command.args(["--exact", &format!("{name}::child"), "--test-threads=1"]);
            child = Some(command.env(NOTE, note).spawn().expect("a process"));
            Ok(note.to_owned())
        });
        let mut comm = comm.expect("rank 0");
        let mut part = comm.split(&[0, 1]).expect("a part").expect("of all");
        let mut executor =
            CallExecutor::new(roundelay::internal::core(&mut part).expect("at home"), gpus);
        let error = executor.fails();
        assert!(matches!(error, Error::LostRank { lost: 1, .. }), "in round {round}: {error}");
        executor.leave();
        drop((part, comm));
        let ended = child.expect("it was started").wait().expect("its end");
        assert!(!ended.success(), "it was killed");
    }
    count("kill", rounds(), since);
}

/// Kernels fill and read slots in memory of the GPU; proxies copy what goes from host to host, for want of devices that
/// would reach it there.
#[test]
fn kernels_run_over_slots_on_the_gpu() {
    let Some(gpus) = gpus() else { return };
    let body = |mut comm: Communicator| {
        let mut part = comm.split(&[0, 1]).expect("a part").expect("of all");
        let core = roundelay::internal::core(&mut part).expect("at home");
        let device = Some(core.rank() % gpus);
        let options = CudaOptions { device, slots_on_gpu: true, ..CudaOptions::default() };
        let mut executor = CallExecutor::with(core, &options);
        let rank = executor.core.rank() as f32;
        let lanes = executor.gpu.proxies().expect("another host");
        if let GpuDirect::Refused(why) = lanes.direct() {
            return skip(CheckNeeds::Gpus, why);
        }
        assert_eq!(lanes.direct(), &GpuDirect::Used);
        for round in 0..20 {
            let mine = |i: usize| (i % 1009 + round) as f32 * (rank + 1.0);
            let before: Vec<f32> = (0..COUNT).map(mine).collect();
            executor.data.copy_from(&before).expect("a copy");
            executor.call().expect("a call");
            executor.synchronize().expect("it ends well");
            let mut sums = vec![f32::NAN; COUNT];
            executor.data.copy_to(&mut sums).expect("a copy");
            let wrong =
                sums.iter().enumerate().find(|&(i, &sum)| sum != (i % 1009 + round) as f32 * 3.0);
            assert_eq!(wrong, None, "round {round}");
        }
    };
    on_both(body);
}

/// The driver exports memory for the network as a descriptor of its own, and copies come back as they went.
#[test]
fn memory_for_the_network_is_exported() {
    let Some(_) = gpus() else { return };
    let device = probe().expect("a driver").devices.remove(0);
    let context = DeviceContext::new(device).expect("a context");
    let Some(memory) = NetworkMemory::new(&context, 1 << 20).expect("a driver") else {
        return skip(CheckNeeds::Gpus, "the driver exports no memory for the network");
    };
    let (base, bytes) = memory.place();
    assert!(base != 0 && bytes >= 1 << 20);
    let descriptor = memory.export().expect("it is exported");
    let name = std::fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd()));
    let name = name.expect("an open descriptor");
    assert!(name.to_string_lossy().contains("dmabuf"), "{}", name.display());
    let sent: Vec<u8> = (0..5000u32).map(|i| (i * 7) as u8).collect();
    memory.store(bytes - 5000, &sent).expect("a copy");
    memory.flush().expect("it may be called at any time");
    let mut found = vec![0; 5000];
    memory.load(bytes - 5000, &mut found).expect("a copy");
    assert_eq!(found, sent);
}
