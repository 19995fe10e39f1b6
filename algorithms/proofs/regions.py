"""Regions of buffers as conditions on one chunk."""

from typing import Optional

from programs import Region
from refutations import Formula, Term, eq, le, lt, number, require
from terms import Context


class RegionChunks:
    """The chunks of a region of a buffer, as conditions on one chunk."""

    def __init__(self, context: Context, region: Region, size: Term) -> None:
        self.size, self.whole = size, region.kind == "all"
        self.first, self.count = number(0), size
        self.valid: Formula = True
        self.stride: Optional[tuple[Term, Term]] = None
        if self.whole:
            return
        if region.kind == "..+" and region.by is not None:
            self.first = context.number(region.ends[0])
            # The offsets of `x ..+ ceil_div(y, by) by by` are the multiples of `by` below y.
            is_even = region.take is None and region.ends[1][:2] == ("call", "ceil_div")
            require(is_even, "a cyclic region with another count or `take`")
            stride = context.number(region.by)
            require(stride == context.number(region.ends[1][3]), "another stride")
            self.count = context.number(region.ends[1][2])
        else:
            self.first, *more = [context.number(e) for e in region.ends]
            self.count = more[0] if more else number(1)
        first = self.first
        if region.kind == "..":
            empty, inside = le(self.count, first), ("and", (le(0, first), le(self.count, size)))
            self.count = context.choose(empty, number(0), self.count - first)
        else:
            empty = le(self.count, 0)
            inside = ("and", (("and", (le(0, first), lt(first, size))), le(self.count, size)))
        self.valid = inside[1][0] if region.kind == "at" else ("or", (empty, inside))
        if region.by is not None:
            by = context.number(region.by)
            block = number(1) if region.take is None else context.number(region.take)
            sound = (self.valid, le(1, block), le(block, by), le(by, (1 << 31) - 1))
            self.valid = ("or", (le(self.count, 0), ("and", sound)))
            self.stride = (by, block)

    def is_simple(self) -> bool:
        """Returns true if the region is one chunk, or the whole buffer."""
        return self.whole or self.stride is None and self.count == number(1)

    def contains(self, context: Context, chunk: Term) -> Formula:
        """Returns the formula that a chunk is of the region."""
        if self.is_simple():
            return self.whole or eq(chunk, self.first)
        offset = self.position(context, chunk)
        if self.stride is None:
            return lt(offset, self.count)
        rest = context.rest(offset, self.stride[0])
        return ("and", (lt(rest, self.stride[1]), lt(offset, self.count)))

    def position(self, context: Context, chunk: Term) -> Term:
        """Returns the distance of a chunk from the first."""
        return chunk if self.whole else context.rest(chunk - self.first, self.size)

    def chunk_at(self, context: Context, position: Term) -> Term:
        """Returns the chunk at a distance from the first."""
        if self.is_simple():
            return position if self.whole else self.first
        return context.rest(self.first + position, self.size)

    def has_count_of(self, other: "RegionChunks") -> Formula:
        """Returns the formula that two regions have as many chunks."""
        both_empty = ("and", (le(self.count, 0), le(other.count, 0)))
        return ("or", (eq(self.count, other.count), both_empty))
