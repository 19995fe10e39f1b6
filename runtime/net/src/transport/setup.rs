//! Setup of transports: which of them can be used here, and how the two ends of a posted link begin to meet.

use super::fault::ConnectionFault;
use super::list::{Transport, transports};
use super::resources::StreamResources;
use super::stream::StreamHandshake;
use super::unavailable::TransportUnavailable;
use super::{rdma, shm, tcp};
use roundelay_tls::PeerSocket;

macro_rules! define_setup {
    ($($(#[$doc:meta])* $name:ident $constant:ident $module:ident $(carries $carrier:ident)?;)+) => {
        impl Transport {
            /// Lists the devices that would be used here, a line each, if it needs any.
            ///
            /// # Errors
            ///
            /// The reason why it cannot be used here, and the remedy.
            pub fn probe(self) -> Result<Vec<String>, TransportUnavailable> {
                match self {
                    $(Transport::$name => $module::probe(),)+
                }
            }

            /// Begins to meet the peer at the other end of a fresh socket.
            pub(crate) fn begin(self, socket: PeerSocket, means: &StreamResources) -> StreamHandshake {
                match self {
                    $($(Transport::$name => {
                        let _ = stringify!($carrier);
                        $module::begin(socket, means)
                    })?)+
                    _ => StreamHandshake::Failed(ConnectionFault::Protocol("its links are no streams")),
                }
            }
        }
    };
}

transports!(define_setup);
