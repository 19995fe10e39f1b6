//! Agrees before a kernel runs that all ranks can run it, or who cannot and why; and passes messages that
//! carry descriptors.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use crate::nvlink::{DescriptorError, DescriptorMessage, DescriptorSocket};
use roundelay_engine::EngineCore;
use roundelay_support::error::{Error, ErrorSource};

/// The most bytes of a reason that are passed on.
const REASON: usize = 600;
/// The bit in the word of a rank that refuses a call for its arguments, beside the length of its reason.
const REFUSES: u64 = 1 << 32;

/// Agrees whether all ranks could do a thing. If one could not, all fail, with its reason.
pub fn agree<T>(core: &mut EngineCore, own: Result<T, Error>) -> Result<T, Error> {
    let reason = own.as_ref().err().map(|error| (error.to_string(), is_refusal(error)));
    let mut text = reason.as_ref().map(|(text, _)| text.as_bytes()).unwrap_or_default();
    text = &text[..text.len().min(REASON)];
    let word = match reason {
        None => 0,
        Some((_, refuses)) => text.len() as u64 + 1 + if refuses { REFUSES } else { 0 },
    };
    let words = core.words(word)?;
    let Some(failed) = words.iter().position(|&word| word != 0) else { return own };
    let longest = words.iter().map(|word| *word as u32).max().unwrap_or(0).saturating_sub(1);
    let mut bytes_of_reason = Vec::new();
    for at in 0..(longest as usize).min(REASON).div_ceil(8) {
        let mut bytes = [0; 8];
        let part = text.get(at * 8..text.len().min(at * 8 + 8)).unwrap_or_default();
        bytes[..part.len()].copy_from_slice(part);
        core.control_all_gather(u64::from_le_bytes(bytes), |rank, word| {
            if rank as usize == failed {
                bytes_of_reason.extend(word.to_le_bytes());
            }
        })?;
    }
    own?;
    let reason = String::from_utf8_lossy(&bytes_of_reason);
    let reason = reason.trim_end_matches('\0');
    Err(match words[failed] & REFUSES {
        0 => Error::Cuda {
            rank: failed as u32,
            device: String::new(),
            what: shorn(reason, failed),
            source: None,
        },
        _ => Error::Usage(format!("rank {failed} refuses the call: {reason}")),
    })
}

/// Returns true if an error is about the arguments of a call.
fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Usage(_) | Error::Unsupported(_) | Error::Refused { .. })
}

/// Returns a reason without the rank that the error names again.
fn shorn(reason: &str, rank: usize) -> String {
    let reason = reason.strip_prefix(&format!("rank {rank}")).unwrap_or(reason);
    reason.trim_start_matches([',', ':', ' ']).to_string()
}

/// Shows a word to all ranks; returns the first rank whose word is another.
pub(super) fn same(core: &mut EngineCore, word: u64) -> Result<Option<u32>, Error> {
    let words = core.words(word)?;
    Ok((0u32..).zip(&words).find(|(_, theirs)| **theirs != word).map(|(rank, _)| rank))
}

/// The reason for which messages did not come.
enum TradeError {
    /// An error that concerns all ranks: they have it, or get it.
    Ended(Error),
    /// A rank did not pass its message in time.
    Late(u32),
    /// This rank's socket does not serve.
    Failed(DescriptorError),
}

impl From<DescriptorError> for TradeError {
    fn from(error: DescriptorError) -> Self {
        TradeError::Failed(error)
    }
}

