//! Cuts what a process writes into lines.

/// Bytes of a line that is not complete yet.
#[derive(Default)]
pub(crate) struct LineReader {
    partial: Vec<u8>,
}

impl LineReader {
    /// Adds bytes, and hands out the lines that they complete.
    pub(super) fn add(&mut self, bytes: &[u8], mut each: impl FnMut(&str)) {
        self.partial.extend_from_slice(bytes);
        let Some(end) = self.partial.iter().rposition(|&b| b == b'\n') else { return };
        let rest = self.partial.split_off(end + 1);
        let complete = std::mem::replace(&mut self.partial, rest);
        for line in complete[..end].split(|&b| b == b'\n') {
            each(&String::from_utf8_lossy(line));
        }
    }

    /// Hands out what is left without an end of line.
    pub(super) fn end(&mut self, mut each: impl FnMut(&str)) {
        if !self.partial.is_empty() {
            each(&String::from_utf8_lossy(&std::mem::take(&mut self.partial)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_however_they_come() {
        let mut seen = Vec::new();
        let mut lines = LineReader::default();
        for bytes in [&b"a"[..], b"b\nc", b"", b"d\n\ne\n", b"last"] {
            lines.add(bytes, |line| seen.push(line.to_owned()));
        }
        lines.end(|line| seen.push(line.to_owned()));
        assert_eq!(seen, ["ab", "cd", "", "e", "last"]);
    }
}
