"""Random Python functions: what Python executes is what the algorithm moves, or the function is refused."""

from __future__ import annotations

import importlib.util
import json
import operator
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from roundelay import RefusedError
from roundelay._function import translate

N = 3
CHUNKS = 4
# Names that the module has too: a name of the function must never fall back to them.
HEAD = "from roundelay.lang import *\nq = 2\nw = 5\n"
NAMES = ["a", "b", "q", "w"]
Move = tuple[int, int, int, int]


class Programs:
    """Generates functions: names bound in blocks, loops and branches, and read anywhere."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.known = ["n"]

    def one(self, name: str) -> str:
        self.known = ["n"]
        self.lines = [f"def {name}(n):", f"    chunks({CHUNKS})"]
        self.block(1, self.random.randint(2, 4), ranks=False, depth=0)
        self.line(1, "for r in each:")
        self.move(2)
        return "\n".join(self.lines) + "\n\n\n"

    def line(self, level: int, text: str) -> None:
        self.lines.append("    " * level + text)

    def block(self, level: int, count: int, *, ranks: bool, depth: int) -> None:
        outer = list(self.known)
        for _ in range(count):
            self.statement(level, ranks=ranks, depth=depth)
        # Some reads reach names that the block has bound.
        if self.random.random() < 0.85:
            self.known = outer

    def statement(self, level: int, *, ranks: bool, depth: int) -> None:
        kinds = ["let", "let", "let"]
        if depth < 3:
            kinds += ["if", "for", "move" if ranks else "each"]
        elif ranks:
            kinds = ["move"]
        match self.random.choice(kinds):
            case "let":
                name = self.random.choice(NAMES)
                value = self.expression(2)
                if self.random.random() < 0.04:
                    self.line(level, f"{name} {self.random.choice(['+', '*', '//'])}= 2")
                else:
                    self.line(level, f"{name} = {value}")
                self.known.append(name)
            case "if":
                self.line(level, f"if {self.condition(1)}:")
                self.block(level + 1, self.random.randint(1, 2), ranks=ranks, depth=depth + 1)
                if self.random.random() < 0.4:
                    self.line(level, "else:")
                    self.block(level + 1, 1, ranks=ranks, depth=depth + 1)
            case "for":
                name = self.random.choice(["s", "t", *NAMES])
                ends = self.random.choice(["2", "3", "n", "n - 3", "1, 3", "2, 1", "-1, 1"])
                self.line(level, f"for {name} in range({ends}):")
                self.known.append(name)
                self.block(level + 1, self.random.randint(1, 2), ranks=ranks, depth=depth + 1)
            case "each":
                self.line(level, "for r in each:")
                self.known.append("r")
                self.block(level + 1, self.random.randint(1, 2), ranks=True, depth=depth + 1)
                self.known = [name for name in self.known if name != "r"]
            case "move":
                self.move(level)

    def move(self, level: int) -> None:
        self.known.append("r")
        chosen = f"(r if {self.condition(1)} else (r + 1) % n)"
        source = self.random.choice(["r", "r", chosen, "(-r % n)", "max(r - 1, r)"])
        to = f"({self.expression(1)}) % n"
        index = f"({self.expression(1)}) % {CHUNKS}"
        if self.random.random() < 0.15:
            start, end = self.expression(1), self.expression(1)
            index = f"({start}) % 2:({end}) % 5" if self.random.random() < 0.6 else f"({start}) % 2:{end}"
        self.line(level, f"{source}.to({to}).reduce(data[{index}])")

    def expression(self, depth: int) -> str:
        if depth == 0 or self.random.random() < 0.25:
            return self.random.choice([*self.known, *self.known, "q", str(self.random.randint(-3, 4))])
        a, b = self.expression(depth - 1), self.expression(depth - 1)
        number = self.random.choice([-3, -2, 2, 3])
        return self.random.choice(
            [
                f"{a} + {b}",
                f"{a} - ({b})",
                f"({a}) * {number}",
                f"({a}) // {number}",
                f"({a}) % {number}",
                f"-({a})",
                f"(({a}) % 5 << 1)",
                f"(({a}) % 3) ** 2",
                f"({a}) & 3 | ({b}) % 4 ^ 1",
                f"max({a}, {b})",
                f"({a} if {self.condition(0)} else {b})",
            ]
        )

    def condition(self, depth: int) -> str:
        a, b, c = (self.expression(0) for _ in range(3))
        simple = self.random.choice([f"{a} < {b}", f"{a} <= {b} != {c}", f"{a} % 2 == 1", f"({a}) // 2 > {b} - {c}"])
        if depth == 0:
            return simple
        other = self.condition(depth - 1)
        return self.random.choice([simple, f"{simple} and {other}", f"not ({simple} or {other})", f"not {simple}"])


class Rank(int):
    """A rank that records what moves; numbers that are computed from it are ranks too."""

    record: list[list[Move]]

    def to(self, target: int) -> Rank:
        self.target = target
        return self

    def reduce(self, chunks: list[int]) -> None:
        self.record[-1] += [(int(self), int(self.target), c, c) for c in chunks]


def _ranked(of: Callable[..., Any]) -> Any:
    return lambda *sides: type(sides[0])(of(*map(int, sides)))


for _name in ("add", "sub", "mul", "floordiv", "mod", "lshift", "and", "or", "xor", "neg", "pow"):
    _of = getattr(operator, {"and": "and_", "or": "or_"}.get(_name, _name))
    setattr(Rank, f"__{_name}__", _ranked(_of))
    setattr(Rank, f"__r{_name}__", _ranked(lambda a, b, of=_of: of(b, a)))


class Data:
    """A buffer, whose regions are lists of chunks."""

    def __getitem__(self, index: Any) -> list[int]:
        found = list(range(CHUNKS))[index]
        return found if isinstance(found, list) else [found]


def executed(text: str, name: str) -> list[list[Move]]:
    """Return what Python executes, in rounds. The names of algorithms record."""
    record: list[list[Move]] = []
    own = type("Own", (Rank,), {"record": record})

    class Each:
        def __iter__(self) -> Iterator[int]:
            record.append([])
            return iter([own(r) for r in range(N)])

    space: dict[str, Any] = {"each": Each(), "data": Data(), "chunks": lambda count: None, "q": 2, "w": 5}
    exec(text, space)
    space[name](N)
    return [sorted(moves) for moves in record if moves]


def moved(command: str, text: str, path: Path) -> list[list[Move]] | str:
    """Return what the algorithm moves, in rounds, or the code of an error."""
    path.write_text(text)
    shown = [command, "show", str(path), "--stage", "graph", "-n", str(N), "--json"]
    done = subprocess.run(shown, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        return done.stderr.partition("[")[2].partition("]")[0]
    rounds: dict[int, list[Move]] = {}
    for step in json.loads(done.stdout)["steps"]:
        assert step["from"] == step["to"]
        first, _, end = step["from"].removeprefix("data").strip("[]").partition("..")
        chunks = range(CHUNKS) if not first else range(int(first), int(end or int(first) + 1))
        rounds.setdefault(step["round"], []).extend((step["src"], step["dst"], c, c) for c in chunks)
    return [sorted(moves) for _, moves in sorted(rounds.items())]


# Errors of the compiler, at the line of Python: chunks that do not exist, reductions that overlap.
ERRORS = {"RL0401", "RL0403", "RL0405", "RL0406", "RL0408", "RL0409"}


def test_what_python_executes_is_what_moves(command: str, tmp_path: Path) -> None:
    programs = Programs(20261127)
    texts = {f"f{i}": programs.one(f"f{i}") for i in range(400)}
    module = tmp_path / "random_functions.py"
    module.write_text(HEAD + "\n\n" + "".join(texts.values()))
    spec = importlib.util.spec_from_file_location("random_functions", module)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    refused = equal = failed = 0
    for name, text in texts.items():
        try:
            algorithm, _ = translate(getattr(loaded, name), "all_reduce")
        except RefusedError as error:
            assert error.source is not None and error.source.startswith(str(module))
            refused += 1
            continue
        try:
            wanted = executed(text, name)
        except UnboundLocalError as error:
            raise AssertionError(f"accepted, though {error}:\n{text}") from error
        found = moved(command, algorithm, tmp_path / "one.algo")
        if isinstance(found, str):
            assert found in ERRORS, f"{found}:\n{text}\n{algorithm}"
            failed += 1
        else:
            assert found == wanted, f"{text}\n{algorithm.lstrip()}"
            equal += 1
    print(f"{equal} equal, {refused} refused, {failed} with an error of the compiler")
    assert equal >= 60 and refused >= 60
