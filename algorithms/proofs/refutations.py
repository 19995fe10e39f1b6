"""Linear terms and formulas over integers, and the check that a tree refutes some of them.

`compiler/src/all_n/certificate.rs` defines the normal form and the words of a tree. Integers of
Python do not overflow, and nothing here searches.
"""

import re
from dataclasses import dataclass
from math import gcd
from typing import Any, NamedTuple, Union

# A truth value, or a tuple: ("le", t) for t <= 0, ("eq", t) for t = 0, ("not", f), ("iff", f, g),
# ("and", (f, ...)) or ("or", (f, ...)).
Formula = Union[bool, tuple[Any, ...]]


class Refused(Exception):
    """A text that is no proof."""


def require(condition: bool, what: str) -> None:
    """Refuses the proof unless a condition holds."""
    if not condition:
        raise Refused(what)


@dataclass(frozen=True)
class Term:
    """A sum of multiples of variables, which have numbers, and a constant."""

    parts: tuple[tuple[int, int], ...]
    constant: int

    def plus(self, other: "Term", factor: int) -> "Term":
        """Returns the sum with a multiple of another term."""
        sums = dict(self.parts)
        for variable, multiple in other.parts:
            sums[variable] = sums.get(variable, 0) + factor * multiple
        parts = tuple(sorted((v, k) for v, k in sums.items() if k))
        return Term(parts, self.constant + factor * other.constant)

    def __add__(self, other: Union["Term", int]) -> "Term":
        return self.plus(number(other), 1)

    def __sub__(self, other: Union["Term", int]) -> "Term":
        return self.plus(number(other), -1)

    def __mul__(self, factor: int) -> "Term":
        return Term((), 0).plus(self, factor)


def number(value: Union[Term, int]) -> Term:
    """Returns a number as a term."""
    return value if isinstance(value, Term) else Term((), value)


def le(a: Union[Term, int], b: Union[Term, int]) -> Formula:
    """Returns the formula `a <= b`."""
    return ("le", number(a) - b)


def lt(a: Union[Term, int], b: Union[Term, int]) -> Formula:
    """Returns the formula `a < b`."""
    return ("le", number(a) - b + 1)


def eq(a: Union[Term, int], b: Union[Term, int]) -> Formula:
    """Returns the formula `a = b`."""
    return ("eq", number(a) - b)


def negate(formula: Formula) -> Formula:
    """Returns the negation."""
    if isinstance(formula, bool):
        return not formula
    return formula[1] if formula[0] == "not" else ("not", formula)


class Part(NamedTuple):
    """A conjunction: rows, of which each is 0 at most, and disjunctions, each a list of parts."""

    rows: list[Term]
    splits: list[list["Part"]]


class Tree(NamedTuple):
    """A formula without negations; `op` is "row", "and" or "or"."""

    op: str
    row: Term
    parts: list["Tree"]


def tighten(row: Term) -> Term:
    """Divides a row by the divisor of its coefficients, and rounds its constant up."""
    divisor = gcd(*(k for _, k in row.parts)) or 1
    return Term(tuple((v, k // divisor) for v, k in row.parts), -(-row.constant // divisor))


def row_of(term: Term) -> Tree:
    """Returns the formula that a term is 0 at most."""
    return Tree("row", tighten(term), [])


def join(op: str, parts: list[Tree]) -> Tree:
    """Joins formulas; those of the same kind become one list."""
    flat = [inner for part in parts for inner in (part.parts if part.op == op else [part])]
    return Tree(op, Term((), 0), flat)


def normalize(formula: Formula, positive: bool) -> Tree:
    """Returns the formula, or its negation, without negations."""
    if isinstance(formula, bool):
        return join("and" if formula == positive else "or", [])
    op, term = formula[0], formula[1]
    if op == "le":
        return row_of(term if positive else number(1) - term)
    if op == "eq":
        if positive:
            return join("and", [row_of(term), row_of(term * -1)])
        return join("or", [row_of(term + 1), row_of(number(1) - term)])
    if op == "not":
        return normalize(formula[1], not positive)
    if op == "iff":
        a, b = formula[1:]
        both = join("and", [normalize(a, True), normalize(b, positive)])
        return join("or", [both, join("and", [normalize(a, False), normalize(b, not positive)])])
    parts = [normalize(part, positive) for part in formula[1]]
    return join("and" if (op == "and") == positive else "or", parts)


def add_facts(tree: Tree, facts: Part) -> Part:
    """Adds a formula to a conjunction, which is returned."""
    if tree.op == "row":
        facts.rows.append(tree.row)
    elif tree.op == "and":
        for inner in tree.parts:
            add_facts(inner, facts)
    else:
        facts.splits.append([add_facts(inner, Part([], [])) for inner in tree.parts])
    return facts


def add_rows(word: str, rows: list[Term]) -> Term:
    """Returns the sum of positive multiples of rows that a word names: `3,7*2`."""
    total = Term((), 0)
    for entry in word.split(","):
        is_multiple = re.fullmatch(r"[0-9]+(\*[0-9]+)?", entry, re.ASCII) is not None
        require(is_multiple, f"no multiple of a row: {entry}")
        index, multiple = map(int, (entry + "*1").split("*")[:2])
        require(multiple > 0 and index < len(rows), f"no row, or no positive multiple: {entry}")
        total = total.plus(rows[index], multiple)
    return total


def check_node(words: list[str], facts: Part, variables: int) -> None:
    """Checks the tree at the end of `words`, which are reversed, and removes its words."""
    require(len(words) > 0, "the refutation ends too early")
    word = words.pop()
    kind, rest = word[:1], word[1:]
    if kind == "F":
        total = add_rows(rest, facts.rows)
        require(not total.parts and total.constant > 0, f"no contradiction: {word}")
    elif kind == "C":
        row = tighten(add_rows(rest, facts.rows))
        check_node(words, Part([*facts.rows, row], facts.splits), variables)
    elif kind == "S" and (found := re.fullmatch(r"([0-9]+)/([0-9]+)", rest, re.ASCII)):
        index, count = int(found[1]), int(found[2])
        require(index < len(facts.splits), f"no disjunction: {word}")
        require(count == len(facts.splits[index]), f"a case is missing, or one too many: {word}")
        for part in facts.splits[index]:
            inner = Part(facts.rows + part.rows, facts.splits + part.splits)
            check_node(words, inner, variables)
    elif kind == "B" and (found := re.fullmatch(r"([0-9]+):(-?[0-9]+)", rest, re.ASCII)):
        index, bound = int(found[1]), int(found[2])
        require(index < variables, f"no variable: {word}")
        for row in Term(((index, 1),), -bound), Term(((index, -1),), bound + 1):
            check_node(words, Part([*facts.rows, row], facts.splits), variables)
    else:
        raise Refused(f"no node of a refutation: {word}")


def check_tree(text: str, facts: Part, variables: int) -> None:
    """Checks that a tree, given as text, refutes facts over that number of variables."""
    words = text.split()[::-1]
    check_node(words, facts, variables)
    require(not words, "words after the refutation")
