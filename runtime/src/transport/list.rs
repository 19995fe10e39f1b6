//! The list of transports, and what is made of it.

/// Makes of the list of transports the types that know all of them. A line has a variant and, for a posted link,
/// the stream that carries its bytes. Calls are dispatched by a `match`: no table of functions is between a
/// message and its system call.
macro_rules! transports {
    ($($name:ident $(carries $carrier:ty)?;)+) => {
        /// What carries the bytes of a connection: the stream of one of the transports.
        pub(crate) enum Carrier {
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

            #[inline]
            fn read(&self, places: &mut [IoSliceMut<'_>]) -> Result<usize, Fault> {
                match self {
                    $($(Carrier::$name(stream) => <$carrier as ByteStream>::read(stream, places),)?)+
                }
            }

            #[inline]
            unsafe fn read_placed(&self, places: &mut [IoSliceMut<'_>]) -> Result<usize, Fault> {
                match self {
                    // SAFETY: promised by the caller.
                    $($(Carrier::$name(stream) => unsafe { <$carrier as ByteStream>::read_placed(stream, places) },)?)+
                }
            }

            #[inline]
            fn write(&self, places: &[IoSlice<'_>]) -> Result<usize, Fault> {
                match self {
                    $($(Carrier::$name(stream) => <$carrier as ByteStream>::write(stream, places),)?)+
                }
            }

            #[inline]
            unsafe fn write_zero_copy(&self, places: &[IoSlice<'_>]) -> Result<usize, Fault> {
                match self {
                    // SAFETY: promised by the caller.
                    $($(Carrier::$name(stream) => unsafe { <$carrier as ByteStream>::write_zero_copy(stream, places) },)?)+
                }
            }

            #[inline]
            fn zero_copy(&self) -> u64 {
                match self {
                    $($(Carrier::$name(stream) => <$carrier as ByteStream>::zero_copy(stream),)?)+
                }
            }

            #[inline]
            fn settle(&self) -> Result<bool, Fault> {
                match self {
                    $($(Carrier::$name(stream) => <$carrier as ByteStream>::settle(stream),)?)+
                }
            }

            fn unacknowledged(&self) -> u64 {
                match self {
                    $($(Carrier::$name(stream) => <$carrier as ByteStream>::unacknowledged(stream),)?)+
                }
            }

            fn silence(&mut self, now: Instant) -> Option<Fault> {
                match self {
                    $($(Carrier::$name(stream) => <$carrier as ByteStream>::silence(stream, now),)?)+
                }
            }

            fn over(&self) -> Option<Fault> {
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
        }
    };
}
pub(super) use transports;
