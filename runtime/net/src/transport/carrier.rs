//! The carrier of a connection: the byte stream of one of the transports, dispatched by a `match`.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;

use super::fault::ConnectionFault;
use super::list::transports;
use super::one_sided::OneSided;
use super::rdma::DeviceStream;
use super::stream::ByteStream;
use super::tcp::TcpSocket;

/// Defines [`Carrier`]. No table of functions stands between a message and its system call.
macro_rules! define_carrier {
    ($($(#[$doc:meta])* $name:ident $constant:ident $module:ident $(carries $carrier:ident)?;)+) => {
        /// A carrier moves the bytes of a connection: it is the stream of one of the transports.
        pub enum Carrier {
            $($(
                #[doc = concat!("[`", stringify!($carrier), "`]")]
                $name($carrier),
            )?)+
        }

        $($(impl From<$carrier> for Carrier {
            fn from(carrier: $carrier) -> Carrier {
                Carrier::$name(carrier)
            }
        })?)+

        impl ByteStream for Carrier {
            fn tune(&self) -> Result<(), Errno> {
                match self {
                    $($(Carrier::$name(stream) => <$carrier as ByteStream>::tune(stream),)?)+
                }
            }

            fn fd(&self) -> &Arc<OwnedFd> {
                match self {
                    $($(Carrier::$name(stream) => <$carrier as ByteStream>::fd(stream),)?)+
                }
            }

            fn wakes(&self) -> bool {
                match self {
                    $($(Carrier::$name(stream) => <$carrier as ByteStream>::wakes(stream),)?)+
                }
            }

            fn has_input(&self) -> bool {
                match self {
                    $($(Carrier::$name(stream) => <$carrier as ByteStream>::has_input(stream),)?)+
                }
            }

            #[inline]
            fn read(&self, places: &mut [IoSliceMut<'_>]) -> Result<usize, ConnectionFault> {
                match self {
                    $($(Carrier::$name(stream) => <$carrier as ByteStream>::read(stream, places),)?)+
                }
            }

            #[inline]
            unsafe fn read_placed(&self, places: &mut [IoSliceMut<'_>]) -> Result<usize, ConnectionFault> {
                match self {
                    // SAFETY: promised by the caller.
                    $($(Carrier::$name(stream) => unsafe {
                        <$carrier as ByteStream>::read_placed(stream, places)
                    },)?)+
                }
            }

            #[inline]
            fn write(&self, places: &[IoSlice<'_>]) -> Result<usize, ConnectionFault> {
                match self {
                    $($(Carrier::$name(stream) => <$carrier as ByteStream>::write(stream, places),)?)+
                }
            }

            #[inline]
            unsafe fn write_zero_copy(&self, places: &[IoSlice<'_>]) -> Result<usize, ConnectionFault> {
                match self {
                    // SAFETY: promised by the caller.
                    $($(Carrier::$name(stream) => unsafe {
                        <$carrier as ByteStream>::write_zero_copy(stream, places)
                    },)?)+
                }
            }

            #[inline]
            fn zero_copy(&self) -> u64 {
                match self {
                    $($(Carrier::$name(stream) => <$carrier as ByteStream>::zero_copy(stream),)?)+
                }
            }

            #[inline]
            fn settle(&self) -> Result<bool, ConnectionFault> {
                match self {
                    $($(Carrier::$name(stream) => <$carrier as ByteStream>::settle(stream),)?)+
                }
            }

            fn unacknowledged(&self) -> u64 {
                match self {
                    $($(Carrier::$name(stream) => <$carrier as ByteStream>::unacknowledged(stream),)?)+
                }
            }

            fn silence(&mut self, now: Instant) -> Option<ConnectionFault> {
                match self {
                    $($(Carrier::$name(stream) => <$carrier as ByteStream>::silence(stream, now),)?)+
                }
            }

            fn over(&self) -> Option<ConnectionFault> {
                match self {
                    $($(Carrier::$name(stream) => <$carrier as ByteStream>::over(stream),)?)+
                }
            }

            fn shut(&self) {
                match self {
                    $($(Carrier::$name(stream) => <$carrier as ByteStream>::shut(stream),)?)+
                }
            }

            fn cut(&self) {
                match self {
                    $($(Carrier::$name(stream) => <$carrier as ByteStream>::cut(stream),)?)+
                }
            }

            fn linger(&self) {
                match self {
                    $($(Carrier::$name(stream) => <$carrier as ByteStream>::linger(stream),)?)+
                }
            }

            fn pinned(&self) -> u64 {
                match self {
                    $($(Carrier::$name(stream) => <$carrier as ByteStream>::pinned(stream),)?)+
                }
            }

            fn encryption_bytes(&self) -> u64 {
                match self {
                    $($(Carrier::$name(stream) => <$carrier as ByteStream>::encryption_bytes(stream),)?)+
                }
            }

            fn release_buffers(&self) {
                match self {
                    $($(Carrier::$name(stream) => <$carrier as ByteStream>::release_buffers(stream),)?)+
                }
            }

            fn one_sided(&self) -> Option<&dyn OneSided> {
                match self {
                    $($(Carrier::$name(stream) => <$carrier as ByteStream>::one_sided(stream),)?)+
                }
            }
        }
    };
}

transports!(define_carrier);
