//! The examples stand beside this file, numbered; this library is empty.
//!
//! * `01_ring.algo`: the whole of an algorithm. `roundelay run examples/01_ring.algo -n 4`
//! * `02_wrong_ring.algo`: a mistake, and how it is shown. `roundelay check examples/02_wrong_ring.algo`
//! * `03_halo.algo`: a collective of one's own. `roundelay run examples/03_halo.algo -n 4`
//! * `04_threads.rs`: ranks as threads. `cargo run -p roundelay-examples --example 04_threads`
//! * `05_processes.rs`: ranks as processes. `cargo run -p roundelay-examples --example 05_processes`
