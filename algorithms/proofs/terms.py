"""Expressions of a program as linear terms and formulas, with the facts of what is fresh in them.

**Each fact that is added here for a fresh variable is true of some value of it**, whatever the
other variables are. What may have no value in a run of the program is refused.
"""

from copy import copy
from typing import Optional, Union

from programs import Expression
from refutations import (
    Formula, Part, Refused, Term, add_facts, eq, le, lt, negate, normalize, number, require,
)

# Absolute values are below this, so that they fit the 64 bits of a run.
MOST = 1 << 62


def literal(formula: Formula) -> Formula:
    """Decides a formula without variables."""
    if not isinstance(formula, bool) and formula[0] in ("le", "eq") and not formula[1].parts:
        constant: int = formula[1].constant
        return constant <= 0 if formula[0] == "le" else constant == 0
    return formula


def choice(condition: Formula, yes: Formula, no: Formula) -> Formula:
    """Returns the formula that is `yes` where the condition holds, and else `no`."""
    return ("or", (("and", (condition, yes)), ("and", (negate(condition), no))))


def is_variable(term: Term) -> bool:
    """Returns true if a term is one variable."""
    return term.constant == 0 and len(term.parts) == 1 and term.parts[0][1] == 1


class Context:
    """Variables and facts, and the values that the variables of a program have."""

    def __init__(self) -> None:
        self.facts = Part([], [])
        # Bounds of absolute values.
        self.magnitudes: list[int] = []
        self.env: dict[str, Union[Term, Formula]] = {}
        # Pairs of a variable and a term: it is at least 0, and below the term.
        self.below: list[tuple[Term, Term]] = []
        # Terms that are at least 1, variables that are at least 0.
        self.positive: list[Term] = []
        self.nonnegative: list[int] = []
        # Fresh variables by what they are.
        self.known: dict[object, Term] = {}
        self.digits_of: dict[tuple[Term, Term], tuple[Term, Term, Term]] = {}
        self.multiples: list[tuple[Term, Term]] = []
        # Exponents, at least 0, with their powers of two.
        self.levels: list[tuple[Term, Term]] = []
        self.digit_levels: list[Term] = []
        self.whole_powers: list[Term] = []
        self.logarithms: list[tuple[str, Term, Term]] = []
        self.ceilings: list[tuple[Term, Term, Term]] = []

    def copy(self) -> "Context":
        """Returns a copy that changes on its own."""
        other = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, (list, dict)):
                setattr(other, name, value.copy())
        other.facts = Part(*(list(facts) for facts in self.facts))
        return other

    def assume(self, formula: Formula) -> None:
        """Adds a fact."""
        add_facts(normalize(formula, True), self.facts)

    def magnitude(self, term: Term) -> int:
        """Returns a bound of the absolute value."""
        parts = sum(abs(k) * self.magnitudes[v] for v, k in term.parts)
        require(abs(term.constant) + parts < MOST, "a number may exceed 62 bits")
        return abs(term.constant) + parts

    def variable(self, magnitude: int) -> Term:
        """Adds a variable whose absolute value is at most this."""
        require(magnitude < MOST, "a number may exceed 62 bits")
        self.magnitudes.append(magnitude)
        return Term(((len(self.magnitudes) - 1, 1),), 0)

    def variable_below(self, end: Term) -> Term:
        """Adds a variable that is at least 0 and below a term."""
        fresh = self.variable(self.magnitude(end))
        self.assume(le(0, fresh))
        self.assume(lt(fresh, end))
        self.below.append((fresh, end))
        return fresh

    def assume_positive(self, term: Term) -> None:
        """Assumes that a term is at least 1."""
        self.assume(le(1, term))
        self.positive.append(term)

    def is_positive(self, term: Term) -> bool:
        """Returns true if a term is known to be at least 1: it is so many times one that is."""
        own = dict(term.parts)
        for known in self.positive:
            for variable, k in known.parts[:1]:
                times, rest = divmod(own.get(variable, 0), k)
                if rest == 0 and times >= 1 and known * times == term:
                    return True
        return self.least_sum(term) >= 1

    def least_sum(self, term: Term) -> int:
        """Returns a number that a sum of variables is not below, or 0 if none is known."""
        least = term.constant
        for variable, k in term.parts:
            own = Term(((variable, 1),), 0)
            if k > 0 and own in self.positive:
                least += k
            elif k < 0 or variable not in self.nonnegative and all(own != v for v, _ in self.below):
                return 0
        return least

    def choose(self, condition: Formula, a: Term, b: Term) -> Term:
        """Returns the term that is `a` where the condition holds, and else `b`."""
        if isinstance(condition, bool) or a == b:
            return a if condition else b
        key = ("choose", condition, a, b)
        if key not in self.known:
            fresh = self.variable(max(self.magnitude(a), self.magnitude(b)))
            self.assume(choice(condition, eq(fresh, a), eq(fresh, b)))
            self.known[key] = fresh
        return self.known[key]

    def quotient(self, term: Term, by: int) -> Term:
        """Returns a term over a positive number, rounded down."""
        if not term.parts or by == 1:
            return number(term.constant // by) if not term.parts else term
        key = ("quotient", term, by)
        if key not in self.known:
            fresh = self.variable(self.magnitude(term))
            self.assume(le(fresh * by, term))
            self.assume(lt(term, fresh * by + by))
            self.known[key] = fresh
        return self.known[key]

    def rest(self, term: Term, modulus: Term) -> Term:
        """Returns the rest by a positive term."""
        require(self.is_positive(modulus), "a modulus that is not known to be positive")
        if not modulus.parts:
            return term.plus(self.quotient(term, modulus.constant), -modulus.constant)
        if (term, modulus) in self.below:
            return term
        digits = self.level_rest(term, modulus)
        if digits is not None:
            return digits
        key = ("rest", term, modulus)
        if key in self.known:
            return self.known[key]
        reach = self.quotient_reach(term, modulus)
        closed = reach is not None and reach[1] - reach[0] <= 8
        least, most = reach if reach is not None and closed else (-2, 2)
        if closed and (least, most) == (0, 0):
            return term
        fresh = self.variable_below(modulus)
        cases = [eq(fresh, term.plus(modulus, -k)) for k in range(least, most + 1)]
        if not closed:
            # Nothing is said of a quotient that is out of reach.
            cases += [lt(term, modulus * least), le(modulus * (most + 1), term)]
        self.assume(("or", tuple(cases)))
        self.known[key] = fresh
        return fresh

    def quotient_reach(self, term: Term, modulus: Term) -> Optional[tuple[int, int]]:
        """Returns the least and the greatest quotient by m, where 0 <= v <= m - 1 for each v."""
        if not is_variable(modulus):
            return None
        up, down, constant = 0, 0, term.constant
        for variable, k in term.parts:
            if variable == modulus.parts[0][0]:
                # k * m = k * (m - 1) + k
                up, down, constant = up + k, down - k, constant + k
            elif (Term(((variable, 1),), 0), modulus) not in self.below:
                return None
            else:
                up, down = up + max(k, 0), down + max(-k, 0)
        # Values are up * (m - 1) + constant at most, and -down * (m - 1) + constant at least.
        least = -down if down + constant >= 0 else constant
        return least, up - 1 if constant < up else constant

    def digits(self, term: Term, level: Term) -> tuple[Term, Term, Term]:
        """Returns `high`, `bit` and `rest` of a term: a multiple of 2d, 0 or d, and below d."""
        if (term, level) in self.digits_of:
            return self.digits_of[term, level]
        magnitude = self.magnitude(term) + self.magnitude(level * 2)
        high, bit = self.variable(magnitude), self.variable(magnitude)
        self.assume(("or", (eq(bit, 0), eq(bit, level))))
        if level.constant == 0 and len(level.parts) == 1 and level.parts[0][1] % 2 == 0:
            half = Term(((level.parts[0][0], level.parts[0][1] // 2),), 0)
            above, lower, rest = self.digits(term, half)
            self.assume(eq(above, high + bit))
            rest = lower + rest
        else:
            rest = self.variable_below(level)
            self.assume(eq(term, high + bit + rest))
        self.add_multiple(high, level * 2)
        self.digits_of[term, level] = (high, bit, rest)
        return high, bit, rest

    def add_multiple(self, term: Term, of: Term) -> None:
        """Notes a multiple of a positive term: two of them are equal, or that far apart."""
        others = [number(0)] + [other for other, unit in self.multiples if unit == of]
        if term in others:
            return
        for other in others:
            apart = (eq(term, other), le(of, term - other), le(of, other - term))
            self.assume(("or", apart))
        if len(others) == 1:
            self.relate_multiple(number(0), of)
        self.relate_multiple(term, of)
        self.multiples.append((term, of))

    def relate_multiple(self, term: Term, of: Term) -> None:
        """Notes that powers of two are multiples of lesser ones, beside a multiple of `of`."""
        own = self.exponent_of(of)
        for power in self.whole_powers if own is not None else []:
            exponent = self.exponent_of(power)
            if exponent is not None and own is not None:
                apart = (eq(power, term), le(of, power - term), le(of, term - power))
                self.assume(("or", (lt(exponent, own), *apart)))

    def exponent_of(self, power: Term) -> Optional[Term]:
        """Returns the exponent of a level, or of a level times a small power of two."""
        for exponent, level in self.levels:
            for more in range(4):
                if level * (1 << more) == power:
                    return exponent + more
        return None

    def push_level(self, exponent: Term, level: Term) -> None:
        """Notes a power of two whose exponent is at least 0, and its order among the others."""
        for other, power in [*self.levels, (number(0), number(1))]:
            same = ("and", (eq(exponent, other), eq(level, power)))
            less = ("and", (le(exponent + 1, other), le(level * 2, power)))
            more = ("and", (le(other + 1, exponent), le(power * 2, level)))
            self.assume(("or", (same, less, more)))
        self.levels.append((exponent, level))

    def add_level(self, exponent: Term, magnitude: int) -> Term:
        """Adds the power of two with an exponent that is at least 0."""
        level = self.variable(magnitude)
        self.assume_positive(level)
        self.push_level(exponent, level)
        return level

    def note_power(self, term: Term) -> None:
        """Notes that a positive number is a power of two."""
        if all(level != term for _, level in self.levels):
            exponent = self.exponent()
            self.push_level(exponent, term)
            self.whole_powers.append(term)
            self.logarithms.append(("exact", term, exponent))

    def exponent(self) -> Term:
        """Adds a variable for an exponent."""
        fresh = self.variable(34)
        self.assume(le(0, fresh))
        self.nonnegative.append(fresh.parts[0][0])
        return fresh

    def logarithm(self, term: Term, rounding: str) -> Term:
        """Returns the logarithm to the base 2, rounded "up" or "down"."""
        for exponent, level in self.levels:
            if level == term:
                return exponent
        for known, of, exponent in self.logarithms:
            if (known, of) == (rounding, term):
                return exponent
        require(self.is_positive(term), "a logarithm of what is not known to be positive")
        exponent = self.exponent()
        power = self.add_level(exponent, self.magnitude(term * 2))
        if rounding == "up":
            self.assume(le(term, power))
            self.assume(lt(power, term * 2))
        else:
            self.assume(le(power, term))
            self.assume(lt(term, power * 2))
            self.whole_powers.append(power)
        self.logarithms.append((rounding, term, exponent))
        return exponent

    def power(self, exponent: Term) -> Term:
        """Returns the power of two with an exponent that is known."""
        if not exponent.parts:
            require(0 <= exponent.constant <= 32, "a power that is out of reach")
            return number(1 << exponent.constant)
        for known, level in self.levels:
            more = exponent - known
            if not more.parts and 0 <= more.constant <= 8:
                return level * (1 << more.constant)
        raise Refused("an exponent that no loop goes through")

    def shift_right(self, a: Term, b: Term) -> Term:
        """Returns `a >> b`."""
        if not b.parts and 0 <= b.constant <= 32:
            return self.quotient(a, 1 << b.constant)
        is_nonnegative = b.constant >= 0 and all(
            k >= 0 and v in self.nonnegative for v, k in b.parts
        )
        for exponent, level in self.levels:
            if level == a and is_nonnegative:
                return self.power(exponent - b)
        raise Refused("`>>` of what is no power of two")

    def ceiling(self, term: Term, exponent: Term) -> Term:
        """Returns a term over a power of two, rounded up."""
        if not exponent.parts:
            by = self.power(exponent).constant
            return self.quotient(term + (by - 1), by)
        self.add_ceiling(term, exponent)
        for known, of, value in self.ceilings:
            more = exponent - known
            if of == term and not more.parts and 0 <= more.constant <= 2:
                for _ in range(more.constant):
                    value = self.quotient(value + 1, 2)
                return value
        raise Refused("`ceil_div` by a power that no loop goes through")

    def add_ceiling(self, term: Term, exponent: Term) -> None:
        """Adds a term over the level below an exponent, rounded up, if there is one."""
        below = [known for known, _ in self.levels if (exponent - known) in map(number, range(3))]
        if not below or not self.is_positive(term):
            return
        if any((below[0], term) == (e, of) for e, of, _ in self.ceilings):
            return
        value = self.variable(self.magnitude(term))
        self.assume_positive(value)
        self.assume(le(value, term))
        self.assume(("or", (negate(eq(below[0], 0)), eq(value, term))))
        for rounding, of, logarithm in self.logarithms:
            if rounding == "up" and of == term:
                one = ("and", (le(logarithm, below[0]), eq(value, 1)))
                more = ("and", (lt(below[0], logarithm), le(2, value)))
                self.assume(("or", (one, more)))
        self.ceilings.append((below[0], term, value))

    def level_rest(self, term: Term, modulus: Term) -> Optional[Term]:
        """Returns the rest by a level at which there are digits."""
        for level in self.digit_levels:
            if modulus == level:
                return self.digits(term, level)[2]
            for half in level, level * 2:
                if modulus == half * 2:
                    _, bit, rest = self.digits(term, half)
                    return bit + rest
        return None

    def require_digits(self, level: Term) -> None:
        """Refuses what is no level at which there are digits."""
        known = (d * factor for d in self.digit_levels for factor in (1, 2, 4))
        require(level in known, "bits that are no power of two")

    def flip(self, a: Term, b: Term) -> Term:
        """Returns `a ^ b` for a power of two."""
        if not b.parts and b.constant >= 1 and b.constant.bit_count() == 1:
            half = self.quotient(a, b.constant)
            even = ("eq", half.plus(self.quotient(half, 2), -2))
            return self.choose(even, a + b, a - b)
        self.require_digits(b)
        high, bit, rest = self.digits(a, b)
        flipped = self.choose(eq(bit, b), a - b, a + b)
        self.digits_of.setdefault((flipped, b), (high, b - bit, rest))
        return flipped

    def is_lowest_bit(self, term: Term, level: Term) -> Formula:
        """Returns the formula that the lowest bit of a term is a level."""
        self.require_digits(level)
        _, bit, rest = self.digits(term, level)
        return ("and", (eq(bit, level), ("eq", rest)))

    def number(self, e: Expression) -> Term:
        """Returns the number that an expression is."""
        value = self.evaluate(e)
        require(isinstance(value, Term), "a truth value where a number is meant")
        self.magnitude(value)  # type: ignore[arg-type]
        return value  # type: ignore[return-value]

    def truth(self, e: Expression) -> Formula:
        """Returns the formula that an expression is."""
        value = self.evaluate(e)
        if isinstance(value, Term):
            require(not value.parts, "a number where a truth value is meant")
            return value.constant != 0
        return value

    def evaluate(self, e: Expression) -> Union[Term, Formula]:
        """Returns the value of an expression."""
        op, *args = e
        if op == "int":
            return number(args[0])
        if op == "var":
            require(args[0] in self.env, f"`{args[0]}` has no value here")
            return self.env[args[0]]
        if op == "!":
            return negate(self.truth(args[0]))
        if op in ("&&", "||"):
            return ("and" if op == "&&" else "or", tuple(self.truth(a) for a in args))
        if op == "if":
            condition = self.truth(args[0])
            a, b = self.evaluate(args[1]), self.evaluate(args[2])
            if isinstance(a, Term) and isinstance(b, Term):
                return self.choose(condition, a, b)
            require(not isinstance(a, Term) and not isinstance(b, Term), "a number or a truth")
            return choice(condition, a, b)  # type: ignore[arg-type]
        if op == "call":
            return self.call(*args)
        if op == "*":
            for chosen, factor in args, args[::-1]:
                if chosen[0] == "if":
                    condition = self.truth(chosen[1])
                    values = [self.number(("*", e, factor)) for e in chosen[2:]]
                    return self.choose(condition, *values)
        if op == "==" and args[0][:2] == ("call", "lowbit"):
            term, level = self.number(args[0][2]), self.number(args[1])
            return self.is_lowest_bit(term, level)
        if op == "<<":
            by, value = self.number(args[1]), self.number(args[0])
            if not by.parts:
                return value * self.power(by).constant
            require(not value.parts and 1 <= value.constant <= 64, "`<<` of a variable")
            return self.power(by) * value.constant
        x, *more = [self.number(a) for a in args]
        return self.operation(op, x, more[0]) if more else x * -1

    def operation(self, op: str, x: Term, y: Term) -> Union[Term, Formula]:
        """Returns the value of an operation of two numbers."""
        compared = {
            "==": eq(x, y), "!=": eq(x, y), "<": lt(x, y), "<=": le(x, y), ">": lt(y, x),
            ">=": le(y, x),
        }
        if op in compared:
            found = literal(compared[op])
            return negate(found) if op == "!=" else found
        if op in ("+", "-"):
            return x + y if op == "+" else x - y
        if op == "*" and not (x.parts and y.parts):
            return x * y.constant if not y.parts else y * x.constant
        if op == "/" and not y.parts and y.constant >= 1:
            return self.quotient(x, y.constant)
        others = {"%": self.rest, "^": self.flip, ">>": self.shift_right}
        require(op in others, f"`{op}` of these numbers")
        return others[op](x, y)

    def call(self, name: str, *args: Expression) -> Union[Term, Formula]:
        """Returns the value of a function."""
        if name == "ceil_div" and len(args) == 2:
            if args[1][:2] == ("<<", ("int", 1)):
                return self.ceiling(self.number(args[0]), self.number(args[1][2]))
            x, by = self.number(args[0]), self.number(args[1])
            require(not by.parts and by.constant >= 1, "`ceil_div` by a variable")
            return self.quotient(x + (by.constant - 1), by.constant)
        x, *more = [self.number(a) for a in args]
        two = [number(2)] == [x]
        if name in ("log2", "ceil_log2") and not more:
            return self.logarithm(x, "down" if name == "log2" else "up")
        if name in ("log", "ceil_log") and two and len(more) == 1:
            return self.logarithm(more[0], "down" if name == "log" else "up")
        if name == "pow" and len(more) == 1 and two:
            return self.power(more[0])
        if name == "pow" and len(more) == 1 and not x.parts and not more[0].parts:
            require(0 <= more[0].constant <= 32, "a power that is out of reach")
            return number(x.constant ** more[0].constant)
        if name in ("min", "max"):
            for other in more:
                is_less = literal(le(x, other))
                if name == "min":
                    x = self.choose(is_less, x, other)
                    continue
                is_one_positive = self.is_positive(x) or self.is_positive(other)
                x = self.choose(is_less, other, x)
                if is_one_positive and not self.is_positive(x):
                    self.assume_positive(x)
            return x
        if name == "abs" and not more:
            return self.choose(literal(le(0, x)), x, x * -1)
        if name in ("even", "odd") and not more:
            odd = x.plus(self.quotient(x, 2), -2)
            return literal(eq(odd, int(name == "odd")))
        is_power = name == "pow2" and any(level == x for _, level in self.levels)
        require(is_power, f"`{name}` of these numbers")
        return True
