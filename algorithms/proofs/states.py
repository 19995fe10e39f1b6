"""What is known of any place of memory between two rounds, as formulas.

A state is made of the rules themselves, anew for each place that a statement is about.
"""

from dataclasses import dataclass
from typing import Any, Iterable, Optional

from facts import literal
from programs import Expression, Program, Rule, variables
from refutations import Formula, Term, eq, le, lt, negate, require
from regions import RegionChunks
from terms import Context

# The places of a buffer of which something is known, and what is in them, as expressions of the
# rank q, the chunk c, and of a contribution: chunk e of rank j.
View = tuple[Expression, Expression]
# ("views", views by buffer, counters with their values, the state of other buffers),
# ("round", the state before, transfers), ("choice", condition, state, state).
State = tuple[Any, ...]
# A contribution: chunk e of rank j.
Contribution = tuple[Term, Term]


# What is in a place where each contribution is in one, of rank t.
MOVED: Expression = (
    "&&", ("==", ("var", "t"), ("var", "q")), ("==", ("var", "e"), ("var", "c"))
)


@dataclass
class Place:
    """A place of a buffer."""

    buffer: str
    rank: Term
    chunk: Term


@dataclass
class Transfer:
    """A rule, its variables as expressions of the place that it writes, or of a contribution."""

    rule: Rule
    writer: list[Expression]
    by_content: bool


def combine(op: str, formulas: Iterable[Formula]) -> Formula:
    """Returns the conjunction or the disjunction, without what is decided."""
    parts: list[Formula] = []
    for formula in formulas:
        if isinstance(formula, bool):
            if formula == (op == "or"):
                return formula
        else:
            parts += formula[1] if formula[0] == op else [formula]
    return (op, tuple(parts)) if len(parts) > 1 else parts[0] if parts else op == "and"


def choose(condition: Formula, yes: Formula, no: Formula) -> Formula:
    """Returns one of two formulas by a condition, without what is decided."""
    if isinstance(condition, bool) or yes == no:
        return yes if condition else no
    cases = (combine("and", [condition, yes]), combine("and", [negate(condition), no]))
    return combine("or", cases)


def iff(a: Formula, b: Formula) -> Formula:
    """Returns the formula that both hold or neither, without what is decided."""
    if isinstance(a, bool) or isinstance(b, bool):
        decided, other = (a, b) if isinstance(a, bool) else (b, a)
        return other if decided else negate(other)
    return True if a == b else ("iff", a, b)


def has_token(view: View) -> bool:
    """Returns true if a view says of each contribution that it is in one known place of rank t."""
    if "t" not in variables(view[1]):
        return False
    require(view[1] == MOVED, "another content with tokens")
    return True


class StateReader:
    """A program whose states are read."""

    def __init__(self, program: Program) -> None:
        self.sizes = program.sizes()
        self.is_union = program.kind == "barrier"

    def in_place(self, context: Context, place: Place, of: Optional[Contribution]) -> None:
        """Sets the variables of a place, and of a contribution."""
        context.env["q"], context.env["c"] = place.rank, place.chunk
        for name, term in zip("je", of or (None, None)):
            context.env.pop(name, None)
            if term is not None:
                context.env[name] = term

    def known(
        self, context: Context, state: State, place: Place, of: Optional[Contribution] = None
    ) -> Formula:
        """Returns the formula that a place is stored, or that it has a contribution."""
        if state[0] == "views":
            _, views, counters, before = state
            if place.buffer not in views:
                require(before is not None or of is None, "nothing is known of a buffer")
                return before is not None and self.known(context, before, place, of)
            view = views[place.buffer]
            if of is not None and has_token(view):
                context.env["t"] = self.token(context, view, counters, of)
            self.in_place(context, place, of)
            return self.truth_at(context, counters, view[of is not None])
        if state[0] == "choice":
            condition = context.truth(state[1])
            yes, no = (self.known(context, inner, place, of) for inner in state[2:])
            return choose(condition, yes, no)
        _, before, transfers = state
        found = [self.known(context, before, place, of)]
        for transfer in transfers:
            is_copy = transfer.rule.op == "copy"
            if transfer.rule.target.buffer != place.buffer or (of is None and not is_copy):
                continue
            happens, source = self.receipt(context, transfer, place, of)
            if of is None:
                found.append(happens)
            elif happens is not False:
                brought = self.known(context, before, source, of)
                if is_copy and not self.is_union:
                    found = [choose(happens, brought, found[0])]
                else:
                    found = [combine("or", [found[0], combine("and", [happens, brought])])]
        return combine("or", found) if of is None else found[0]

    def truth_at(self, context: Context, counters: dict[str, Term], e: Expression) -> Formula:
        """Returns the formula that an expression is where counters have these values."""
        outer = context.env.copy()
        context.env.update(counters)
        found = context.truth(e)
        context.env = outer
        return found

    def token(
        self, context: Context, view: View, counters: dict[str, Term], of: Contribution
    ) -> Term:
        """Returns the rank whose place has a contribution, as the invariant `view` says."""
        # Each loop has a counter of its own.
        key = ("token", view, *counters.items(), *of)
        if key not in context.known:
            token = context.variable_below(context.number(("var", "n")))
            context.known[key] = token
            context.assume(self.is_known(context, view, counters, token, of))
        return context.known[key]

    def is_known(
        self,
        context: Context,
        view: View,
        counters: dict[str, Term],
        rank: Term,
        of: Contribution,
    ) -> Formula:
        """Returns the formula that the place of a contribution's chunk at a rank is known."""
        self.in_place(context, Place(next(iter(self.sizes)), rank, of[1]), None)
        return self.truth_at(context, counters, view[0])

    def region(self, context: Context, rule: Rule, is_target: bool) -> RegionChunks:
        """Returns the region that a rule reads or writes."""
        region = rule.target if is_target else rule.source
        require(region.buffer in self.sizes, f"no buffer: {region.buffer}")
        return RegionChunks(context, region, context.number(self.sizes[region.buffer]))

    def source_chunk(self, context: Context, rule: Rule, to: RegionChunks, chunk: Term) -> Term:
        """Returns the chunk that goes to a chunk of the target."""
        sizes = [self.sizes[region.buffer] for region in (rule.source, rule.target)]
        if rule.source.index() == rule.target.index() and sizes[0] == sizes[1]:
            return chunk
        source = self.region(context, rule, False)
        require(source.stride is None and to.stride is None, "regions with `by` that differ")
        return source.chunk_at(context, to.position(context, chunk))

    def receipt(
        self, context: Context, transfer: Transfer, place: Place, of: Optional[Contribution]
    ) -> tuple[Formula, Place]:
        """Returns when and from where a transfer writes a place."""
        rule = transfer.rule
        self.in_place(context, place, of)
        conditions: list[Formula] = []
        for (name, first, end), writer in zip(rule.variables, transfer.writer):
            value = context.number(writer)
            context.env[name] = value
            bounds = context.number(first), context.number(end)
            conditions += [literal(le(bounds[0], value)), literal(lt(value, bounds[1]))]
        conditions += [context.truth(condition) for condition in rule.conditions]
        conditions.append(literal(eq(context.number(rule.dst), place.rank)))
        to = self.region(context, rule, True)
        conditions.append(to.contains(context, place.chunk))
        chunk = self.source_chunk(context, rule, to, place.chunk)
        source = Place(rule.source.buffer, context.number(rule.src), chunk)
        return combine("and", conditions), source
