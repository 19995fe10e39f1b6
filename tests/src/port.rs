//! Ports for stores of jobs, which a rank opens that is started later.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// Returns a port that was free a moment ago, and that the system gives to nobody by itself: it takes those from 32768
/// on.
pub fn port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut ports = std::iter::from_fn(|| {
        let next =
            std::process::id().wrapping_mul(31).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        Some(20_000 + (next % 12_000) as u16)
    });
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    ports.by_ref().take(12_000).find(is_free).expect("a port")
}
