//! The kind of an error, and an error taken apart: the ranks that it is about, and the place.

use crate::error::{Error, ErrorLocation};

/// The kind of an error: what a program may do about it. Bindings number or name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum ErrorKind {
    /// None of the others.
    Other = 0,
    /// A rank did not answer in time.
    Timeout = 1,
    /// A rank is gone.
    LostRank = 2,
    /// Ranks do not make the same call, or a message does not fit its receive.
    Mismatch = 3,
    /// This rank stopped because another one failed, or because the job was ended.
    Aborted = 4,
    /// There is no memory.
    Memory = 5,
    /// The CUDA driver failed.
    Cuda = 6,
    /// Valid, but not supported by this build or device.
    Unsupported = 7,
    /// The call is wrong; nothing has moved.
    Usage = 8,
    /// A hint or a setting is wrong.
    Settings = 9,
    /// The compiler refused an algorithm.
    Refused = 10,
    /// The ranks did not come together.
    Start = 11,
    /// A window does not allow an access, or is over; nothing has moved.
    Window = 12,
}

impl ErrorKind {
    /// Returns the name, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::Other => "other",
            ErrorKind::Timeout => "timeout",
            ErrorKind::LostRank => "lost_rank",
            ErrorKind::Mismatch => "mismatch",
            ErrorKind::Aborted => "aborted",
            ErrorKind::Memory => "memory",
            ErrorKind::Cuda => "cuda",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::Usage => "usage",
            ErrorKind::Settings => "settings",
            ErrorKind::Refused => "refused",
            ErrorKind::Start => "start",
            ErrorKind::Window => "window",
        }
    }
}

/// The parts of an error.
#[derive(Debug, Clone, Copy)]
pub struct ErrorParts<'a> {
    /// The kind.
    pub kind: ErrorKind,
    /// The place in an algorithm, if it is known.
    pub location: Option<&'a ErrorLocation>,
    /// The rank that reports.
    pub rank: Option<u32>,
    /// The rank that is to blame, or that was waited for.
    pub peer: Option<u32>,
}

impl Error {
    /// Returns the kind of the error: what a program may do about it.
    pub fn kind(&self) -> ErrorKind {
        self.parts().kind
    }

    /// Takes the error apart.
    pub fn parts(&self) -> ErrorParts<'_> {
        let parts = |kind, location, rank, peer| ErrorParts { kind, location, rank, peer };
        match self {
            Error::Timeout { location, peer, .. } => {
                parts(ErrorKind::Timeout, Some(&**location), Some(location.rank), Some(*peer))
            }
            Error::LostRank { rank, lost, location, .. } => {
                parts(ErrorKind::LostRank, location.as_deref(), Some(*rank), Some(*lost))
            }
            Error::PlanMismatch { rank, peer, .. } => {
                parts(ErrorKind::Mismatch, None, Some(*rank), Some(*peer))
            }
            Error::MessageMismatch { location, peer, .. } => {
                parts(ErrorKind::Mismatch, Some(&**location), Some(location.rank), Some(*peer))
            }
            Error::Aborted { rank, by, location, .. } => {
                parts(ErrorKind::Aborted, location.as_deref(), Some(*rank), Some(*by))
            }
            Error::Memory { .. } => parts(ErrorKind::Memory, None, None, None),
            Error::Cuda { rank, .. } => parts(ErrorKind::Cuda, None, Some(*rank), None),
            Error::Unsupported(_) => parts(ErrorKind::Unsupported, None, None, None),
            Error::Usage(_) | Error::Forked { .. } => parts(ErrorKind::Usage, None, None, None),
            Error::Settings { .. } => parts(ErrorKind::Settings, None, None, None),
            Error::Refused { .. } => parts(ErrorKind::Refused, None, None, None),
            Error::Start(_) | Error::System { .. } => parts(ErrorKind::Start, None, None, None),
            Error::Window { rank, .. } => parts(ErrorKind::Window, None, Some(*rank), None),
            _ => parts(ErrorKind::Other, None, None, None),
        }
    }
}

impl<'a> ErrorParts<'a> {
    /// Returns the step in the algorithm, if it is known.
    pub fn step(&self) -> Option<u32> {
        self.location.map(|at| at.step)
    }

    /// Returns `file:line:column` of the statement, if it is known.
    pub fn source(&self) -> Option<&'a str> {
        self.location.map(|at| at.site.as_str()).filter(|site| !site.is_empty())
    }
}