/// Exchanges a message from every rank to every rank of a host; `tokens` has none of ranks on other hosts.
///
/// # Errors
///
/// The outer one ends the communicator; the inner one is to be agreed on.
pub(super) fn trade(
    core: &mut EngineCore,
    (socket, tokens): (&mut DescriptorSocket, &[Option<u64>]),
    content: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<Result<Vec<Option<DescriptorMessage>>, Error>, Error> {
    let deadline = Instant::now() + core.timeout();
    let timeout = |awaited: u32| -> Result<(), TradeError> {
        core.hear(None).map_err(TradeError::Ended)?;
        if let Some(how) = core.gone(awaited, true) {
            return Err(TradeError::Ended(core.lost(awaited, how, None)));
        }
        match Instant::now() < deadline {
            true => Ok(()),
            false => Err(TradeError::Late(awaited)),
        }
    };
    let (what, source) = match socket.exchange(tokens, content, descriptors, timeout) {
        Ok(messages) => return Ok(Ok(messages)),
        Err(TradeError::Ended(error)) => return Err(core.fail(error)),
        Err(TradeError::Late(rank)) => {
            (format!("rank {rank} did not pass its descriptors within {:?}", core.timeout()), None)
        }
        Err(TradeError::Failed(error)) => (error.to_string(), Some(ErrorSource::new(error))),
    };
    Ok(Err(Error::Cuda { rank: core.rank(), device: String::new(), what, source }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundelay::Communicator;

    fn everywhere<R: Send>(ranks: u32, body: impl Fn(&mut EngineCore) -> R + Sync) -> Vec<R> {
        let comms = Communicator::local(ranks).expect("ranks");
        let body = &body;
        std::thread::scope(|scope| {
            let ranks: Vec<_> = comms
                .into_iter()
                .map(|mut comm| {
                    scope
                        .spawn(move || body(roundelay::internal::core(&mut comm).expect("at home")))
                })
                .collect();
            ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
        })
    }

    #[test]
    fn all_learn_who_could_not_and_why() {
        let long = "x".repeat(2 * REASON);
        for text in ["out of luck", "", &long] {
            let results = everywhere(3, |core| {
                let own = match core.rank() {
                    1 => Err(Error::Cuda {
                        rank: 1,
                        device: "0 (G)".into(),
                        what: text.into(),
                        source: None,
                    }),
                    rank => Ok(rank),
                };
                let first = agree(core, own);
                // The next control is in step.
                (first, agree(core, Ok(7)))
            });
            for (first, second) in results {
                let error = first.expect_err("rank 1 could not").to_string();
                let wanted = format!("rank 1, GPU 0 (G): {text}");
                let text = error.replace("rank 1: GPU", "rank 1, GPU");
                assert!(wanted.starts_with(&text[..text.len().min(500)]), "{text}");
                assert_eq!(second, Ok(7));
            }
        }
    }

    #[test]
    fn a_refused_call_is_a_usage_error_everywhere() {
        let results = everywhere(2, |core| match core.rank() {
            0 => agree(core, Err::<(), _>(Error::Unsupported("no such thing".into()))),
            _ => agree(core, Ok(())),
        });
        assert_eq!(results[0], Err(Error::Unsupported("no such thing".into())));
        let text = "rank 0 refuses the call: no such thing";
        assert_eq!(results[1], Err(Error::Usage(text.into())));
    }

    #[test]
    fn a_word_that_differs_is_found() {
        let results = everywhere(3, |core| same(core, u64::from(core.rank() == 2)));
        assert_eq!(results, [Ok(Some(2)), Ok(Some(2)), Ok(Some(0))]);
        let alike = everywhere(3, |core| same(core, 5));
        assert!(alike.iter().all(|result| *result == Ok(None)));
    }

    #[test]
    fn messages_go_round() {
        let results = everywhere(4, |core| {
            let mut socket = DescriptorSocket::open(core.rank()).expect("a socket");
            let tokens = core.words(socket.token()).expect("words");
            let tokens: Vec<Option<u64>> = tokens.into_iter().map(Some).collect();
            let own = core.rank().to_string();
            let messages = trade(core, (&mut socket, &tokens), own.as_bytes(), &[]);
            let messages = messages.expect("all are there").expect("messages");
            messages.into_iter().map(|l| l.map(|l| l.content)).collect::<Vec<_>>()
        });
        for (own, messages) in results.iter().enumerate() {
            for (from, message) in messages.iter().enumerate() {
                let wanted = (from != own).then(|| from.to_string().into_bytes());
                assert_eq!(*message, wanted);
            }
        }
    }
}
