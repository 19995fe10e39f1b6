//! The list of transports, and what is made of it.

/// Makes of the list of transports whatever knows all of them. A line has a variant, the name of a constant, the
/// module and, if its links are posted, the [`ByteStream`](super::stream::ByteStream) that carries them. Modules
/// have a function `probe`, and `begin` if they have a stream.
///
/// Calls are dispatched by a `match`: no table of functions is between a message and its system call.
macro_rules! transports {
    ($($(#[$doc:meta])* $name:ident $constant:ident $module:ident $(carries $carrier:ident)?;)+) => {
        /// A way to reach other ranks.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Transport {
            $($(#[$doc])* $name,)+
        }

        impl Transport {
            /// All transports, in the order in which they are preferred between ranks of one machine; between
            /// machines the last one that both have goes first.
            pub const ALL: &'static [Transport] = &[$(Transport::$name),+];

            /// Returns the name by which it is written.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Transport::$name => stringify!($module),)+
                }
            }

            /// Returns the name by which people call it.
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

            /// Lists the devices that would be used here, a line each, if it needs any.
            ///
            /// # Errors
            ///
            /// The reason why it cannot be used here, and the remedy.
            pub fn probe(self) -> Result<Vec<String>, Unavailable> {
                match self {
                    $(Transport::$name => $module::probe(),)+
                }
            }

            /// Begins to meet the peer at the other end of a fresh socket.
            pub(crate) fn begin(self, socket: OwnedFd, means: &Means) -> Handshake {
                match self {
                    $($(Transport::$name => {
                        let _ = stringify!($carrier);
                        $module::begin(socket, means)
                    })?)+
                    _ => Handshake::Failed(Fault::Protocol("its links are no streams")),
                }
            }
        }

        impl Transports {
            $($(#[$doc])* pub const $constant: Transports = Transports::of(Transport::$name);)+
            /// All of them.
            pub const ALL: Transports = Transports::NONE$(.with(Transport::$name))+;
        }

        /// A carrier moves the bytes of a connection: it is the stream of one of the transports.
        pub enum Carrier {
            $($(
                #[doc = concat!("[`", stringify!($module), "::", stringify!($carrier), "`]")]
                $name($module::$carrier),
            )?)+
        }

        $($(impl From<$module::$carrier> for Carrier {
            fn from(carrier: $module::$carrier) -> Carrier {
                Carrier::$name(carrier)
            }
        })?)+

        impl ByteStream for Carrier {
            fn tune(&self) -> Result<(), Errno> {
                match self {
                    $($(Carrier::$name(stream) => <$module::$carrier as ByteStream>::tune(stream),)?)+
                }
            }

            fn fd(&self) -> &Arc<OwnedFd> {
                match self {
                    $($(Carrier::$name(stream) => <$module::$carrier as ByteStream>::fd(stream),)?)+
                }
            }

            fn wakes(&self) -> bool {
                match self {
                    $($(Carrier::$name(stream) => <$module::$carrier as ByteStream>::wakes(stream),)?)+
                }
            }

            #[inline]
            fn read(&self, places: &mut [IoSliceMut<'_>]) -> Result<usize, Fault> {
                match self {
                    $($(Carrier::$name(stream) => <$module::$carrier as ByteStream>::read(stream, places),)?)+
                }
            }

            #[inline]
            unsafe fn read_placed(&self, places: &mut [IoSliceMut<'_>]) -> Result<usize, Fault> {
                match self {
                    // SAFETY: promised by the caller.
                    $($(Carrier::$name(stream) => unsafe {
                        <$module::$carrier as ByteStream>::read_placed(stream, places)
                    },)?)+
                }
            }

            #[inline]
            fn write(&self, places: &[IoSlice<'_>]) -> Result<usize, Fault> {
                match self {
                    $($(Carrier::$name(stream) => <$module::$carrier as ByteStream>::write(stream, places),)?)+
                }
            }

            #[inline]
            unsafe fn write_zero_copy(&self, places: &[IoSlice<'_>]) -> Result<usize, Fault> {
                match self {
                    // SAFETY: promised by the caller.
                    $($(Carrier::$name(stream) => unsafe {
                        <$module::$carrier as ByteStream>::write_zero_copy(stream, places)
                    },)?)+
                }
            }

            #[inline]
            fn zero_copy(&self) -> u64 {
                match self {
                    $($(Carrier::$name(stream) => <$module::$carrier as ByteStream>::zero_copy(stream),)?)+
                }
            }

            #[inline]
            fn settle(&self) -> Result<bool, Fault> {
                match self {
                    $($(Carrier::$name(stream) => <$module::$carrier as ByteStream>::settle(stream),)?)+
                }
            }

            fn unacknowledged(&self) -> u64 {
                match self {
                    $($(Carrier::$name(stream) => <$module::$carrier as ByteStream>::unacknowledged(stream),)?)+
                }
            }

            fn silence(&mut self, now: Instant) -> Option<Fault> {
                match self {
                    $($(Carrier::$name(stream) => <$module::$carrier as ByteStream>::silence(stream, now),)?)+
                }
            }

            fn over(&self) -> Option<Fault> {
                match self {
                    $($(Carrier::$name(stream) => <$module::$carrier as ByteStream>::over(stream),)?)+
                }
            }

            fn shut(&self) {
                match self {
                    $($(Carrier::$name(stream) => <$module::$carrier as ByteStream>::shut(stream),)?)+
                }
            }

            fn cut(&self) {
                match self {
                    $($(Carrier::$name(stream) => <$module::$carrier as ByteStream>::cut(stream),)?)+
                }
            }

            fn linger(&self) {
                match self {
                    $($(Carrier::$name(stream) => <$module::$carrier as ByteStream>::linger(stream),)?)+
                }
            }

            fn pinned(&self) -> u64 {
                match self {
                    $($(Carrier::$name(stream) => <$module::$carrier as ByteStream>::pinned(stream),)?)+
                }
            }

            fn one_sided(&self) -> Option<&dyn OneSided> {
                match self {
                    $($(Carrier::$name(stream) => <$module::$carrier as ByteStream>::one_sided(stream),)?)+
                }
            }
        }
    };
}
pub(super) use transports;
