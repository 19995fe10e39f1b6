"""Checks proofs for every rank count: certificates of programs, and refutations of obligations.

    python3 algorithms/proofs/check.py FILE ...

A file has certificates, as `roundelay check --certificate` writes them (`docs/proofs.md`), or
obligations with a line `refutation` each (`compiler/src/all_n/certificate.rs`). Prints a line for
each that is refused, and the counts; ends with 1 if one is refused. Shares no code with the prover.
"""

import re
import sys
from typing import Union

sys.dont_write_bytecode = True

from certificates import check_certificate  # noqa: E402
from refutations import (  # noqa: E402
    Formula, Part, Refused, Term, add_facts, check_tree, normalize, number, require,
)

Text = Union[str, list["Text"]]
TERM = re.compile(r"([+-]?)(?:([0-9]+)\*)?([A-Za-z][A-Za-z0-9_]*)|([+-]?[0-9]+)")


def read_term(word: str, names: list[str]) -> Term:
    """Reads a sum of multiples of variables, and a constant: `n-2*q+1`."""
    term, at = number(0), 0
    while at < len(word):
        found = TERM.match(word, at)
        if found is None or at > 0 and found[0][0] not in "+-":
            raise Refused(f"no term: {word}")
        sign, factor, name, constant = found.groups()
        if constant is not None:
            term += int(constant)
        else:
            require(name in names, f"no variable: {name}")
            term = term.plus(Term(((names.index(name), 1),), 0), int(f"{sign}{factor or 1}"))
        at = found.end()
    require(at > 0, "an empty term")
    return term


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


def read_formula(text: Text, names: list[str]) -> Formula:
    """Reads a formula of nested words."""
    if isinstance(text, str):
        if text in ("true", "false"):
            return text == "true"
        found = re.fullmatch(r"(.*?)(<?=)0", text)
        if found is None:
            raise Refused(f"no relation: {text}")
        return ("le" if found[2] == "<=" else "eq", read_term(found[1], names))
    op = text[0] if text else ""
    parts = tuple(read_formula(part, names) for part in text[1:])
    if (op, len(parts)) in (("not", 1), ("iff", 2)):
        return (op, *parts)
    require(op in ("and", "or"), f"no operator: {op}")
    return (op, parts)


def check_obligation(lines: list[tuple[str, str]]) -> None:
    """Checks one obligation: its lines, each a keyword and the rest."""
    require([word for word, _ in lines[:1]] == ["variables"], "no variables")
    require([word for word, _ in lines[-2:]] == ["goal", "refutation"], "no goal and refutation")
    names = lines[0][1].split()
    require(len(set(names)) == len(names), "a variable appears twice")
    facts = Part([], [])
    for word, text in lines[1:-1]:
        require(word == "assume" or (word, text) == lines[-2], f"no assumption: {word}")
        add_facts(normalize(read_formula(read_words(text), names), word == "assume"), facts)
    check_tree(lines[-1][1], facts, len(names))


def check_block(kind: str, block: str) -> None:
    """Checks one certificate or obligation without its first word."""
    if kind == "roundelay certificate 1\n":
        check_certificate(block)
        return
    _, *lines = block.rstrip("\n").split("\n")
    split = [line.partition(" ") for line in lines]
    check_obligation([(word, rest) for word, _, rest in split])


def main(paths: list[str]) -> int:
    """Checks all that is in files; returns the exit status."""
    sys.setrecursionlimit(20_000)
    accepted = refused = 0
    for path in paths:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
        pieces = re.split(r"^(obligation |roundelay certificate 1\n)", text, flags=re.MULTILINE)
        require(not pieces[0].strip(), f"{path} does not begin with a proof")
        for kind, block in zip(pieces[1::2], pieces[2::2]):
            try:
                check_block(kind, block)
                accepted += 1
            except (Refused, RecursionError, ValueError, LookupError) as why:
                refused += 1
                name = (block.split("\n") + [""])[kind.startswith("roundelay")]
                print(f"refused: {name}: {why}")
    print(f"accepted {accepted}, refused {refused}")
    return 1 if refused or not accepted else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
