//! Opens the GPUs of a communicator's ranks.

use super::communicator::Communicator;
use super::mixed::{OpenedGpu, StagedGpu};
use roundelay_cuda::{CudaOptions, agree, open};
use roundelay_support::error::Error;

impl Communicator {
    /// Opens these ranks on their GPUs. All ranks call together. The communicator that comes back is a part
    /// of this one ([`Communicator::split`]) with all its ranks: calls go on side by side, but an error that ends
    /// it ends this one too. Its calls take memory of the host and of the GPU; those on the GPU are put into a
    /// stream and return at once.
    ///
    /// The device's primary context is current on the calling thread afterwards.
    ///
    /// # Errors
    ///
    /// On all ranks if any fails, naming the rank and its reason: [`Error::Cuda`] if it has no GPU, no driver or
    /// no memory, or if GPUs of one host cannot reach each other; [`Error::Usage`] if ranks gave different options;
    /// [`Error::System`] if ranks on different hosts cannot be connected. Otherwise the errors of
    /// [`Communicator::split`].
    pub fn cuda(&mut self, options: CudaOptions) -> Result<Communicator, Error> {
        let mut comm = self.whole()?;
        let gpu = open(comm.core()?, &options)?;
        comm.gpu = Some(OpenedGpu::Kernels(Box::new(gpu)));
        Ok(comm)
    }

    /// Makes a part of all ranks, with the same hints.
    fn whole(&mut self) -> Result<Communicator, Error> {
        let ranks: Vec<u32> = (0..self.size()).collect();
        let hints = self.core()?.plans.hints().clone();
        let Some(mut comm) = self.split(&ranks)? else {
            return Err(Error::Usage("a rank is not among all ranks".into()));
        };
        comm.core()?.plans.set_hints(hints);
        Ok(comm)
    }

    /// Opens the GPUs of those ranks that have one: they give options, and the others give none. All ranks call
    /// together. The communicator that comes back is as of [`Communicator::cuda`], but that its calls take memory of
    /// the GPU or of the host, on each rank as it is. Results are those of hosts, bit for bit.
    ///
    /// This is [`Communicator::cuda`] if all ranks have a GPU. Else a call on memory of a GPU waits for what is in the
    /// stream, copies its input to the host, makes the call there and copies the result back, and returns when it is
    /// there. Calls by name, messages, batches and algorithms of one's own are served, and so are streams,
    /// [`Communicator::read`], [`Communicator::write`] and [`Communicator::fill`]; memory that all ranks map, graphs,
    /// windows and functions are not.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::cuda`].
    pub fn cuda_mixed(&mut self, options: Option<CudaOptions>) -> Result<Communicator, Error> {
        let with = self.core()?.words(options.is_some().into())?;
        if let (Some(options), true) = (&options, with.iter().all(|&with| with == 1)) {
            return self.cuda(options.clone());
        }
        let mut comm = self.whole()?;
        let rank = comm.rank();
        let made = options.map(|options| StagedGpu::open(rank, &options)).transpose();
        let staged = agree(comm.core()?, made)?;
        comm.gpu = staged.map(|staged| OpenedGpu::ByHost(Box::new(staged)));
        Ok(comm)
    }
}
