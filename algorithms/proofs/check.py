"""Checks proofs for every rank count: refutations of obligations.

    python3 algorithms/proofs/check.py FILE ...

Each file is a list of obligations with a line `refutation` each; the definition of both is in
`compiler/src/all_n/certificate.rs`. Prints a line for each that is refused, and the counts; ends
with 1 if one is refused. Shares no code with the prover, and trusts none of its numbers: the
normal form of an obligation is made here. Integers of Python do not overflow.
"""

import re
import sys
from math import gcd
from typing import NamedTuple, Union

# Coefficients by name, and a constant: their sum is 0 at most.
Row = tuple[tuple[tuple[str, int], ...], int]
Text = Union[str, list["Text"]]


class Refused(Exception):
    """A text that is no proof."""


class Part(NamedTuple):
    """A conjunction: rows, and disjunctions of which each is a list of parts."""

    rows: list[Row]
    splits: list[list["Part"]]


class Tree(NamedTuple):
    """A formula without negations; `op` is "row", "and" or "or"."""

    op: str
    row: Row
    parts: list["Tree"]


def require(condition: bool, what: str) -> None:
    """Refuses the proof unless a condition holds."""
    if not condition:
        raise Refused(what)


def tighten(terms: dict[str, int], constant: int) -> Row:
    """Divides a row by the divisor of its coefficients, and rounds its constant up."""
    terms = {name: factor for name, factor in terms.items() if factor}
    divisor = gcd(*terms.values()) or 1
    return tuple(sorted((v, x // divisor) for v, x in terms.items())), -(-constant // divisor)


TERM = re.compile(r"([+-]?)(?:([0-9]+)\*)?([A-Za-z][A-Za-z0-9_]*)|([+-]?[0-9]+)")


def read_term(word: str, names: set[str]) -> tuple[dict[str, int], int]:
    """Reads a sum of multiples of variables, and a constant: `n-2*q+1`."""
    terms: dict[str, int] = {}
    constant, at = 0, 0
    while at < len(word):
        found = TERM.match(word, at)
        if found is None or at > 0 and found[0][0] not in "+-":
            raise Refused(f"no term: {word}")
        sign, factor, name, number = found.groups()
        if number is not None:
            constant += int(number)
        else:
            require(name in names, f"no variable: {name}")
            terms[name] = terms.get(name, 0) + int(f"{sign}{factor or 1}")
        at = found.end()
    require(at > 0, "an empty term")
    return terms, constant


def read_words(line: str) -> Text:
    """Reads one formula as nested lists of words."""
    stack: list[list[Text]] = [[]]
    for word in re.findall(r"[()]|[^()\s]+", line):
        if word == "(":
            stack.append([])
        elif word == ")":
            require(len(stack) > 1, "a closing parenthesis too many")
            inner = stack.pop()
            stack[-1].append(inner)
        else:
            stack[-1].append(word)
    require(len(stack) == 1 and len(stack[0]) == 1, f"no formula: {line}")
    return stack[0][0]


def join(op: str, parts: list[Tree]) -> Tree:
    """Joins formulas; those of the same kind become one list."""
    flat = [inner for part in parts for inner in (part.parts if part.op == op else [part])]
    return Tree(op, ((), 0), flat)


def normalize(text: Text, positive: bool, names: set[str]) -> Tree:
    """Returns the formula, or its negation, without negations."""
    if isinstance(text, str):
        if text in ("true", "false"):
            return join("and" if (text == "true") == positive else "or", [])
        found = re.fullmatch(r"(.*?)(<?=)0", text)
        if found is None:
            raise Refused(f"no relation: {text}")
        word, relation = found.groups()
        terms, constant = read_term(word, names)
        above = Tree("row", tighten({v: -x for v, x in terms.items()}, 1 - constant), [])
        if relation == "<=":
            return Tree("row", tighten(terms, constant), []) if positive else above
        if not positive:
            return join("or", [Tree("row", tighten(terms, constant + 1), []), above])
        least = Tree("row", tighten({v: -x for v, x in terms.items()}, -constant), [])
        return join("and", [Tree("row", tighten(terms, constant), []), least])
    require(len(text) > 0, "an empty list")
    op, rest = text[0], text[1:]
    if op == "not" and len(rest) == 1:
        return normalize(rest[0], not positive, names)
    if op == "iff" and len(rest) == 2:
        a, b = rest
        both = [normalize(a, True, names), normalize(b, positive, names)]
        none = [normalize(a, False, names), normalize(b, not positive, names)]
        return join("or", [join("and", both), join("and", none)])
    require(op in ("and", "or"), f"no operator: {op}")
    parts = [normalize(part, positive, names) for part in rest]
    return join("and" if (op == "and") == positive else "or", parts)


def assert_tree(tree: Tree, part: Part) -> Part:
    """Adds a formula to a conjunction, which is returned."""
    if tree.op == "row":
        part.rows.append(tree.row)
    elif tree.op == "and":
        for inner in tree.parts:
            assert_tree(inner, part)
    else:
        part.splits.append([assert_tree(inner, Part([], [])) for inner in tree.parts])
    return part


def add_rows(word: str, rows: list[Row]) -> tuple[dict[str, int], int]:
    """Returns the sum of positive multiples of rows that a word names: `3,7*2`."""
    terms: dict[str, int] = {}
    total = 0
    for entry in word.split(","):
        is_multiple = re.fullmatch(r"[0-9]+(\*[0-9]+)?", entry) is not None
        require(is_multiple, f"no multiple of a row: {entry}")
        index, multiple = map(int, (entry + "*1").split("*")[:2])
        require(multiple > 0 and index < len(rows), f"no row, or no positive multiple: {entry}")
        for name, factor in rows[index][0]:
            terms[name] = terms.get(name, 0) + multiple * factor
        total += multiple * rows[index][1]
    return terms, total


def check_tree(words: list[str], facts: Part, names: list[str]) -> None:
    """Checks the tree at the end of `words`, which are reversed, and removes its words."""
    require(len(words) > 0, "the refutation ends too early")
    word = words.pop()
    kind, rest = word[:1], word[1:]
    if kind == "F":
        terms, total = add_rows(rest, facts.rows)
        require(not any(terms.values()) and total > 0, f"no contradiction: {word}")
    elif kind == "C":
        row = tighten(*add_rows(rest, facts.rows))
        check_tree(words, Part([*facts.rows, row], facts.splits), names)
    elif kind == "S" and (found := re.fullmatch(r"([0-9]+)/([0-9]+)", rest)):
        index, count = int(found[1]), int(found[2])
        require(index < len(facts.splits), f"no disjunction: {word}")
        require(count == len(facts.splits[index]), f"a case is missing, or one too many: {word}")
        for part in facts.splits[index]:
            check_tree(words, Part(facts.rows + part.rows, facts.splits + part.splits), names)
    elif kind == "B" and (found := re.fullmatch(r"([0-9]+):(-?[0-9]+)", rest)):
        index, bound = int(found[1]), int(found[2])
        require(index < len(names), f"no variable: {word}")
        for row in (((names[index], 1),), -bound), (((names[index], -1),), bound + 1):
            check_tree(words, Part([*facts.rows, row], facts.splits), names)
    else:
        raise Refused(f"no node of a refutation: {word}")


def check_obligation(lines: list[tuple[str, str]]) -> None:
    """Checks one obligation: its lines, each a keyword and the rest."""
    require([word for word, _ in lines[:1]] == ["variables"], "no variables")
    require([word for word, _ in lines[-2:]] == ["goal", "refutation"], "no goal and refutation")
    names = lines[0][1].split()
    require(len(set(names)) == len(names), "a variable appears twice")
    facts = Part([], [])
    for word, formula in lines[1:-1]:
        require(word == "assume" or (word, formula) == lines[-2], f"no assumption: {word}")
        assert_tree(normalize(read_words(formula), word == "assume", set(names)), facts)
    words = lines[-1][1].split()[::-1]
    check_tree(words, facts, names)
    require(not words, "words after the refutation")


def main(paths: list[str]) -> int:
    """Checks all obligations of files; returns the exit status."""
    sys.setrecursionlimit(20_000)
    accepted = refused = 0
    for path in paths:
        with open(path, encoding="utf-8") as file:
            blocks = re.split(r"^obligation ", file.read(), flags=re.MULTILINE)
        require(not blocks[0].strip(), f"{path} does not begin with an obligation")
        for block in blocks[1:]:
            name, *lines = block.rstrip("\n").split("\n")
            split = [(line.split(" ", 1) + [""])[:2] for line in lines]
            try:
                check_obligation([(word, rest) for word, rest in split])
                accepted += 1
            except (Refused, RecursionError, ValueError) as why:
                refused += 1
                print(f"refused: {name}: {why}")
    print(f"accepted {accepted}, refused {refused}")
    return 1 if refused or not accepted else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
