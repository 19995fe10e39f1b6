"""The program in a certificate: its text as statements and expressions.

Expressions are tuples: ("int", 4), ("var", "n"), ("neg", a), ("!", a), ("+", a, b) and so on for
all operators, ("call", name, a, ...), ("if", c, a, b). The value of a `let` is put in its place.
"""

import re
from dataclasses import dataclass, field
from typing import Any, Iterable, Optional, Sequence

from refutations import require

Expression = tuple[Any, ...]

COLLECTIVES = (
    "all_reduce reduce_scatter reduce broadcast scatter all_gather gather all_to_all barrier "
    "sendrecv scan exscan"
).split()
ROOTED = ("broadcast", "reduce", "gather", "scatter")
BLOCKED = ("reduce_scatter", "all_gather", "gather", "scatter", "all_to_all")
OPERATORS = "|| && == != < <= > >= | ^ & << >> + - * / %".split()
TOKEN = re.compile(
    r"\s*([A-Za-z_]\w*|[0-9]+|\.\.\+|\.\.|->|<<|>>|[<>=!]=|&&|\|\||[-+*/%<>&|^!=(){}\[\],:;])",
    re.ASCII,
)


@dataclass
class Region:
    """Chunks of a buffer: `kind` is "all", "at", "..", or "..+"."""

    buffer: str
    kind: str = "all"
    ends: list[Expression] = field(default_factory=list)
    by: Optional[Expression] = None
    take: Optional[Expression] = None

    def index(self) -> tuple[Any, ...]:
        """Returns all but the buffer."""
        return (self.kind, self.ends, self.by, self.take)

    def expressions(self) -> list[Expression]:
        """Returns all expressions in it."""
        return [*self.ends, *(e for e in (self.by, self.take) if e is not None)]


@dataclass
class Rule:
    """A transfer, once for all values of its variables that satisfy its conditions."""

    variables: list[tuple[str, Expression, Expression]]
    conditions: list[Expression]
    checks: list[Expression]
    src: Expression
    dst: Expression
    op: str
    source: Region
    target: Region

    def expressions(self) -> list[Expression]:
        """Returns all expressions in it."""
        bounds = [e for _, first, end in self.variables for e in (first, end)]
        ranks = [*self.conditions, *self.checks, self.src, self.dst]
        return bounds + ranks + self.source.expressions() + self.target.expressions()


@dataclass
class Program:
    """A program: `body` has tuples whose first entry says which statement it is."""

    kind: str
    is_data: bool
    chunks: Expression = ("int", 1)
    parameters: list[tuple[str, int]] = field(default_factory=list)
    requires: list[Expression] = field(default_factory=list)
    scratch: list[Expression] = field(default_factory=list)
    schedule: list[tuple[Expression, int]] = field(default_factory=list)
    body: list[tuple[Any, ...]] = field(default_factory=list)

    def sizes(self) -> dict[str, Expression]:
        """Returns the buffers with their chunks; contributions begin in the first."""
        sizes = {"data": self.chunks}
        if not self.is_data:
            is_block = {"input": ("all_gather", "gather"), "output": ("reduce_scatter", "scatter")}
            sizes = {
                name: ("int", 1) if self.kind in kinds else self.chunks
                for name, kinds in is_block.items()
            }
        return sizes | {f"scratch{at}": size for at, size in enumerate(self.scratch)}


def with_known_bits(conditions: Sequence[Expression], e: Expression) -> Expression:
    """Returns an expression behind conditions, with what they know in place of a lowest bit.

    One of them says which bit is the lowest of a variable: `lowbit(r1) == s`.
    """
    for op, *sides in conditions:
        if op == "==" and sides[0][:2] == ("call", "lowbit") and sides[0][2][0] == "var":
            return replace(e, sides[0], sides[1])
    return e


def replace(e: Expression, part: Expression, by: Expression) -> Expression:
    """Returns an expression with another in place of a part."""
    if e == part:
        return by
    return tuple(replace(x, part, by) if isinstance(x, tuple) else x for x in e)


