//! An error taken apart, as bindings show it: its kind, the ranks that it is about, and the place.

use roundelay::{Error, Location};

/// The kind of an error: what a program may do about it. Bindings number or name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum Kind {
    /// None of the others.
    Other = 0,
    /// A rank did not answer in time.
    Timeout = 1,
    /// A rank is gone.
    LostRank = 2,
    /// Ranks do not make the same call, or a message does not fit its receive.
    Mismatch = 3,
    /// This rank stopped because another one failed, or somebody ended the job.
    Aborted = 4,
    /// There is no memory.
    Memory = 5,
    /// The CUDA driver failed.
    Cuda = 6,
    /// The call is right, and is not there.
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

impl Kind {
    /// Returns the name, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Other => "other",
            Kind::Timeout => "timeout",
            Kind::LostRank => "lost_rank",
            Kind::Mismatch => "mismatch",
            Kind::Aborted => "aborted",
            Kind::Memory => "memory",
            Kind::Cuda => "cuda",
            Kind::Unsupported => "unsupported",
            Kind::Usage => "usage",
            Kind::Settings => "settings",
            Kind::Refused => "refused",
            Kind::Start => "start",
            Kind::Window => "window",
        }
    }
}

/// The parts of an error.
#[derive(Debug, Clone, Copy)]
pub struct Fault<'a> {
    /// The kind.
    pub kind: Kind,
    /// The place in an algorithm, if it is known.
    pub location: Option<&'a Location>,
    /// The rank that reports.
    pub rank: Option<u32>,
    /// The rank that is to blame, or that was waited for.
    pub peer: Option<u32>,
}

impl<'a> Fault<'a> {
    /// Takes an error apart.
    pub fn of(error: &'a Error) -> Self {
        let fault = |kind, location, rank, peer| Fault { kind, location, rank, peer };
        match error {
            Error::Timeout { location, peer, .. } => {
                fault(Kind::Timeout, Some(&**location), Some(location.rank), Some(*peer))
            }
            Error::LostRank { rank, lost, location, .. } => {
                fault(Kind::LostRank, location.as_deref(), Some(*rank), Some(*lost))
            }
            Error::PlanMismatch { rank, peer, .. } => {
                fault(Kind::Mismatch, None, Some(*rank), Some(*peer))
            }
            Error::MessageMismatch { location, peer, .. } => {
                fault(Kind::Mismatch, Some(&**location), Some(location.rank), Some(*peer))
            }
            Error::Aborted { rank, by, location, .. } => {
                fault(Kind::Aborted, location.as_deref(), Some(*rank), Some(*by))
            }
            Error::Memory { .. } => fault(Kind::Memory, None, None, None),
            Error::Cuda { rank, .. } => fault(Kind::Cuda, None, Some(*rank), None),
            Error::Unsupported(_) => fault(Kind::Unsupported, None, None, None),
            Error::Usage(_) | Error::Forked { .. } => fault(Kind::Usage, None, None, None),
            Error::Settings { .. } => fault(Kind::Settings, None, None, None),
            Error::Refused { .. } => fault(Kind::Refused, None, None, None),
            Error::Start(_) | Error::System { .. } => fault(Kind::Start, None, None, None),
            Error::Window { rank, .. } => fault(Kind::Window, None, Some(*rank), None),
            _ => fault(Kind::Other, None, None, None),
        }
    }

    /// Returns the step in the algorithm, if it is known.
    pub fn step(&self) -> Option<u32> {
        self.location.map(|at| at.step)
    }

    /// Returns `file:line:column` of the statement, if it is known.
    pub fn source(&self) -> Option<&'a str> {
        self.location.map(|at| at.site.as_str()).filter(|site| !site.is_empty())
    }
}
