//! Regions of links that end while a peer's access is under way.

use std::time::Duration;

use super::super::Endpoint;
use super::*;
use crate::launch::JobSetup;
use roundelay_net::transport::TransportSet;

/// The timeout of waits for accesses that never end.
const SHORT: Duration = Duration::from_millis(300);
/// The timeout of connections, which only a hang exceeds.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn memory_that_a_dropped_link_still_uses_is_not_given_back() {
    let setup = JobSetup::new().transports(TransportSet::SHM).interface("127.0.0.1").timeout(SHORT);
    let bind = || Endpoint::bind(&setup).expect("an endpoint");
    for is_used in [true, false] {
        let (a, b) = (bind(), bind());
        let region = a.register(vec![5u8; 8], WindowRights::WRITE).expect("a region");
        let links = [a.connect_async(&b.address(), LONG), b.connect_async(&a.address(), LONG)];
        let links = links.map(|link| link.wait().expect("a link"));
        let access = is_used.then(|| region.part.announce_access().expect("an access"));
        drop(links);
        match region.revoke() {
            Ok(buffer) => assert!(!is_used && buffer == [5; 8], "it is in use"),
            Err(error) => assert!(is_used && matches!(error, Error::Timeout { .. }), "{error}"),
        }
        drop(access);
    }
}