class Parser:
    """Reads a text word by word."""

    def __init__(self, text: str) -> None:
        self.words: list[str] = []
        self.at = 0
        self.values: dict[str, Expression] = {}
        self.declared: set[str] = set()
        at, text = 0, text.rstrip()
        while at < len(text):
            found = TOKEN.match(text, at)
            require(found is not None, f"no word: {text[at : at + 20]}")
            self.words.append(found[1])  # type: ignore[index]
            at = found.end()  # type: ignore[union-attr]

    def peek(self) -> str:
        """Returns the next word, or an empty one at the end."""
        return self.words[self.at] if self.at < len(self.words) else ""

    def next(self) -> str:
        """Takes the next word."""
        self.at += 1
        require(self.at <= len(self.words), "the text ends too early")
        return self.words[self.at - 1]

    def takes(self, word: str) -> bool:
        """Takes a word if it is the next."""
        found = self.peek() == word
        self.at += found
        return found

    def expect(self, *words: str) -> None:
        """Takes these words."""
        for word in words:
            require(self.takes(word), f"`{word}` expected, found `{self.peek()}`")

    def expression(self) -> Expression:
        """Reads an expression, in which every operation of two operands has parentheses."""
        word = self.next()
        if word.isdigit():
            return ("int", int(word))
        if word in ("-", "!"):
            return ("neg" if word == "-" else "!", self.expression())
        if word == "(":
            a, op, b = self.expression(), self.next(), self.expression()
            require(op in OPERATORS, f"no operator: {op}")
            self.expect(")")
            return (op, a, b)
        if word == "if":
            condition = self.expression()
            self.expect("{")
            a = self.expression()
            self.expect("}", "else", "{")
            b = self.expression()
            self.expect("}")
            return ("if", condition, a, b)
        if word == "let":
            self.let()
            self.expect(";")
            return self.expression()
        require(re.match("[a-z]", word) is not None, f"no expression: {word}")
        if not self.takes("("):
            return self.values.get(word, ("var", word))
        arguments = [self.expression()]
        while self.takes(","):
            arguments.append(self.expression())
        self.expect(")")
        return ("call", word, *arguments)

    def name(self, letters: str) -> str:
        """Reads a name that has not been declared, which begins with one of some letters."""
        name = self.next()
        is_name = re.fullmatch(f"[{letters}][0-9]+", name, re.ASCII) is not None
        require(is_name and name not in self.declared, f"no new name: {name}")
        self.declared.add(name)
        return name

    def let(self, conditions: Sequence[Expression] = ()) -> Expression:
        """Reads `name = value` behind conditions, and returns the value."""
        name = self.next()
        require(re.fullmatch("v[0-9]+", name, re.ASCII) is not None, f"no name: {name}")
        self.expect("=")
        value = with_known_bits(conditions, self.expression())
        self.values[name] = value
        return value

    def range(self) -> tuple[Expression, Expression]:
        """Reads `first..end`."""
        first = self.expression()
        self.expect("..")
        return first, self.expression()

    def region(self) -> Region:
        """Reads a region."""
        region = Region(self.next())
        if not self.takes("["):
            return region
        region.kind, region.ends = "at", [self.expression()]
        if self.peek() in ("..", "..+"):
            region.kind = self.next()
            region.ends.append(self.expression())
            region.by = self.expression() if self.takes("by") else None
            region.take = self.expression() if self.takes("take") else None
        self.expect("]")
        return region

    def rule(self, variables: list[tuple[str, Expression, Expression]]) -> Rule:
        """Reads a transfer."""
        conditions: list[Expression] = []
        checks: list[Expression] = []
        while self.peek() in ("let", "where", "for"):
            word = self.next()
            if word == "let":
                checks.append(self.let(conditions))
            elif word == "where":
                conditions.append(self.expression())
            else:
                name = self.name("p")
                self.expect("in")
                variables = [*variables, (name, *self.range())]
        src = with_known_bits(conditions, self.expression())
        self.expect("->")
        dst = with_known_bits(conditions, self.expression())
        self.expect(":")
        op = self.next()
        require(op in ("copy", "reduce"), f"no transfer: {op}")
        source = self.region()
        self.expect("->")
        target = self.region()
        require(target.buffer != "input", "a transfer into the input")
        if self.takes("as"):
            # What is rounded on the wire is the same contribution.
            require(self.next() in ("f16", "bf16", "f32"), "no type")
        return Rule(variables, conditions, checks, src, dst, op, source, target)

    def block(self) -> list[tuple[Any, ...]]:
        """Reads statements in braces."""
        self.expect("{")
        statements = []
        while not self.takes("}"):
            statements.append(self.statement())
        return statements

    def statement(self) -> tuple[Any, ...]:
        """Reads a statement."""
        word = self.next()
        if word == "let":
            return ("check", self.let())
        if word == "assert":
            return ("assert", self.expression())
        if word == "part":
            name = self.name("k")
            self.expect("in")
            return ("part", name, None if self.takes("paths") else self.range())
        if word == "for":
            name = self.name("s")
            self.expect("in")
            return ("for", name, *self.range(), self.block())
        if word == "if":
            condition, yes = self.expression(), self.block()
            self.expect("else")
            return ("if", condition, yes, self.block())
        require(word in ("each", "once"), f"no statement: {word}")
        variables = [(self.name("r"), ("int", 0), ("var", "n"))] if word == "each" else []
        rules = []
        self.expect("{")
        while not self.takes("}"):
            rules.append(self.rule(list(variables)))
        return ("round", rules)


