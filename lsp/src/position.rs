//! Places in a text: bytes here, lines and columns in the protocol.

use gen_lsp_types::{Position, Range};

/// The unit in which an editor counts columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ColumnUnit {
    /// Bytes.
    Utf8,
    /// Units of UTF-16, which every editor can count.
    #[default]
    Utf16,
}

impl ColumnUnit {
    /// Returns the columns of a text.
    fn columns(self, text: &str) -> usize {
        match self {
            ColumnUnit::Utf8 => text.len(),
            ColumnUnit::Utf16 => text.chars().map(char::len_utf16).sum(),
        }
    }
}

/// A text, and where its lines begin.
#[derive(Debug, Clone)]
pub(crate) struct LineTable {
    text: String,
    starts: Vec<usize>,
    unit: ColumnUnit,
}

impl LineTable {
    pub(crate) fn new(text: String, unit: ColumnUnit) -> Self {
        let ends = text.bytes().enumerate().filter(|&(_, byte)| byte == b'\n');
        let starts = std::iter::once(0).chain(ends.map(|(i, _)| i + 1)).collect();
        LineTable { text, starts, unit }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the bytes of a line, without its end.
    fn line(&self, line: usize) -> (usize, usize) {
        let start = self.starts.get(line).copied().unwrap_or(self.text.len());
        let end = self.starts.get(line + 1).map_or(self.text.len(), |next| next - 1);
        let end = end.max(start);
        match self.text[start..end].ends_with('\r') {
            true => (start, end - 1),
            false => (start, end),
        }
    }

    /// Returns the place of a byte; one behind the text is its end, one inside a character its start.
    pub(crate) fn position(&self, byte: usize) -> Position {
        let mut byte = byte.min(self.text.len());
        while !self.text.is_char_boundary(byte) {
            byte -= 1;
        }
        let line = self.starts.partition_point(|&start| start <= byte) - 1;
        let column = self.unit.columns(&self.text[self.starts[line]..byte]);
        Position { line: line as u32, character: column as u32 }
    }

    /// Returns the byte of a place; columns behind a line's end are its end, as the protocol says.
    pub(crate) fn byte(&self, at: Position) -> usize {
        let (start, end) = self.line(at.line as usize);
        let mut left = at.character as usize;
        for (i, c) in self.text[start..end].char_indices() {
            let width = self.unit.columns(c.encode_utf8(&mut [0; 4]));
            if left < width {
                return start + i;
            }
            left -= width;
        }
        end
    }

    pub(crate) fn range(&self, bytes: std::ops::Range<usize>) -> Range {
        Range { start: self.position(bytes.start), end: self.position(bytes.end) }
    }

    /// Returns the columns of a text, which lies on one line.
    pub(crate) fn width(&self, text: &str) -> u32 {
        self.unit.columns(text) as u32
    }

    /// Returns the text with a range replaced.
    pub(crate) fn replaced(&self, range: Range, with: &str) -> String {
        let (start, end) = (self.byte(range.start), self.byte(range.end));
        let end = end.max(start);
        [&self.text[..start], with, &self.text[end..]].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_counted_as_the_editor_counts_them() {
        let text = "a\u{e9}\u{1d11e}b\r\nsecond";
        let at = text.find('b').expect("it is there");
        for (unit, column) in [(ColumnUnit::Utf8, 7), (ColumnUnit::Utf16, 4)] {
            let table = LineTable::new(text.into(), unit);
            let position = table.position(at);
            assert_eq!((position.line, position.character), (0, column));
            assert_eq!(table.byte(position), at);
            // Columns behind the end of a line are the end, before its line feed.
            assert_eq!(table.byte(Position { line: 0, character: 99 }), at + 1);
            assert_eq!(table.byte(Position { line: 9, character: 0 }), text.len());
            let inside = table.position(at - 1);
            assert_eq!(inside.character, column - table.width("\u{1d11e}"), "a character's start");
            let second = table.range(at + 3..text.len());
            assert_eq!(table.replaced(second, "x"), "a\u{e9}\u{1d11e}b\r\nx");
        }
    }
}
