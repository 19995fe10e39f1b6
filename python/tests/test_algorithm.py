"""Algorithms of texts and files: read, proved, drawn, measured, run, installed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT
from ranks import threads

import roundelay
from roundelay import Communicator, RefusedError

RING = """
//! Each chunk goes round once to be summed and once to be shared.
algorithm my_ring implements all_reduce on n ranks {
    chunks n

    for s in 0..n-1 { each r { r -> (r + 1) % n : reduce data[(r - s) % n] } }
    for s in 0..n-1 { each r { r -> (r + 1) % n : copy data[(r + 1 - s) % n] } }
}
"""
WRONG = RING.replace("for s in 0..n-1 { each r { r -> (r + 1) % n : reduce", "for s in 0..n-2 { each r { r -> (r + 1) % n : reduce")


def test_a_text_is_read() -> None:
    ring = roundelay.algorithm(RING)
    assert (ring.name, ring.collective, ring.names()) == ("my_ring", "all_reduce", ["my_ring"])
    assert repr(ring) == "<roundelay.Algorithm: all_reduce.my_ring of <text>>"
    with pytest.raises(roundelay.Error, match="other"):
        ring.named("other")


def test_a_wrong_text_is_refused_at_its_place() -> None:
    with pytest.raises(RefusedError, match=r"mine.algo:6:5") as error:
        roundelay.algorithm(RING.replace("for s", "four s", 1), name="mine.algo")
    assert error.value.code.startswith("RL01")
    assert isinstance(error.value, ValueError)
    with pytest.raises(roundelay.Error, match="no/such.algo"):
        roundelay.load("no/such.algo")


def test_a_file_keeps_its_line_ends(command: str, tmp_path: Path) -> None:
    # A carriage return alone ends no comment: as a line end it would make a statement of the rest.
    path = tmp_path / "ends.algo"
    text = "// one\rtwo\u2028three\r\n" + RING.replace("\n", "\r\n")
    path.write_bytes(text.encode())
    ring = roundelay.load(path)
    assert ring.text == text
    assert [checked.verdict for checked in ring.check(3)] == ["proved"]
    path.unlink()
    assert [checked.verdict for checked in ring.check(3)] == ["proved"]


def test_it_is_run_and_installed() -> None:
    def call(comm: Communicator) -> list[str]:
        ring = roundelay.algorithm(RING)
        data = np.full(1000, comm.rank + 1, "int32")
        comm.run(ring, data)
        assert (data == 6).all()
        out = np.zeros_like(data)
        work = comm.run_into(ring, out, data, "max", async_op=True)
        assert work is not None
        work.wait()
        assert (out == 6).all()
        chosen = [str(comm.explain("all_reduce", 4000, "int32"))]
        comm.install(ring)
        assert str(comm.explain("all_reduce", 4000)) == "all_reduce.my_ring, by its installation"
        comm.all_reduce(data, "min")
        chosen.append(str(comm.flight()))
        assert comm.uninstall("all_reduce") and not comm.uninstall("all_reduce")
        chosen.append(str(comm.explain("all_reduce", 4000)))
        return chosen

    before, installed, after = threads(call, 3)[0]
    assert "my_ring" in installed
    assert before == after and before.startswith("all_reduce.")


def test_a_wrong_algorithm_is_refused_where_it_is_run() -> None:
    def call(comm: Communicator) -> None:
        wrong = roundelay.algorithm(WRONG)
        data = np.zeros(30)
        with pytest.raises(RefusedError, match="RL0501|are missing") as error:
            comm.run(wrong, data)
        assert "<text>:7:32" in str(error.value)
        with pytest.raises(RefusedError):
            comm.install(wrong)
        comm.all_reduce(data)

    threads(call, 3)


def test_hints_choose_by_call_and_by_communicator() -> None:
    def call(comm: Communicator) -> None:
        data = np.ones(8)
        comm.all_reduce(data, hints={"algorithm": "ring"}, timeout=20)
        assert "ring" in str(comm.flight())
        with pytest.raises(roundelay.Error, match="nothing_such"):
            comm.all_reduce(data, hints="algorithm=nothing_such")
        comm.set_hints({"deterministic": "batch_invariant", "algorithm": ["all_reduce.one_shot", "broadcast.chain"]})
        assert comm.explain("all_reduce", 8).algorithm == "one_shot"
        assert comm.explain("broadcast", 8).algorithm == "chain"
        comm.set_hints("")
        comm.set_timeout(5)

    threads(call, 2)


def test_check(command: str) -> None:
    ring = roundelay.algorithm(RING)
    checked = ring.check(range(2, 5))
    assert [(c.ranks, c.verdict, c.rounds) for c in checked] == [(2, "proved", 2), (3, "proved", 4), (4, "proved", 6)]
    assert [c.shape for c in ring.check("4..5")] == ["4", "5"]
    with pytest.raises(roundelay.UsageError, match="not a rank count"):
        ring.check("many")
    with pytest.raises(RefusedError) as error:
        roundelay.algorithm(WRONG, name="wrong.algo").check(3)
    assert error.value.code == "RL0501"
    assert "--> wrong.algo:6:" in str(error.value) and "one more here, and it would be right" in str(error.value)


def test_draw(command: str, tmp_path: Path) -> None:
    drawing = roundelay.algorithm(RING).draw(3)
    assert "<svg" in drawing.page and "my_ring" in drawing.page
    drawing.save(tmp_path / "ring.html")
    assert (tmp_path / "ring.html").read_text() == drawing.page
    frame = roundelay.algorithm(RING)._repr_html_()
    assert frame.startswith("<iframe srcdoc=") and "<svg" not in frame


def test_bench(command: str) -> None:
    measured = roundelay.algorithm(RING).bench(2, (1024, 4096))
    assert [m.bytes for m in measured] == [1024, 2048, 4096] or [m.bytes for m in measured] == [1024, 4096]
    assert all(m.time_us > 0 and m.wrong == 0 and m.transport == "shm" for m in measured)


def test_a_file_is_loaded(command: str) -> None:
    halo = roundelay.load(ROOT / "examples" / "03_halo.algo")
    assert (halo.name, halo.collective) == ("neighbours", "halo")
    assert [c.verdict for c in halo.check([2, 3, 4])] == ["not_allowed", "proved", "proved"]

    def call(comm: Communicator) -> None:
        out = np.zeros((3, 2))
        comm.run_into(halo, out, np.full(2, comm.rank + 1.0))
        left, right = (comm.rank - 1) % 3 + 1, (comm.rank + 1) % 3 + 1
        assert out.tolist() == [[left] * 2, [right] * 2, [left + right] * 2]

    threads(call, 3)


def wrong(n):  # type: ignore[no-untyped-def]
    chunks(n)  # noqa: F821
    for s in range(n - 2):
        for r in each:  # noqa: F821
            r.to((r + 1) % n).reduce(data[(r - s) % n])  # noqa: F821


def test_errors_about_a_function_show_the_function(command: str) -> None:
    made = roundelay.algorithm("all_reduce")(wrong)
    line = "            r.to((r + 1) % n).reduce(data[(r - s) % n])  # noqa: F821"

    def call(comm: Communicator) -> str:
        with pytest.raises(RefusedError, match="RL0501") as error:
            comm.run(made, np.zeros(8))
        return str(error.value)

    with pytest.raises(RefusedError, match="RL0501") as error:
        made.check(4)
    for said in (str(error.value), *threads(call, 3)):
        shown = said.splitlines()
        at = next(at for at, shown_line in enumerate(shown) if shown_line.endswith(f"| {line}"))
        marks, _, _ = shown[at + 1].partition("| ")[2].lstrip().partition(" ")
        assert set(marks) <= {"^", "-"} and shown[at + 1].index(marks) == shown[at].index("r.to"), said


def test_words_that_are_nearly_right_are_suggested() -> None:
    for text, said in (
        ("for r in eahc:\n        r.to(r).copy(data[r])", "did you mean `each`?"),
        ("for r in each:\n        r.to(r).redcue(data[r])", "did you mean `reduce`?"),
        ("chnuks(n)", "did you mean `chunks`?"),
    ):
        import linecache

        code = f"def near(n):\n    {text}\n"
        linecache.cache["near.py"] = (len(code), None, code.splitlines(True), "near.py")
        names: dict[str, object] = {}
        exec(compile(code, "near.py", "exec"), names)
        with pytest.raises(RefusedError, match=said.replace("?", r"\?")):
            roundelay.algorithm("all_reduce")(names["near"])  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match="no collective is named `allreduce`; did you mean `all_reduce`"):
        roundelay.algorithm("allreduce")  # type: ignore[call-overload]


def test_a_refuted_algorithm_is_drawn_with_its_fault(command: str) -> None:
    drawing = roundelay.algorithm(WRONG).draw(4)
    assert drawing.fault is not None and "RL0501" in drawing.fault
    assert "RL0501" in drawing.page and "<svg" in drawing.page
    assert roundelay.algorithm(RING).draw(4).fault is None


def test_values_that_the_program_does_not_take_are_named(command: str) -> None:
    ring = roundelay.algorithm(RING)
    cases = (
        (lambda: ring.check("x"), "`n` is 'x': `x` is not a rank count"),
        (lambda: ring.draw("2.."), r"`n` is '2\.\.'"),
        (lambda: ring.bench(2, (1024,)), r"`sizes` is \(1024,\): give the first and the last size"),  # type: ignore[arg-type]
        (lambda: ring.bench(2, (2048, 1024)), "the first size is not larger than the last"),
        (lambda: ring.bench(2, (0, 1024)), r"`sizes\[0\]` is 0: give the first and the last"),
    )
    for call, said in cases:
        with pytest.raises(roundelay.UsageError, match=said):
            call()
