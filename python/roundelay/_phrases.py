"""Errors of the library and of the program ``roundelay`` in Python's words."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["in_python", "near", "of_function", "usage"]

# What messages say of the command line, and what it is in Python.
_OPTIONS = {
    "`--timeout`": "`timeout=`",
    "`--slot-bytes`": "the hint `slot_bytes`",
    "`--paths`": "the hint `paths`",
}
# Words of the language of algorithms in messages about a function.
_WORDS = {
    "`where`": "`if`",
    "`use`": "`run(…)`",
    "`let`": "a name",
    "`//`": "`#`",
}
_PLACE = re.compile(r"^(\s*--> )(.*):(\d+):(\d+)$")
_LINE = re.compile(r"^(\s*)(\d+) \| (.*)$")
_MARKS = re.compile(r"^(\s*\| )( *)(\^+|-+)( .*)?$")


def in_python(said: str) -> str:
    """Return a message with Python's arguments in the place of options of the command line."""
    for option, argument in _OPTIONS.items():
        said = said.replace(option, argument)
    return said


def usage(said: str, argument: str) -> str:
    """Return what the command line says of a value that it does not take, as a sentence about an argument."""
    found = re.search(r"invalid value '(.*)' for '[^']*': (.*)", said)
    return said if found is None else f"`{argument}` is {found[1]!r}: {found[2]}"


def near(word: str, known: Iterable[str]) -> str:
    """Return ``did you mean `…`?``, with a space before it, if a word is nearly one that is known."""
    close = get_close_matches(word, list(known), 1)
    return f"; did you mean `{close[0]}`?" if close else ""


def of_function(said: str, text: str, file: str) -> str:
    """Return diagnostics about the text of an algorithm with the lines of the Python function that it was made of.

    Each statement of the text stands at the line where the function has it.
    """
    for word, spoken in _WORDS.items():
        said = said.replace(word, spoken)
    written = text.splitlines()
    lines = said.splitlines()
    place: int | None = None
    python = theirs = ""
    for at, line in enumerate(lines):
        if _PLACE.match(line):
            place = at
        elif found := _LINE.match(line):
            number = int(found[2])
            theirs = found[3]
            python = linecache.getline(file, number).rstrip()
            if not python or number > len(written) or written[number - 1].rstrip() != theirs.rstrip():
                python = ""
                continue
            lines[at] = f"{found[1]}{found[2]} | {python}"
        elif (found := _MARKS.match(line)) and python:
            column, width = _where(python, theirs, len(found[2]), len(found[3]))
            lines[at] = f"{found[1]}{' ' * column}{found[3][0] * width}{found[4] or ''}"
            if found[3][0] == "^" and place is not None and (head := _PLACE.match(lines[place])):
                lines[place] = f"{head[1]}{head[2]}:{head[3]}:{column + 1}"
    return "\n".join(lines)


def _where(python: str, theirs: str, column: int, width: int) -> tuple[int, int]:
    """Return the place in a line of Python of what was marked in its counterpart: the same words, or all of it."""
    marked = theirs[column : column + width]
    if python.count(marked) == 1 and marked.strip():
        return python.index(marked), len(marked)
    indent = len(python) - len(python.lstrip())
    return indent, len(python) - indent
