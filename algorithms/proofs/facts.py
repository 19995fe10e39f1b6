"""Fresh variables of linear terms: rests, choices, powers of two and digits.

**Each fact that is added here for a fresh variable is true of some value of it**, whatever the
other variables are. What may have no value in a run of the program is refused.
"""

from typing import Optional

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


class FreshTerms:
    """Variables, and what is known of them."""

    def __init__(self) -> None:
        self.facts = Part([], [])
        # Bounds of absolute values.
        self.magnitudes: list[int] = []
        # Pairs of a variable and a term: it is at least 0, and below the term.
        self.below: list[tuple[Term, Term]] = []
        # Terms that are at least 1, variables that are at least 0.
        self.positive: list[Term] = []
        self.nonnegative: list[int] = []
        # Fresh variables by what they are.
        self.known: dict[object, Term] = {}
        self.digits_of: dict[tuple[Term, Term], tuple[Term, Term, Term]] = {}
        self.multiples: list[tuple[Term, Term]] = []
        # True if multiples that are neighbours are kept apart from those at a greater distance.
        self.has_exact_multiples = False
        # Exponents, at least 0, with their powers of two.
        self.levels: list[tuple[Term, Term]] = []
        self.digit_levels: list[Term] = []
        self.whole_powers: list[Term] = []
        self.logarithms: list[tuple[str, Term, Term]] = []
        self.ceilings: list[tuple[Term, Term, Term]] = []
        # Numbers with the lowest bits that are set in them.
        self.lowest_bits: dict[Term, Term] = {}

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
        """Returns true if a term is known to be at least 1: it is a multiple of one that is."""
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
            cases = [eq(term, other)]
            for distance in (term - other, other - term):
                if self.has_exact_multiples:
                    cases += [eq(of, distance), le(of * 2, distance)]
                else:
                    cases.append(le(of, distance))
            self.assume(("or", tuple(cases)))
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
            apart = other - exponent
            if not apart.parts and 0 <= apart.constant <= 8:
                self.assume(eq(level * (1 << apart.constant), power))
                continue
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

    def set_bit(self, a: Term, b: Term) -> Term:
        """Returns `a | b` for a power of two."""
        self.require_digits(b)
        _, bit, _ = self.digits(a, b)
        return self.choose(eq(bit, b), a, a + b)

    def lowest_bit(self, term: Term) -> Term:
        """Returns the lowest bit that is set in a positive term."""
        if term in self.lowest_bits:
            return self.lowest_bits[term]
        require(self.is_positive(term), "the lowest bit of a number that may be 0")
        fresh = self.variable(self.magnitude(term))
        self.assume_positive(fresh)
        self.assume(le(fresh, term))
        for level in list(self.digit_levels):
            _, bit, rest = self.digits(term, level)
            below = ("and", (lt(0, rest), lt(fresh, level)))
            there = ("and", (eq(rest, 0), eq(bit, level), eq(fresh, level)))
            above = ("and", (eq(rest, 0), eq(bit, 0), le(level * 2, fresh)))
            self.assume(("or", (below, there, above)))
        self.lowest_bits[term] = fresh
        return fresh

    def is_lowest_bit(self, term: Term, level: Term) -> Formula:
        """Returns the formula that the lowest bit of a term is a level."""
        self.require_digits(level)
        _, bit, rest = self.digits(term, level)
        return ("and", (eq(bit, level), ("eq", rest)))
