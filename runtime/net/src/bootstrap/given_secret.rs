//! Reads the secret of a job from the environment, or from the file that it names.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use roundelay_dsl::diag::codes;

use super::{SECRET, SECRET_FILE};
use crate::tunables::SECRET_FILE_BYTES;
use roundelay_support::error::{Error, ErrorSource};
use roundelay_support::variables;

/// Returns the secret that the environment gives: the bytes of `ROUNDELAY_SECRET`, or those of the file that
/// `ROUNDELAY_SECRET_FILE` names, without an end of line behind them. `None` if neither is set.
///
/// # Errors
///
/// [`Error::Start`] if the secret is empty, or both are set; [`Error::System`] if the file cannot be read. A secret
/// that was given and cannot be had is never none.
pub fn secret() -> Result<Option<Vec<u8>>, Error> {
    let secret = match (variables::raw(SECRET), variables::raw(SECRET_FILE)) {
        (None, None) => return Ok(None),
        (Some(secret), None) => secret.into_encoded_bytes(),
        (None, Some(path)) => read(Path::new(&path))?,
        (Some(_), Some(_)) => {
            let text = format!("{SECRET} and {SECRET_FILE} are both set: unset one of them");
            return Err(Error::Start(text));
        }
    };
    check(&secret)?;
    Ok(Some(secret))
}

/// Fails for an empty secret, which keeps no process out.
pub fn check(secret: &[u8]) -> Result<(), Error> {
    match secret.is_empty() {
        false => Ok(()),
        true => Err(Error::Start(format!(
            "the secret is empty and keeps no stranger out: give all ranks the same {SECRET}, of 16 random bytes or more, \
             or none"
        ))),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let failed = |why: &str| {
        format!(
            "the secret cannot be read from {SECRET_FILE}={}: {why}; name a file of 1 to {SECRET_FILE_BYTES} bytes that this user \
             can read",
            path.display()
        )
    };
    let system = |e: std::io::Error| Error::System {
        code: codes::FILE,
        text: failed(&e.to_string()),
        source: ErrorSource::new(e),
    };
    // A pipe without a writer must not hold the rank.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(system)?;
    if !file.metadata().map_err(system)?.is_file() {
        return Err(Error::Start(failed("it is not a regular file")));
    }
    let mut secret = Vec::new();
    file.take(SECRET_FILE_BYTES + 1).read_to_end(&mut secret).map_err(system)?;
    if secret.len() as u64 > SECRET_FILE_BYTES {
        return Err(Error::Start(failed("it is too long")));
    }
    let end = [&b"\r\n"[..], b"\n"].into_iter().find(|end| secret.ends_with(end));
    secret.truncate(secret.len() - end.map_or(0, <[u8]>::len));
    Ok(secret)
}
