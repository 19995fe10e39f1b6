//! The examples stand beside this folder, numbered; this library has what those for several GPUs share.
//!
//! * `01_ring.algo`: the whole of an algorithm. `roundelay run examples/01_ring.algo -n 4`
//! * `02_wrong_ring.algo`: a mistake, and how it is shown. `roundelay check examples/02_wrong_ring.algo`
//! * `03_halo.algo`: a collective of one's own. `roundelay run examples/03_halo.algo -n 4`
//! * `04_threads.rs`: ranks as threads. `cargo run -p roundelay-examples --example 04_threads`
//! * `05_processes.rs`: ranks as processes. `cargo run -p roundelay-examples --example 05_processes`
//! * `06_async.rs`: calls in the background, and another algorithm on the way.
//!   `cargo run -p roundelay-examples --example 06_async`
//! * `07_split_and_batch.rs`: parts of the ranks, messages between single ranks, unequal blocks.
//!   `cargo run -p roundelay-examples --example 07_split_and_batch`
//! * `08_own_algorithm.rs`: load, run, install and replace an algorithm.
//!   `cargo run -p roundelay-examples --example 08_own_algorithm`
//! * `09_sockets.rs`: shared memory inside a machine, TCP between them.
//!   `cargo run -p roundelay-examples --example 09_sockets`
//! * `10_overlap.rs`: the main thread computes while the progress thread runs a call; prints what that saves.
//!   `cargo run --release -p roundelay-examples --example 10_overlap`
//! * `11_elastic.rs`: training that goes on without a worker, and takes in another.
//!   `cargo run -p roundelay-examples --example 11_elastic`
//! * `12_fused_norm.rs`: on GPUs, a kernel of one's own that calls all_reduce as a function, and goes on with its
//!   result. `cargo run --release -p roundelay-examples --example 12_fused_norm`
//! * `13_matmul_scatter.rs`: on GPUs, a matrix product whose parts enter a reduce_scatter as they are ready.
//!   `cargo run --release -p roundelay-examples --example 13_matmul_scatter`
//! * `14_experts.rs`: on GPUs, tokens to their experts and back in one graph, by counts that the host never reads.
//!   `cargo run --release -p roundelay-examples --example 14_experts`
//! * `15_parameter_server.rs`: workers pull a model from a window of the server's, and push to it.
//!   `cargo run -p roundelay-examples --example 15_parameter_server`
//! * `16_checkpoint.rs`: checkpoints that drain by window puts while the workers compute; one is killed, and the others
//!   restore. `cargo run --release -p roundelay-examples --example 16_checkpoint`

pub mod gpus;

/// The page on the Rust API, whose blocks are tested as they stand.
#[cfg(doctest)]
#[doc = include_str!("../../docs/api.md")]
pub struct ApiPage;

/// The page that everybody reads first.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct ReadmePage;
