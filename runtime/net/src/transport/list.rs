//! The list of transports, and the type that names one.

use std::fmt;

/// Expands `$then!` with one row a transport: variant, constant, module and, if its links are posted, the byte stream
/// that carries them. `set`, `carrier` and `setup` expand the same rows.
macro_rules! transports {
    ($then:ident) => {
        $then! {
            /// Shared memory, between ranks of one machine.
            Shm SHM shm;
            /// TCP.
            Tcp TCP tcp carries TcpSocket;
            /// InfiniBand and RoCE, between ranks that both have it.
            Rdma RDMA rdma carries DeviceStream;
        }
    };
}
pub(super) use transports;

macro_rules! define_transport {
    ($($(#[$doc:meta])* $name:ident $constant:ident $module:ident $(carries $carrier:ident)?;)+) => {
        /// A way to reach other ranks.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Transport {
            $($(#[$doc])* $name,)+
        }

        impl Transport {
            /// All transports, in order of preference between ranks of one machine; between machines the last one that
            /// both have goes first.
            pub const ALL: &'static [Transport] = &[$(Transport::$name),+];

            /// Returns the name in hints, options and reports.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Transport::$name => stringify!($module),)+
                }
            }

            /// Returns the name in sentences.
            pub(crate) const fn title(self) -> &'static str {
                match self {
                    $(Transport::$name => stringify!($constant),)+
                }
            }

            /// Returns true if both ends of its links load and store in the same memory.
            pub const fn is_mapped(self) -> bool {
                match self {
                    $($(Transport::$name => { let _ = stringify!($carrier); false })?)+
                    _ => true,
                }
            }
        }
    };
}

transports!(define_transport);

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
