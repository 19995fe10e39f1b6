"""The statements that a program and its invariants make necessary, each with its refutation.

`docs/proofs.md` says why they suffice. Everything that is proved is read off the program's text; of
the certificate come invariants, expressions for the writer of a place, and refutations. None of
these is trusted: a wrong one leaves a statement without a proof.
"""

from hashlib import sha256
from typing import Any

from collectives import FORGOTTEN, parse, specification
from facts import is_variable, literal
from few_ranks import check_count
from programs import (
    BLOCKED, ROOTED, Expression, Program, Rule, expressions, parse_program, powers, written,
)
from refutations import (
    Formula, Part, Refused, Term, add_facts, check_tree, eq, le, lt, negate, normalize, number,
    require,
)
from states import Contribution, Place, State, StateReader, Transfer, View, combine, has_token, iff
from terms import Context

MOST_RANKS = 1 << 24
MOST_CHUNKS = (1 << 31) - 1
# Rank counts that are tried one by one, at most.
MOST_TRIED = 2
N: Expression = ("var", "n")


class Checker(StateReader):
    """Goes through a program, and takes the lines of its proof."""

    def __init__(self, program: Program, proof: list[str]) -> None:
        super().__init__(program)
        self.program, self.proof, self.line = program, proof, 0
        self.is_ordered = program.kind in ("scan", "exscan")
        self.initial: State = ()
        self.equal_chunks = program.kind in BLOCKED or program.chunks == ("int", 1)

    def next(self, word: str) -> str:
        """Takes a line of the proof, which begins with a word, and returns the rest."""
        line = self.proof[self.line] if self.line < len(self.proof) else ""
        self.line += 1
        require(line.startswith(word + " "), f"`{word}` expected, found `{line[:60]}`")
        return line[len(word) + 1 :]

    def refute(self, context: Context, goal: Formula, tree: str) -> None:
        """Checks that a goal follows from the facts of a context."""
        facts = Part(*(list(part) for part in context.facts))
        check_tree(tree, add_facts(normalize(goal, False), facts), len(context.magnitudes))

    def show(self, context: Context, name: str, goal: Formula) -> None:
        """Requires that a goal follows."""
        if goal is not True:
            tree = self.next(f"show {name} by")
            try:
                self.refute(context, goal, tree)
            except Refused as why:
                raise Refused(f"not shown that {name}: {why}") from why

    def holds(self, context: Context, goal: Formula) -> bool:
        """Returns true if a goal follows, by a line of the proof; else nothing is known."""
        tree = self.next("fact")
        if tree == "open":
            return False
        self.refute(context, goal, tree)
        return True

    def counter(self, context: Context, first: Term, end: Term) -> Term:
        """Adds a variable from a number on and below another."""
        if end - first == number(1):
            return first
        ranks = context.number(N)
        if first == number(0):
            value = context.variable_below(end)
            if end == ranks:
                return value
        else:
            value = context.variable(max(context.magnitude(first), context.magnitude(end)))
            context.assume(le(first, value))
            context.assume(lt(value, end))
        if self.holds(context, le(0, value)):
            context.nonnegative.append(value.parts[0][0])
            if self.holds(context, lt(value, ranks)):
                context.below.append((value, ranks))
        return value

    def place(self, context: Context, buffer: str) -> Place:
        """Adds the variables of any place of a buffer."""
        ranks, size = context.number(N), context.number(self.sizes[buffer])
        return Place(buffer, context.variable_below(ranks), context.variable_below(size))

    def contribution(self, context: Context) -> Contribution:
        """Adds the variables of any contribution."""
        first = next(iter(self.sizes.values()))
        ranks, size = context.number(N), context.number(first)
        return context.variable_below(ranks), context.variable_below(size)

    def check(self) -> None:
        """Checks the proof."""
        program = self.program
        require(self.equal_chunks or not program.scratch, "scratch beside chunks of many lengths")
        is_split = any(statement[0] == "part" for statement in program.body)
        require(not is_split or not program.scratch, "scratch beside a `split`")
        first, result = list(self.sizes)[0], list(self.sizes)[0 if program.is_data else 1]
        context = self.first_context(self.least())
        initial, asked = specification(program)
        views = {name: initial if name == first else FORGOTTEN for name in self.sizes}
        self.initial = ("views", views, {}, None)
        state = self.run(context, self.initial, program.body)
        self.show_views(context, state, ("views", {result: asked}, {}, None), "the result")
        require(self.line == len(self.proof), "lines after the proof")

    def least(self) -> int:
        """Returns the least number of ranks that the proof is of, when lesser ones are tried."""
        if not self.proof[:1] or not self.proof[0].startswith("ranks "):
            return 1
        least = int(self.next("ranks from"))
        require(2 <= least <= MOST_TRIED + 1, "rank counts that are not tried")
        for ranks in range(1, least):
            check_count(self.program, ranks)
        return least

    def first_context(self, least: int) -> Context:
        """Returns what holds before the program."""
        program, context = self.program, Context()
        context.has_exact_multiples = self.is_ordered
        ranks = context.variable(MOST_RANKS)
        context.assume_positive(ranks)
        context.assume(le(ranks, MOST_RANKS))
        for fewer in range(1, least):
            context.assume_positive(ranks - fewer)
        context.env["n"] = ranks
        is_rooted = program.kind in ROOTED
        context.env["root"] = context.variable_below(ranks) if is_rooted else number(0)
        for name, parameter in program.parameters:
            context.env[name] = number(parameter)
        if program.kind == "sendrecv":
            # Other rank counts are refused.
            context.assume(eq(ranks, 2))
        for condition in program.requires:
            self.assume_condition(context, condition)
        limits = [(size, MOST_CHUNKS) for size in self.sizes.values()] + program.schedule
        for e, most in limits:
            value = context.number(e)
            goal = combine("and", [literal(le(1, value)), literal(le(value, most))])
            self.show(context, "a number is in its range", goal)
            context.assume_positive(value)
        return context

    def assume_condition(self, context: Context, e: Expression) -> None:
        """Assumes a condition of the program."""
        if e[0] == "&&":
            for part in e[1:]:
                self.assume_condition(context, part)
        elif e == ("call", "pow2", N):
            context.note_power(context.number(N))
        else:
            context.assume(context.truth(e))

    def run(self, context: Context, state: State, body: list[tuple[Any, ...]]) -> State:
        """Checks statements, and returns the state after them."""
        for kind, *rest in body:
            if kind == "check":
                context.evaluate(rest[0])
            elif kind == "assert":
                self.show(context, "what a used algorithm requires", context.truth(rest[0]))
            elif kind == "part":
                require(state is self.initial, "a part behind transfers")
                if rest[1] is None:
                    context.env[rest[0]] = context.variable_below(number(1 << 32))
                else:
                    first, end = (context.number(e) for e in rest[1])
                    self.show(context, "there are parts", lt(first, end))
                    context.env[rest[0]] = self.counter(context, first, end)
            elif kind == "round":
                state = self.round(context, state, rest[0])
            elif kind == "if":
                holds, inner = context.truth(rest[0]), []
                for condition, list_ in (holds, rest[1]), (negate(holds), rest[2]):
                    branch = context.copy()
                    branch.assume(condition)
                    inner.append(self.run(branch, state, list_))
                state = ("choice", rest[0], *inner)
            else:
                state = self.loop(context, state, *rest)
        return state

    def loop(self, context: Context, before: State, *loop: Any) -> State:
        """Checks a loop, and returns the state after it."""
        name, first, end, body = loop
        start, stop = context.number(first), context.number(end)
        last = stop
        if not self.holds(context, le(start, stop)):
            last = context.choose(literal(le(stop, start)), start, stop)
        # The head of the loop after the last turn may be about powers that no turn has.
        for counter in start, last:
            context.env[name] = counter
            self.add_levels(context, body)
        del context.env[name]
        views: dict[str, View] = {}
        for buffer in self.sizes:
            if buffer in written(body):
                stored, _, content = self.next(f"invariant {buffer} :").partition(" : ")
                views[buffer] = (parse(stored), parse(content, "qcjet"))
                is_first = buffer == next(iter(self.sizes))
                require(not has_token(views[buffer]) or is_first, "tokens in another buffer")
        first_turn = ("views", views, {name: start}, None)
        self.show_views(context, before, first_turn, "the first turn of a loop")
        inner = context.copy()
        counter = self.counter(inner, start, stop)
        inner.env[name] = counter
        self.add_levels(inner, body)
        after = self.run(inner, ("views", views, {name: counter}, before), body)
        next_turn = ("views", views, {name: counter + 1}, None)
        moved = [rules for kind, rules, *_ in body if kind == "round"]
        is_one = len(moved) == 1 and all(each[0] in ("round", "check") for each in body)
        step = (moved[0], {name: counter}) if is_one else None
        self.show_views(inner, after, next_turn, "the next turn of a loop", step)
        return ("views", views, {name: last}, before)

    def show_views(
        self, context: Context, state: State, wanted: State, what: str, step: Any = None
    ) -> None:
        """Requires that a state has what views say of any place of their buffers.

        `step` is the one round that led to the state, and the counters before it, if there is one.
        """
        for buffer in wanted[1]:
            inner = context.copy()
            place = self.place(inner, buffer)
            inner.assume(self.known(inner, wanted, place))
            stored = self.known(inner, state, place)
            self.show(inner, f"{what}: its places are stored", stored)
            if has_token(wanted[1][buffer]):
                self.show_tokens(inner, state, wanted, place, what, step)
                continue
            of = self.contribution(inner)
            both = [self.known(inner, each, place, of) for each in (wanted, state)]
            self.show(inner, f"{what}: its places contain what they should", iff(*both))

    def show_tokens(
        self, context: Context, state: State, wanted: State, place: Place, what: str, step: Any
    ) -> None:
        """Requires that each contribution is in one known place, and which."""
        view = wanted[1][place.buffer]
        inner = context.copy()
        of = self.contribution(inner)
        token = self.token_after(inner, view, of, step)
        known = self.is_known(inner, view, wanted[2], token, of)
        self.show(inner, f"{what}: each contribution is in a known place", known)
        of = self.contribution(context)
        token = self.token_after(context, view, of, step)
        is_there = combine("and", [eq(token, place.rank), eq(of[1], place.chunk)])
        goal = ("iff", is_there, self.known(context, state, place, of))
        self.show(context, f"{what}: its places contain what they should", goal)

    def token_after(self, context: Context, view: View, of: Contribution, step: Any) -> Term:
        """Returns the rank to which a round moves a contribution: where it began, without one."""
        if step is None:
            return of[0]
        rules, counters = step
        token = found = self.token(context, view, counters, of)
        for rule in rules:
            is_each = [(rule.src[1], ("int", 0), N)] == rule.variables and rule.src[0] == "var"
            require(rule.op == "reduce" and is_each, "a transfer that moves no token")
            context.env[rule.src[1]] = token
            conditions = [context.truth(condition) for condition in rule.conditions]
            source = self.region(context, rule, False)
            conditions.append(source.contains(context, of[1]))
            dst = context.number(rule.dst)
            found = context.choose(combine("and", conditions), dst, found)
        return found

    def add_levels(self, context: Context, body: list[tuple[Any, ...]]) -> None:
        """Adds the powers of two that a loop goes through."""
        exponents: list[Term] = []
        for e in [power for whole in expressions(body) for power in powers(whole)]:
            try:
                if e[0] == ">>":
                    number_, shift = context.number(e[1]), context.number(e[2])
                    exponent = next((x for x, d in context.levels if d == number_), None)
                    if exponent is None:
                        continue
                    exponent = exponent - shift
                else:
                    exponent = context.number(e[-1])
            except Refused:
                continue
            if not exponent.parts:
                continue
            same = (at for at, other in enumerate(exponents) if not (other - exponent).parts)
            at = next(same, None)
            if at is None:
                exponents.append(exponent)
            elif exponent.constant < exponents[at].constant:
                exponents[at] = exponent
        for exponent in exponents:
            # Where a loop ends or begins, the next power may be one and this one none.
            if not self.add_level_below(context, exponent):
                self.add_level_below(context, exponent + 1)

    def add_level_below(self, context: Context, exponent: Term) -> bool:
        """Adds a power of two that is no greater than a known one; true if it is known then."""
        try:
            context.power(exponent)
            return True
        except Refused:
            pass
        if self.holds(context, le(0, exponent)):
            for other, level in list(context.levels):
                if self.holds(context, le(exponent, other)):
                    level = context.add_level(exponent, context.magnitude(level))
                    context.digit_levels.append(level)
                    return True
        return False

    def round(self, context: Context, before: State, rules: list[Rule]) -> State:
        """Checks a round, and returns the state after it."""
        transfers = []
        for rule in rules:
            of, _, writers = self.next("writer of").partition(" : ")
            is_sum = of == "contribution" and rule.op == "reduce"
            require(of == "place" or is_sum, f"no writer: {of}")
            writer = [parse(e) for e in writers.split(" , ")] if writers else []
            require(len(writer) == len(rule.variables), "a writer with other variables")
            transfers.append(Transfer(rule, writer, of == "contribution"))
        # A copied value takes part in the sum of its round.
        transfers.sort(key=lambda transfer: transfer.rule.op == "reduce")
        copies = [transfer for transfer in transfers if transfer.rule.op == "copy"]
        is_mixed = 0 < len(copies) < len(transfers)
        copied = ("round", before, copies) if is_mixed else before
        for transfer in transfers:
            self.transfer(context.copy(), before, copied, transfer)
        for at, a in enumerate(transfers):
            for b in transfers[at + 1 :]:
                if not self.is_union or a.rule.op == b.rule.op == "copy":
                    self.show_apart(context.copy(), before, a, b)
        return ("round", before, transfers)

    def transfer(self, context: Context, before: State, copied: State, found: Transfer) -> None:
        """Checks a transfer, for all values of its variables."""
        rule, values = found.rule, []
        is_sum = rule.op == "reduce"
        for name, first, end in rule.variables:
            value = self.counter(context, context.number(first), context.number(end))
            context.env[name] = value
            values.append(value)
        for condition in rule.conditions:
            context.assume(context.truth(condition))
        for check in rule.checks:
            context.evaluate(check)
        src, dst, ranks = (context.number(e) for e in (rule.src, rule.dst, N))
        inside = (combine("and", [le(0, rank), lt(rank, ranks)]) for rank in (src, dst))
        self.show(context, "ranks are in range", combine("and", inside))
        for rank in src, dst:
            context.assume(le(0, rank))
            context.assume(lt(rank, ranks))
            if is_variable(rank):
                context.below.append((rank, ranks))
        source, to = self.region(context, rule, False), self.region(context, rule, True)
        goal = combine("and", [source.valid, to.valid, source.has_count_of(to)])
        self.show(context, "chunks are in range, as many read as written", goal)
        chunk = context.variable_below(context.number(self.sizes[rule.target.buffer]))
        context.assume(to.contains(context, chunk))
        source_chunk = self.source_chunk(context, rule, to, chunk)
        read = Place(rule.source.buffer, src, source_chunk)
        target = Place(rule.target.buffer, dst, chunk)
        stored = [self.known(context, before, read)]
        if is_sum or self.is_union:
            stored.append(self.known(context, copied, target))
        self.show(context, "what is read is stored", combine("and", stored))
        if not self.equal_chunks:
            self.show(context, "chunks have the same length", eq(source_chunk, chunk))
        if self.program.kind == "exscan" and not rule.target.buffer.startswith("scratch"):
            self.show(context, "rank 0 is not written", le(1, dst))
        self.show_writer(context.copy(), before, found, values, read, target)
        if is_sum and not self.is_union:
            context = context.copy()
            of = self.contribution(context)
            both = [self.known(context, copied, target, of), self.known(context, before, read, of)]
            goal = negate(combine("and", both))
            self.show(context, "each contribution is added once", goal)
            if self.is_ordered:
                require(not found.by_content, "many ranks add to one place in an order")
                self.show_order(context, (before, read), (copied, target))
            require(to.is_simple() or not found.by_content, "many ranks add to part of a buffer")

    def show_order(
        self, context: Context, sent: tuple[State, Place], own: tuple[State, Place]
    ) -> None:
        """Requires that a sum is of consecutive ranks, those of the lower rank's place first.

        Sums begin as one rank. If all ranks of the first are below all of the second, and the rank
        behind each of the first is in one of them, they are intervals, one behind the other.
        """
        for is_upward in True, False:
            inner = context.copy()
            upward = lt(sent[1].rank, own[1].rank)
            first = self.contribution(inner)
            second = (self.contribution(inner)[0], first[1])
            following = (self.contribution(inner)[0], first[1])
            low, high = (sent, own) if is_upward else (own, sent)
            applies = upward if is_upward else negate(upward)
            in_low = combine("and", [applies, self.known(inner, *low, first)])
            in_high = self.known(inner, *high, second)
            below = lt(first[0], second[0])
            goal = ("or", (negate(combine("and", [in_low, in_high])), below))
            self.show(inner, "ranks are added in their order", goal)
            # The last rank has none behind it, but is not in the first: the second is not empty.
            inner.assume(eq(following[0], first[0] + 1))
            either = combine("or", [self.known(inner, *each, following) for each in (low, high)])
            goal = ("or", (negate(in_low), either))
            self.show(inner, "sums are of consecutive ranks", goal)

    def show_writer(
        self, context: Context, before: State, found: Transfer, values: list[Term], *at: Place
    ) -> None:
        """Requires that the variables of a transfer are what the certificate says."""
        read, target = at
        of = self.contribution(context) if found.by_content else None
        if of is not None:
            context.assume(self.known(context, before, read, of))
        self.in_place(context, target, of)
        goals = []
        for (name, _, _), writer, value in zip(found.rule.variables, found.writer, values):
            goals.append(eq(context.number(writer), value))
            context.env[name] = value
        name = "each contribution comes from one rank" if of else "one rank writes a place"
        self.show(context, name, combine("and", goals))

    def show_apart(self, context: Context, before: State, a: Transfer, b: Transfer) -> None:
        """Requires that two transfers write other places, or add other contributions."""
        if a.rule.target.buffer != b.rule.target.buffer:
            return
        place = self.place(context, a.rule.target.buffer)
        is_copy = [found.rule.op == "copy" for found in (a, b)]
        kinds = {found.rule.target.kind for found in (a, b)}
        # Regions of sums may meet where both are one chunk, or both the whole buffer.
        may_meet = not all(is_copy) and kinds in ({"all"}, {"at"}) and not self.is_ordered
        if may_meet and any(is_copy):
            return
        require(may_meet or not a.by_content and not b.by_content, "sums in other regions")
        of = self.contribution(context) if may_meet else None
        both: list[Formula] = []
        for found in a, b:
            happens, source = self.receipt(context, found, place, of)
            both.append(happens)
            if of is not None:
                both.append(self.known(context, before, source, of))
        goal = negate(combine("and", both))
        self.show(context, "two transfers of a round do not write one place", goal)


def check_certificate(text: str) -> None:
    """Checks a certificate without its first line."""
    head, _, proof = text.partition("\nproof\n")
    found, _, named = head.partition("\n")
    hashed = sha256(f"{named}\n".encode()).hexdigest()
    require(found == f"hash {hashed}", "the program has another hash")
    name, _, body = named.partition("\n")
    require(name.startswith("algorithm "), "no algorithm")
    program = parse_program(body)
    steps = proof.split("\n")
    require(steps[-2:] == ["end", ""], "no end of the proof")
    require(name.startswith(f"algorithm {program.kind}."), "the name of another collective")
    Checker(program, steps[:-2]).check()
