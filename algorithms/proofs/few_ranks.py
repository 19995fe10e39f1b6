"""A program at one rank count: its transfers are done, and its result is looked at.

With one rank or two some expressions have no value for which there is a rule, such as `x % (n - 1)`.
A certificate may then be of more ranks, and those counts are tried. Where the rules of the language
are not simple, this is stricter than they are.
"""

from itertools import product
from typing import Any, Iterable, Optional

from collectives import specification
from programs import BLOCKED, ROOTED, Program, Region, Rule
from refutations import require
from states import View
from values import evaluate

Env = dict[str, int]
# The contributions in a place, each chunk e of rank j; none of a place that is not stored.
Content = Optional[frozenset[tuple[int, int]]]
# A buffer, a rank, a chunk.
Place = tuple[str, int, int]
Memory = dict[Place, Content]

# Turns of a loop, and values of a variable, at most.
MOST_TURNS = 4096
MOST_CHUNKS = 4096


def turns(first: int, end: int) -> range:
    """Returns the values of a counter."""
    require(end - first <= MOST_TURNS, "too many turns to try")
    return range(first, end)


class Trial:
    """A program at one rank count, with one root."""

    def __init__(self, program: Program, ranks: int, root: int) -> None:
        self.program, self.ranks = program, ranks
        self.env: Env = dict(program.parameters) | {"n": ranks, "root": root}
        self.sizes = {name: evaluate(e, self.env) for name, e in program.sizes().items()}
        for value in self.sizes.values():
            require(1 <= value <= MOST_CHUNKS, "a buffer that is not tried")
        for e, most in program.schedule:
            require(1 <= evaluate(e, self.env) <= most, "a schedule out of range")
        self.is_union = program.kind == "barrier"
        self.equal_chunks = program.kind in BLOCKED or program.chunks == ("int", 1)

    def places(self, buffer: str) -> Iterable[Place]:
        """Yields the places of a buffer."""
        for rank, chunk in product(range(self.ranks), range(self.sizes[buffer])):
            yield buffer, rank, chunk

    def content(self, view: View, place: Place) -> Content:
        """Returns what a view says of a place."""
        at = self.env | {"q": place[1], "c": place[2]}
        if not evaluate(view[0], at):
            return None
        # Contributions begin in the first buffer.
        began = self.places(next(iter(self.sizes)))
        of = ((j, e) for _, j, e in began if evaluate(view[1], at | {"j": j, "e": e}))
        return frozenset(of)

    def check(self) -> None:
        """Requires that each part of the program ends with what is asked for."""
        initial, asked = specification(self.program)
        first, result = list(self.sizes)[0], list(self.sizes)[0 if self.program.is_data else 1]
        memory: Memory = {
            place: self.content(initial, place) if name == first else None
            for name in self.sizes for place in self.places(name)
        }
        for end in self.run(memory, self.program.body, self.env):
            for place in self.places(result):
                wanted = self.content(asked, place)
                right = wanted is None or end[place] == wanted
                require(right, f"with {self.ranks} ranks, another result")

    def run(self, memory: Memory, body: list[tuple[Any, ...]], env: Env) -> list[Memory]:
        """Runs statements, and returns the memory after them, for each part if there are some."""
        ends = [memory]
        for at, (kind, *rest) in enumerate(body):
            if kind == "part":
                is_first = all(before[0] == "check" for before in body[:at])
                require(is_first and rest[1] is not None, "parts that are not tried")
                first, end = (evaluate(e, env) for e in rest[1])
                require(first < end, "there are no parts")
                parts = [env | {rest[0]: part} for part in turns(first, end)]
                return [end for own in parts for end in self.run(memory, body[at + 1 :], own)]
            if kind == "check":
                evaluate(rest[0], env)
                continue
            if kind == "assert":
                require(bool(evaluate(rest[0], env)), "what a used algorithm requires")
                continue
            if kind == "for":
                steps = turns(evaluate(rest[1], env), evaluate(rest[2], env))
                inner = [(rest[3], env | {rest[0]: value}) for value in steps]
            elif kind == "if":
                inner = [(rest[1] if evaluate(rest[0], env) else rest[2], env)]
            else:
                ends = [self.round(ends[0], rest[0], env)]
                continue
            for statements, own in inner:
                require(all(each[0] != "part" for each in statements), "parts within a block")
                ends = self.run(ends[0], statements, own)
        return ends

    def round(self, memory: Memory, rules: list[Rule], env: Env) -> Memory:
        """Does the transfers of a round, and returns the memory after it."""
        after = dict(memory)
        written: set[Place] = set()
        for rule in rules:
            envs = [env]
            for name, first, end in rule.variables:
                envs = [
                    own | {name: value} for own in envs
                    for value in turns(evaluate(first, own), evaluate(end, own))
                ]
            for own in envs:
                if all(evaluate(condition, own) for condition in rule.conditions):
                    for place, content in self.transfer(memory, rule, own):
                        require(place not in written, "a place is written twice in a round")
                        written.add(place)
                        after[place] = content
        return after

    def chunks(self, region: Region, env: Env) -> list[int]:
        """Returns the chunks of a region, in order."""
        size = self.sizes.get(region.buffer)
        if size is None:
            require(False, f"no buffer: {region.buffer}")
            return []
        require(region.by is None and region.take is None, "a region that is not tried")
        if region.kind == "all":
            return list(range(size))
        first, *more = [evaluate(e, env) for e in region.ends]
        count = more[0] if more else 1
        if region.kind == "..":
            count = more[0] - first
        if count <= 0:
            return []
        end = 0 if region.kind == "..+" else first + count
        inside = 0 <= first < size and count <= size and end <= size
        require(inside, "chunks are not in range")
        return [(first + more) % size for more in range(count)]

    def transfer(self, memory: Memory, rule: Rule, env: Env) -> Iterable[tuple[Place, Content]]:
        """Yields the places that a transfer writes, with what is in them then."""
        for check in rule.checks:
            evaluate(check, env)
        src, dst = evaluate(rule.src, env), evaluate(rule.dst, env)
        require(0 <= src < self.ranks and 0 <= dst < self.ranks, "ranks are not in range")
        source, target = self.chunks(rule.source, env), self.chunks(rule.target, env)
        require(len(source) == len(target), "not as many chunks are read as written")
        for read, chunk in zip(source, target):
            require(self.equal_chunks or read == chunk, "chunks of other lengths")
            is_written = rule.target.buffer.startswith("scratch") or dst != 0
            require(is_written or self.program.kind != "exscan", "rank 0 is written")
            place = (rule.target.buffer, dst, chunk)
            brought, own = memory[rule.source.buffer, src, read], memory[place]
            if brought is None:
                require(False, "what is read is not stored")
                continue
            if rule.op == "copy" and not self.is_union:
                yield place, brought
                continue
            if own is None:
                require(False, "what is added to is not stored")
                continue
            require(self.is_union or not brought & own, "a contribution is added twice")
            if self.program.kind in ("scan", "exscan"):
                low, high = (brought, own) if src < dst else (own, brought)
                ordered = sorted(low) + sorted(high)
                following = [(ordered[0][0] + at, ordered[0][1]) for at in range(len(ordered))]
                require(bool(low and high) and ordered == following, "ranks in another order")
            yield place, brought | own


def check_count(program: Program, ranks: int) -> None:
    """Requires that a program is right with that number of ranks, if it is meant for them."""
    if program.kind == "sendrecv" and ranks != 2:
        return
    for root in range(ranks) if program.kind in ROOTED else [0]:
        env = dict(program.parameters) | {"n": ranks, "root": root}
        if all(evaluate(condition, env) for condition in program.requires):
            Trial(program, ranks, root).check()
