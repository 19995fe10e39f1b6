"""Expressions of a program as linear terms and formulas."""

from copy import copy
from typing import Union

from facts import FreshTerms, choice, literal
from programs import Expression
from refutations import Formula, Part, Term, eq, le, lt, negate, number, require


class Context(FreshTerms):
    """Variables and facts, and the values that the variables of a program have."""

    def __init__(self) -> None:
        super().__init__()
        self.env: dict[str, Union[Term, Formula]] = {}

    def copy(self) -> "Context":
        """Returns a copy that changes on its own."""
        other = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, (list, dict)):
                setattr(other, name, value.copy())
        other.facts = Part(*(list(facts) for facts in self.facts))
        return other

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
        others = {
            "%": self.rest, "^": self.flip, "|": self.set_bit, ">>": self.shift_right,
        }
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
        if name == "lowbit" and not more:
            return self.lowest_bit(x)
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
