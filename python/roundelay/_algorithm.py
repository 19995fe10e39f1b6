"""Algorithms that programs bring: texts, files, and Python functions."""

from __future__ import annotations

import html
import os
import tempfile
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args, overload

from roundelay import _command, _native
from roundelay._options import seconds, whole
from roundelay._phrases import in_python, near, of_function, usage
from roundelay.errors import Error, RefusedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Algorithm", "Checked", "Drawing", "Measured", "algorithm", "load"]

_USAGE = 2
"""The exit code of the program where a value is none that it takes."""

Ranks: TypeAlias = "int | str | Iterable[int]"
"""Rank counts: ``8``, ``range(2, 9)``, or as the command line has them: ``"2x4"``, ``"2..64"``."""

Collective: TypeAlias = Literal[
    "all_gather",
    "all_reduce",
    "all_to_all",
    "barrier",
    "broadcast",
    "exscan",
    "gather",
    "reduce",
    "reduce_scatter",
    "scan",
    "scatter",
    "sendrecv",
]
"""The collectives that algorithms implement."""


@dataclass(frozen=True)
class Checked:
    """What the proof at one rank count says (docs/json.md)."""

    algorithm: str
    collective: str
    ranks: int
    shape: str
    verdict: str
    """``proved``, ``not_allowed`` at this number of ranks, or ``undecided`` where the proof would be too large."""
    rounds: int | None
    """The longest chain of messages."""
    rounds_bound: int | None
    bytes_per_rank: float | None
    """What the busiest rank sends of a vector of a MiB."""
    bytes_per_rank_bound: float | None
    time_us: float | None
    """The time for a vector of a MiB, by the cost model."""
    diagnostics: list[dict[str, Any]] = field(repr=False)
    """Warnings: their ``code``, ``line``, ``message``, …"""


@dataclass(frozen=True)
class Measured:
    """What a measurement at one size says (docs/json.md)."""

    algorithm: str
    ranks: int
    bytes: int
    dtype: str
    transport: str
    time_us: float
    algbw_gbs: float
    busbw_gbs: float
    wrong: int | None
    """Elements that are not what an independent reference has."""


@dataclass(frozen=True, repr=False)
class Drawing:
    """A picture of an algorithm, shown inline by notebooks."""

    page: str
    """The page, in HTML."""
    fault: str | None = None
    """What is wrong with the algorithm, if it was refuted."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page into a file."""
        Path(path).write_text(self.page, encoding="utf-8")

    def _repr_html_(self) -> str:
        # In a frame of its own: the page has scripts and styles.
        page = html.escape(self.page, quote=True)
        return f'<iframe srcdoc="{page}" width="100%" height="560" style="border: 0"></iframe>'

    def __repr__(self) -> str:
        return f"<roundelay.Drawing: {len(self.page)} bytes; save(path) writes the page>"


class Algorithm:
    """A collective algorithm: what moves between ranks, proved before it runs.

    Made by ``roundelay.algorithm`` or ``roundelay.load``; ``comm.run`` runs it, ``comm.install`` has it serve its
    collective. ``check``, ``draw`` and ``bench`` use the program ``roundelay`` (``python -m roundelay``).
    """

    def __init__(self, native: _native.Algorithm, text: str, source: str, is_function: bool = False) -> None:
        self._native = native
        self.text = text
        self.source = source
        self._is_function = is_function

    text: str
    """The text in the language of algorithms (docs/language.md)."""
    source: str
    """The file, or what stands for it in messages."""

    @property
    def name(self) -> str:
        """The name of the algorithm."""
        return self._native.name

    @property
    def collective(self) -> str:
        """The collective that it implements."""
        return self._native.collective

    def names(self) -> list[str]:
        """Return the names of all algorithms of the text."""
        return self._native.names()

    def named(self, name: str) -> Algorithm:
        """Return another algorithm of the same text, or one with arguments: ``named("k_nomial(k = 4)")``.

        Raises ``Error`` if there is none of that name, or an argument is none that it takes.
        """
        return Algorithm(self._native.named(name), self.text, self.source, self._is_function)

    def check(self, n: Ranks = range(2, 9), *, root: int = 0) -> list[Checked]:
        """Prove the algorithm at some rank counts.

        Raises ``RefusedError`` with the diagnostics, and the place that is wrong, if it is refuted at one of them.
        """
        found, said, _ = self._verb("check", "-n", _ranks(n), "--root", str(root))
        if not found or any(item["verdict"] in ("refuted", "invalid") for item in found):
            raise (RefusedError if found else UsageError)(said, code=_code(found))
        return [_of(Checked, item) for item in found]

    def draw(self, n: int | str = 4, *, root: int = 0) -> Drawing:
        """Draw the algorithm: ranks as rows, rounds as columns, arrows by chunk, the text beside it.

        One that is refuted is drawn under the words of its ``fault``. Raises ``RefusedError`` if it has no steps that
        can be drawn at that number of ranks.
        """
        with tempfile.TemporaryDirectory(prefix="roundelay-") as folder:
            page = Path(folder) / "drawing.html"
            found, said, code = self._verb("draw", "-n", _ranks(n), "--root", str(root), "-o", str(page))
            if not page.exists():
                raise RefusedError(said, code=_code(found))
            return Drawing(page.read_text(encoding="utf-8"), said if code != 0 else None)

    def bench(
        self, n: int | str = 2, sizes: tuple[int, int] = (1024, 1 << 20), *, dtype: str = "f32", timeout: float = 300
    ) -> list[Measured]:
        """Measure the algorithm between ``n`` processes of this machine, from the first size in bytes to the last.

        Results are compared with a reference. It takes about a second a size, at most ``timeout`` seconds in all.
        """
        if not isinstance(sizes, (tuple, list)) or len(sizes) != 2:
            raise UsageError(f"`sizes` is {sizes!r}: give the first and the last size in bytes, as (1024, 1048576)")
        wanted = "give the first and the last size in bytes"
        first, last = (whole(size, f"sizes[{at}]", wanted, 1) for at, size in enumerate(sizes))
        if first > last:
            raise UsageError(f"`sizes` is {sizes!r}: the first size is not larger than the last")
        span = ["-b", str(first), "-e", str(last)]
        found, said, code = self._verb("bench", "-n", _ranks(n), *span, "--dtype", dtype, limit=seconds(timeout))
        if code != 0:
            raise (RefusedError if code == 1 else Error)(said, code=_code(found))
        return [_of(Measured, item) for item in found]

    def _repr_html_(self) -> str:
        return self.draw()._repr_html_()

    def __reduce__(self) -> tuple[Callable[[str, str, str, bool], Algorithm], tuple[str, str, str, bool]]:
        return _again, (self.source, self.text, self.name, self._is_function)

    def __repr__(self) -> str:
        return f"<roundelay.Algorithm: {self.collective}.{self.name} of {self.source}>"

    def _verb(self, *arguments: str, limit: float | None = None) -> tuple[list[dict[str, Any]], str, int]:
        with self._file() as path:
            verb, *rest = arguments
            # `bench` takes the algorithm by its place in the text, the others by its name.
            chosen = [] if verb == "bench" else ["--algorithm", self.name]
            found, said, code = _command.output([verb, path, *chosen, *rest], limit)
            said = said.replace(path, self.source)
            if code == _USAGE:
                raise UsageError(usage(said, "n"))
            return found, self._spoken(said), code

    def _spoken(self, said: str) -> str:
        """Return diagnostics in Python's words."""
        said = in_python(said)
        return of_function(said, self.text, self.source) if self._is_function else said

    def _refused(self, error: RefusedError) -> RefusedError:
        """Return an error about the algorithm in Python's words."""
        return RefusedError(self._spoken(str(error)), code=error.code, source=error.source)

    @contextmanager
    def _file(self) -> Iterator[str]:
        """Give the path of a file with the text."""
        if os.path.isfile(self.source) and Path(self.source).read_bytes() == self.text.encode():
            yield os.path.abspath(self.source)
            return
        with tempfile.TemporaryDirectory(prefix="roundelay-") as folder:
            path = Path(folder) / f"{self.name}.algo"
            path.write_bytes(self.text.encode())
            yield str(path)


