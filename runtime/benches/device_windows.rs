//! The time of puts and gets of windows of device memory on two GPUs, beside a plain copy of the driver's to the same
//! address, by turns; and of a ping-pong of a put and a signal.
//!
//! Prints `OPERATION BYTES MICROSECONDS PLAIN RATIO` for each size: the median over blocks of operations in a stream,
//! by events; of a ping-pong half of the time, with nothing to compare it with.

#![expect(clippy::print_stdout, reason = "its result is what it prints")]

#[cfg(not(feature = "cuda"))]
fn main() {
    println!("built without the feature `cuda`");
}

#[cfg(feature = "cuda")]
fn main() -> Result<(), roundelay::Error> {
    gpus::main()
}

#[cfg(feature = "cuda")]
mod gpus {
    use roundelay::cuda::{CudaBuffer, CudaOptions, CudaStream, DeviceWindow, probe};
    use roundelay::launch::RankLauncher;
    use roundelay::{Communicator, Error};

    /// The lengths that are measured, in bytes.
    const SIZES: [usize; 9] =
        [8, 64, 1 << 10, 8 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20, 256 << 20];
    const BLOCKS: usize = 31;

    pub(crate) fn main() -> Result<(), Error> {
        if Communicator::is_launched()? {
            return run();
        }
        if let Err(why) = probe() {
            println!("no GPUs: {why}");
            return Ok(());
        }
        let program = std::env::current_exe().map_err(|e| Error::Start(e.to_string()))?;
        let outcome =
            RankLauncher::new(2).program(program).run(|_rank, line| println!("{line}"))?;
        assert!(outcome.cause.is_none(), "{:?}", outcome.cause);
        Ok(())
    }

    struct Bench {
        gpu: Communicator,
        stream: CudaStream,
        window: DeviceWindow<CudaBuffer<u8>>,
        data: CudaBuffer<u8>,
    }

    fn run() -> Result<(), Error> {
        let mut comm = Communicator::from_env()?;
        let mut gpu = comm.cuda(CudaOptions::default())?;
        let most = SIZES[SIZES.len() - 1];
        let (buffer, data) = (gpu.alloc_device(most)?, gpu.alloc_device(most)?);
        let window = gpu.device_window(buffer)?;
        let stream = gpu.stream()?;
        let mut bench = Bench { gpu, stream, window, data };
        let other = 1 - bench.gpu.rank();
        for bytes in SIZES {
            if bench.gpu.rank() == 0 {
                for gets in [false, true] {
                    bench.transfers(gets, bytes)?;
                }
            }
            bench.gpu.barrier()?;
            bench.pingpong(other, bytes)?;
        }
        bench.gpu.barrier()
    }

    impl Bench {
        /// Compares transfers of that many bytes with plain copies.
        fn transfers(&mut self, gets: bool, bytes: usize) -> Result<(), Error> {
            let there = self.window.map_remote(&mut self.gpu, 1)?.address();
            let own = self.data.ptr().address();
            let stream = self.stream.raw().cast();
            let (to, from) = if gets { (own, there) } else { (there, own) };
            let (mut ours, mut plain) = (Vec::new(), Vec::new());
            let times = ((16 << 20) / bytes).clamp(4, 200);
            for _ in 0..BLOCKS {
                ours.push(self.block(times, |bench| match gets {
                    false => {
                        let data = bench.data.slice(0..bytes)?;
                        bench.window.put(&mut bench.gpu, &data, 1, 0)
                    }
                    true => {
                        let mut data = bench.data.slice(0..bytes)?;
                        bench.window.get(&mut bench.gpu, &mut data, 1, 0)
                    }
                })?);
                plain.push(self.block(times, |_| {
                    // SAFETY: both are memory of that many bytes, and the stream is waited for.
                    let copied = unsafe {
                        cudarc::driver::result::memcpy_dtod_async(to, from, bytes, stream)
                    };
                    copied.map_err(|e| Error::Start(e.to_string()))
                })?);
            }
            let (ours, plain) = (median(ours), median(plain));
            let name = if gets { "get" } else { "put" };
            println!("{name} {bytes} {ours:.3} {plain:.3} {:.3}", plain / ours);
            Ok(())
        }

        /// Measures a ping-pong of a put and a signal, of both ranks.
        fn pingpong(&mut self, other: u32, bytes: usize) -> Result<(), Error> {
            let data = self.data.slice(0..bytes)?;
            let mut times = Vec::new();
            for _ in 0..BLOCKS {
                self.gpu.barrier()?;
                times.push(self.block(20, |bench| {
                    let begins = bench.gpu.rank() == 0;
                    if !begins {
                        bench.window.wait_signal(&mut bench.gpu, other)?;
                    }
                    bench.window.put(&mut bench.gpu, &data, other, 0)?;
                    bench.window.signal(&mut bench.gpu, other)?;
                    if begins {
                        bench.window.wait_signal(&mut bench.gpu, other)?;
                    }
                    Ok(())
                })?);
            }
            if self.gpu.rank() == 0 {
                println!("pingpong {bytes} {:.3} - -", median(times) / 2.0);
            }
            Ok(())
        }

        /// Returns the microseconds of an operation, of that many in a row.
        fn block(
            &mut self,
            times: usize,
            mut one: impl FnMut(&mut Self) -> Result<(), Error>,
        ) -> Result<f64, Error> {
            let stream = self.stream.clone();
            let begun = self.gpu.work(&stream)?;
            (0..times).try_for_each(|_| one(self))?;
            let ended = self.gpu.work(&stream)?;
            self.gpu.wait(&ended)?;
            Ok(ended.since_us(&begun)? / times as f64)
        }
    }

    fn median(mut times: Vec<f64>) -> f64 {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    }
}
