"""Compares what the refuter says of obligations with z3.

Reads obligations as text, each with a line `outcome`: `refuted`, `model` and the values of the
variables, or `none`. Prints each wrong outcome, then the counts.
"""

import re
import sys
from collections import Counter
from typing import Union

import z3

Text = Union[str, list["Text"]]
STEPS = 5_000_000


def read_text(line: str) -> Text:
    """Reads a formula as nested lists of words."""
    stack: list[list[Text]] = [[]]
    for word in re.findall(r"[()]|[^()\s]+", line):
        if word == "(":
            stack.append([])
        elif word == ")":
            inner = stack.pop()
            stack[-1].append(inner)
        else:
            stack[-1].append(word)
    (formula,) = stack[0]
    return formula


def read_relation(word: str) -> tuple[str, list[tuple[int, str]]]:
    """Reads a relation: its operator, and factors with names; that of a constant is `1`."""
    term, operator = re.fullmatch(r"(.*?)(<=|=)0", word).groups()  # type: ignore[union-attr]
    summands = []
    for sign, body in re.findall(r"([+-]?)([^+-]+)", term):
        *factor, name = body.split("*")
        if name.isdigit():
            factor, name = [name], "1"
        summands.append((int(sign + (factor[0] if factor else "1")), name))
    return operator, summands


def to_smt(text: Text) -> str:
    """Returns the formula in the language of solvers."""
    if isinstance(text, list):
        operator, *parts = text
        if not parts:
            return "true" if operator == "and" else "false"
        return f"({'=' if operator == 'iff' else operator} {' '.join(map(to_smt, parts))})"
    if text in ("true", "false"):
        return text
    operator, summands = read_relation(text)
    factors = [f"(- {-factor})" if factor < 0 else str(factor) for factor, _ in summands]
    products = [f"(* {factor} {name})" for factor, (_, name) in zip(factors, summands)]
    return f"({operator} (+ 0 {' '.join(products)}) 0)"


def evaluate(text: Text, values: dict[str, int]) -> bool:
    """Returns whether the formula holds where the variables have these values."""
    if isinstance(text, list):
        operator, *parts = text
        held = [evaluate(part, values) for part in parts]
        if operator == "iff":
            return held[0] == held[1]
        return not held[0] if operator == "not" else all(held) if operator == "and" else any(held)
    if text in ("true", "false"):
        return text == "true"
    operator, summands = read_relation(text)
    total = sum(factor * values[name] for factor, name in summands)
    return total == 0 if operator == "=" else total <= 0


def has_solution(names: list[str], assumptions: list[Text], goal: Text) -> str:
    """Returns `sat`, `unsat` or `unknown` for the assumptions and the negated goal."""
    lines = [f"(declare-const {name} Int)" for name in names]
    lines += [f"(assert {to_smt(formula)})" for formula in [*assumptions, ["not", goal]]]
    solver = z3.SolverFor("QF_LIA")
    # Steps, and no clock: the outcome is the same on every machine.
    solver.set("rlimit", STEPS)
    solver.from_string("\n".join(lines))
    return str(solver.check())


def compare(block: str, counts: Counter[str]) -> None:
    """Compares one obligation's outcome, and counts it."""
    name, *lines = block.rstrip("\n").split("\n")
    words = [(line.split(" ", 1) + [""])[:2] for line in lines]
    names = dict(words)["variables"].split()
    assumptions = [read_text(rest) for word, rest in words if word == "assume"]
    goal = read_text(dict(words)["goal"])
    outcome, *values = dict(words)["outcome"].split()
    counts["obligations"] += 1
    counts[outcome] += 1
    if outcome == "model":
        model = {"1": 1} | dict(zip(names, map(int, values)))
        right = len(values) == len(names) and not evaluate(goal, model)
        right = right and all(evaluate(formula, model) for formula in assumptions)
    else:
        found = has_solution(names, assumptions, goal)
        counts["undecided"] += found == "unknown"
        right = outcome != "refuted" or found != "sat"
    if not right:
        counts["wrong"] += 1
        print(f"wrong: {outcome} {' '.join(values)}\nobligation {block}")


def main() -> None:
    """Compares all obligations of the standard input."""
    words = ("obligations", "refuted", "model", "none", "undecided", "wrong")
    counts = Counter(dict.fromkeys(words, 0))
    for block in re.split(r"^obligation ", sys.stdin.read(), flags=re.MULTILINE)[1:]:
        compare(block, counts)
    for word, count in counts.items():
        print(f"count {word} {count}")


if __name__ == "__main__":
    main()