@overload
def algorithm(source: Collective) -> Callable[[Callable[..., None]], Algorithm]: ...  # type: ignore[overload-overlap]
@overload
def algorithm(source: str, *, name: str = ...) -> Algorithm: ...
def algorithm(source: str, *, name: str = "<text>") -> Algorithm | Callable[[Callable[..., None]], Algorithm]:
    """Read an algorithm from a text in the language of algorithms; ``name`` stands for a file in messages.

    With the name of a collective, decorate a Python function that is the algorithm::

        @roundelay.algorithm("all_reduce")
        def ring(n):
            chunks(n)
            for s in range(n - 1):
                for r in each:
                    r.to((r + 1) % n).reduce(data[(r - s) % n])
            for s in range(n - 1):
                for r in each:
                    r.to((r + 1) % n).copy(data[(r + 1 - s) % n])

    Raises ``RefusedError`` with the diagnostics if the text, or the function, says nothing that can be proved.
    """
    if not isinstance(source, str):
        written = getattr(source, "__name__", "…")
        raise UsageError(
            f"`source` is {source!r}: give a text, or decorate with the name of a collective, as "
            f'@roundelay.algorithm("all_reduce") above `def {written}`'
        )
    if source.isidentifier():
        from roundelay._function import translate

        known = get_args(Collective)
        if source not in known:
            said = f"error[RL0202]: no collective is named `{source}`{near(source, known)}: there are {', '.join(known)}"
            raise RefusedError(said, code="RL0202")

        def decorate(function: Callable[..., None]) -> Algorithm:
            text, file = translate(function, source)
            try:
                return Algorithm(_native.Algorithm.parse(file, text), text, file, True)
            except RefusedError as error:
                said = of_function(str(error), text, file)
                raise RefusedError(said, code=error.code, source=error.source) from None

        return decorate
    return Algorithm(_native.Algorithm.parse(name, source), source, name)


def load(path: str | os.PathLike[str]) -> Algorithm:
    """Read an algorithm from a file. Raises ``RefusedError`` with the diagnostics if it is wrong."""
    native = _native.Algorithm.load(path)
    return Algorithm(native, _read(path), os.fspath(path))


def _read(path: str | os.PathLike[str]) -> str:
    """Return a text with the line ends that it has: a carriage return alone ends no comment."""
    return Path(path).read_bytes().decode()


def _again(source: str, text: str, name: str, is_function: bool) -> Algorithm:
    """Return an algorithm that comes from another process."""
    return Algorithm(_native.Algorithm.parse(source, text).named(name), text, source, is_function)


def _ranks(n: Ranks) -> str:
    if isinstance(n, (int, str)):
        return str(n)
    return ",".join(map(str, n))


def _of(kind: Any, item: dict[str, Any]) -> Any:
    return kind(**{name: item.get(name) for name in kind.__dataclass_fields__})


def _code(found: list[dict[str, Any]]) -> str:
    codes = [d["code"] for item in found for d in item.get("diagnostics", ()) if d.get("severity") == "error"]
    return codes[0] if codes else "RL0712"
