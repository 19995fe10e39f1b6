"""The source of a Python function that is an algorithm: its tree, and refusals at its lines."""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
from types import FunctionType
from typing import Any, NoReturn

from roundelay.errors import RefusedError

__all__ = ["FunctionSource"]

# Statements of Python without a counterpart, and the way to write what they are meant for.
_REMEDIES = {
    "assert": "write requires(condition) for what must hold of the ranks",
    "break": "choose turns with `if` inside the loop, or a shorter range",
    "continue": "put what follows it into an `if`",
    "delete": "a name ends with its block: leave `del` out",
    "functiondef": "helpers stand at the start of the function, before its first statement",
    "global": "names from outside are read as they are when the function is decorated: leave `global` out",
    "import": "import at the top of the module, whose whole numbers may be used here",
    "importfrom": "import at the top of the module, whose whole numbers may be used here",
    "match": "write if and elif",
    "nonlocal": "names from outside are read as they are when the function is decorated: leave `nonlocal` out",
    "return": "an algorithm has no value: leave `return` out, and choose what follows with `if`",
    "while": "write for s in range(…): the number of turns is known before the loop begins",
}


class FunctionSource:
    """The source of a function."""

    tree: ast.FunctionDef
    file: str
    indent: int
    """The columns by which the function is indented."""
    outside: dict[str, Any]
    """The names that the function sees from outside of it, with their values now; those of builtins apart."""

    def __init__(self, function: object) -> None:
        """Read the source. Raises ``RefusedError`` for what is no plain function, or has no source."""
        if not isinstance(function, FunctionType):
            raise RefusedError(
                f"@roundelay.algorithm stands over a function, not over a {type(function).__name__}"
            )
        name = function.__name__
        if hasattr(function, "__wrapped__"):
            raise RefusedError(
                f"`{name}` is wrapped by another decorator, which an algorithm would leave out: "
                "let @roundelay.algorithm stand next to the function"
            )
        try:
            lines, first = inspect.getsourcelines(function)
            tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
        except (OSError, TypeError, SyntaxError, IndexError) as error:
            raise RefusedError(
                f"the source of `{name}` cannot be read ({error}): define it in a file or in a notebook"
            ) from error
        if not isinstance(tree, ast.FunctionDef):
            raise RefusedError(f"`{name}` is no plain function: write def, not async def or lambda")
        ast.increment_lineno(tree, first - 1)
        self.tree = tree
        self.file = function.__code__.co_filename
        self.indent = len(lines[0]) - len(lines[0].lstrip())
        self.outside = {**function.__globals__, **_enclosing(function)}

    def column(self, node: ast.AST) -> int:
        """Return the column at which a node begins, from 0, in characters."""
        return self._characters(getattr(node, "lineno", 1), getattr(node, "col_offset", 0))

    def refuse(self, node: ast.AST, why: str, remedy: str) -> NoReturn:
        """Raise ``RefusedError`` that shows the line of a node."""
        line, column = getattr(node, "lineno", 1), self.column(node)
        code = linecache.getline(self.file, line).rstrip("\r\n")
        end = getattr(node, "end_col_offset", None)
        if end is None or getattr(node, "end_lineno", line) != line:
            until = len(code)
        else:
            until = self._characters(line, end)
        width = max(1, until - column)
        margin = " " * len(str(line))
        raise RefusedError(
            f"error[RL0101]: {why}\n{margin}--> {self.file}:{line}:{column + 1}\n{margin} |\n{line} | {code}\n"
            f"{margin} | {' ' * column}{'^' * width}\n{margin} |\n{margin} = help: {remedy}",
            code="RL0101",
            source=f"{self.file}:{line}:{column + 1}",
        )

    def refuse_statement(self, node: ast.stmt) -> NoReturn:
        """Refuse a statement that has no counterpart."""
        word = type(node).__name__.lower()
        known = "there are name = …, for, if, and calls such as r.to(p).copy(data[i]), run(…), chunks(…)"
        self.refuse(node, f"there is no such statement in algorithms ({word})", _REMEDIES.get(word, known))

    def _characters(self, line: int, offset: int) -> int:
        """Return the characters of a line before an offset of its tree, which counts bytes without the indent."""
        code = linecache.getline(self.file, line).encode()
        return len(code[: self.indent + offset].decode(errors="replace")) if code else self.indent + offset


def _enclosing(function: FunctionType) -> dict[str, Any]:
    """Return the names of functions around this one that it sees, those that have a value."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # It has none yet.
            continue
    return found