def variables(e: Expression) -> Iterable[str]:
    """Yields the variables in an expression."""
    if e[0] == "var":
        yield e[1]
    for part in e:
        if isinstance(part, tuple):
            yield from variables(part)


def written(body: list[tuple[Any, ...]]) -> set[str]:
    """Returns the buffers that statements write."""
    found: set[str] = set()
    for kind, *rest in body:
        if kind == "round":
            found |= {rule.target.buffer for rule in rest[0]}
        for inner in rest:
            if kind in ("for", "if") and isinstance(inner, list):
                found |= written(inner)
    return found


def expressions(body: list[tuple[Any, ...]]) -> Iterable[Expression]:
    """Yields all expressions of statements."""
    for kind, *rest in body:
        if kind == "round":
            for rule in rest[0]:
                yield from rule.expressions()
        elif kind == "part":
            yield from rest[1] or ()
        else:
            for inner in rest:
                if isinstance(inner, list):
                    yield from expressions(inner)
                elif isinstance(inner, tuple):
                    yield inner


def powers(e: Expression) -> Iterable[Expression]:
    """Yields the powers of two in an expression."""
    if e[0] in ("<<", ">>") or e[:2] == ("call", "pow"):
        yield e
    for part in e:
        if isinstance(part, tuple):
            yield from powers(part)


def parse_program(text: str) -> Program:
    """Reads a program."""
    parser = Parser(text)
    parser.expect("program")
    program = Program(parser.next(), parser.words[3:4] == ["data"])
    require(program.kind in COLLECTIVES, f"no collective: {program.kind}")
    parser.expect("of", *(["data"] if program.is_data else ["input", "and", "output"]))
    while parser.peek() in ("parameter", "requires", "chunks", "scratch", "schedule"):
        word = parser.next()
        if word == "parameter":
            name = parser.name("k")
            parser.expect("=")
            sign = -1 if parser.takes("-") else 1
            program.parameters.append((name, sign * int(parser.next())))
        elif word == "requires":
            program.requires.append(parser.expression())
        elif word == "chunks":
            program.chunks = parser.expression()
        elif word == "scratch":
            program.scratch.append(parser.expression())
        else:
            program.schedule.append((parser.expression(), int(parser.next())))
    is_whole = program.kind not in BLOCKED or program.chunks == ("var", "n")
    require(is_whole, "blocks of several chunks")
    while parser.peek():
        program.body.append(parser.statement())
    return program
