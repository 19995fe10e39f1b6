"""Prints the transfers of the program in a certificate, at one rank count.

    python3 algorithms/proofs/transfers.py RANKS ROOT FILE ...

No proof needs it. The tests compare what it prints with what the compiler makes of the source: so
the text in the certificate, as it is read here, says what the source says.
"""

import sys
from typing import Any

sys.dont_write_bytecode = True

from programs import Program, Region, parse_program  # noqa: E402
from refutations import require  # noqa: E402
from values import evaluate  # noqa: E402

def chunks(region: Region, size: int, env: dict[str, int]) -> list[int]:
    """Returns the chunks of a region of a buffer, in order."""
    if region.kind == "all":
        return list(range(size))
    first, *more = [evaluate(e, env) for e in region.ends]
    if region.kind == "at":
        return [first]
    by = 1 if region.by is None else evaluate(region.by, env)
    take = 1 if region.take is None else evaluate(region.take, env)
    if region.kind == "..":
        return [c for c in range(first, more[0]) if (c - first) % by < take]
    return [(first + by * (at // take) + at % take) % size for at in range(more[0])]


def run(program: Program, body: list[tuple[Any, ...]], env: dict[str, int]) -> None:
    """Prints the transfers of statements, a line a round that has some."""
    for kind, *rest in body:
        if kind == "for":
            for value in range(evaluate(rest[1], env), evaluate(rest[2], env)):
                run(program, rest[3], env | {rest[0]: value})
        elif kind == "if":
            run(program, rest[1 if evaluate(rest[0], env) else 2], env)
        elif kind == "part":
            env = env | {rest[0]: 0 if rest[1] is None else evaluate(rest[1][0], env)}
        elif kind == "assert":
            require(bool(evaluate(rest[0], env)), "a condition does not hold")
        elif kind == "round":
            lines: list[str] = []
            for rule in rest[0]:
                each = [env]
                for name, first, end in rule.variables:
                    each = [
                        inner | {name: value}
                        for inner in each
                        for value in range(evaluate(first, inner), evaluate(end, inner))
                    ]
                for inner in each:
                    if all(evaluate(condition, inner) for condition in rule.conditions):
                        lines += transfer(program, rule, inner)
            if lines:
                print(";".join(sorted(lines)))


def transfer(program: Program, rule: Any, env: dict[str, int]) -> list[str]:
    """Returns a line for a transfer, if it moves something."""
    sizes = {name: evaluate(size, env) for name, size in program.sizes().items()}
    words = [f"{evaluate(rule.src, env)} {evaluate(rule.dst, env)} {rule.op}"]
    for region in rule.source, rule.target:
        found = chunks(region, sizes[region.buffer], env)
        words.append(f"{region.buffer} {','.join(map(str, found))}")
        if not found:
            return []
    return [" ".join(words)]


def main(ranks: int, root: int, paths: list[str]) -> None:
    """Prints the transfers of the programs in files, or that the rank count is none of theirs."""
    for path in paths:
        with open(path, encoding="utf-8") as file:
            text = file.read().partition("\nproof\n")[0].split("\n", 3)[3]
        program = parse_program(text)
        env = dict(program.parameters) | {"n": ranks, "root": root}
        print(f"program {path}")
        if all(evaluate(condition, env) for condition in program.requires):
            run(program, program.body, env)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
