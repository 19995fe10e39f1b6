"""Algorithms that are Python functions: the plans of their twins in files, and errors at their lines."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import parameter_twins
import pytest
import twins
from conftest import ROOT
from ranks import LIMIT, threads

import roundelay
from roundelay import Algorithm, Communicator, RefusedError
from roundelay.lang import Ranks, chunks, data, each, play, requires, run

TWO_RINGS = """
algorithm two_rings implements all_reduce on n ranks {
    chunks n
    split data over side in 0..2 {
        let step = 1 - 2 * side
        for s in 0..n-1 { each r { r -> (r + step) % n : reduce data[(r - step * s) % n] as bf16 } }
        for s in 0..n-1 { each r { r -> (r + step) % n : copy data[(r + step - step * s) % n] as bf16 } }
    }
    schedule { pipeline 4 channels 2 }
}
"""


BOTH = """
algorithm both(m = 3 in 1..=8, up = true) implements broadcast on n ranks {
    let half = m * n
    chunks 2 * half
    use broadcast.k_nomial(k = m) on data[0..half]
    if up { use broadcast.k_nomial(k = 2 + 1) on data[half..2 * half] } else {
        use broadcast.chain on data[half..2 * half]
    }
}
"""


def plans(algorithm: Algorithm, n: str) -> list[dict[str, Any]]:
    """Return the plans of all ranks, without the places in the source."""
    found, said, code = algorithm._verb("show", "--stage", "plan", "-n", n)
    assert code == 0, said
    return _without_places(found)


def plans_or_none(algorithm: Algorithm, n: str) -> list[dict[str, Any]] | None:
    """Return the plans of all ranks, or None where the algorithm does not allow that number of ranks."""
    found, said, code = algorithm._verb("show", "--stage", "plan", "-n", n)
    assert code == 0 or "RL0601" in said, said
    return _without_places(found) if code == 0 else None


def _without_places(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for plan in found:
        plan["plan"]["part"].pop("sites", None)
        plan["plan"].pop("sites", None)
    return found


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        ("all_reduce.ring", ["2", "3", "8"]),
        ("all_reduce.halving_doubling", ["2", "8"]),
        ("all_reduce.two_level", ["2x2", "2x3"]),
        ("all_to_all.bruck", ["3", "8"]),
        ("broadcast.binomial", ["2", "7"]),
    ],
)
def test_plans_are_those_of_the_twin(command: str, name: str, ranks: list[str]) -> None:
    collective, _, short = name.partition(".")
    ours: Algorithm = getattr(twins, short)
    twin = roundelay.load(ROOT / "algorithms" / collective / f"{short}.algo")
    assert (ours.name, ours.collective) == (twin.name, twin.collective)
    for n in ranks:
        found, wanted = plans(ours, n), plans(twin, n)
        assert len(found) == eval(n.replace("x", "*"))
        # The hash, which ranks compare before they run, is among what is compared.
        assert all(len(plan["hash"]) == 32 for plan in found)
        assert found == wanted


@pytest.mark.parametrize(
    ("ours", "folder", "arguments"),
    parameter_twins.TWINS,
    ids=[f"{ours.collective}.{ours.name}" for ours, _, _ in parameter_twins.TWINS],
)
def test_plans_with_parameters_are_those_of_the_twin(
    command: str, ours: Algorithm, folder: str, arguments: tuple[str, ...]
) -> None:
    twin = roundelay.load(ROOT / folder / f"{ours.name}.algo")
    assert (ours.name, ours.collective) == (twin.name, twin.collective)
    assert len(arguments) >= 3
    seen: set[str] = set()
    for values in arguments:
        name = f"{ours.name}{values}"
        pair = ours.named(name), twin.named(name)
        assert pair[0].name == pair[1].name == name
        counts = ("2x2", "2x3") if ours.name == "crossing" else ("4", "9")
        found, wanted = ([plans_or_none(algorithm, n) for n in counts] for algorithm in pair)
        assert found == wanted, name
        hashes = {plan["hash"] for plans in found for plan in plans or ()}
        assert hashes and not hashes & seen, f"{name} is like another"
        seen |= hashes


def test_all_texts_with_parameters_have_a_twin() -> None:
    texts = [*(ROOT / "algorithms").glob("*/*.algo"), *(ROOT / "tests" / "parameters").glob("*.algo")]
    named = {text.relative_to(ROOT).as_posix() for text in texts if f"algorithm {text.stem}(" in text.read_text("utf-8")}
    assert named == {f"{folder}/{ours.name}.algo" for ours, folder, _ in parameter_twins.TWINS}
    assert len(parameter_twins.TWINS) == len(named) >= 20


def test_arguments_are_those_of_the_twin(command: str) -> None:
    ours = parameter_twins.k_nomial.named("k_nomial(k = 7)")
    assert pickle.loads(pickle.dumps(ours)).name == ours.name == "k_nomial(k = 7)"
    with pytest.raises(RefusedError, match="k goes from 2 to 8"):
        parameter_twins.k_nomial.named("k_nomial(k = 9)")
    with pytest.raises(RefusedError, match="k goes from 2 to 7"):
        parameter_twins.composed.named("composed(k = 8)")
    assert plans(twins.both, "4") == plans(roundelay.algorithm(BOTH), "4")
    assert plans(twins.both.named("both(up = false)"), "4") != plans(twins.both, "4")


LEAST, MOST = -2, 4


def shifted(n: Ranks, shift: Annotated[int, range(LEAST, 2 * MOST)] = MOST) -> None:
    def last() -> int:
        return MOST - 1

    requires(last() == 3 and shift != 0)
    for s in range(n - 1):
        for r in each:
            r.to((r + 1) % n).copy(data[(r - s) % n])


def test_bounds_are_expressions_of_numbers_from_outside() -> None:
    ours = roundelay.algorithm("all_gather")(shifted)
    assert ours.named("shifted(shift = -2)").name == "shifted(shift = -2)"
    assert ours.named("shifted(shift = 7)").name == "shifted(shift = 7)"
    for value in (-3, 8):
        with pytest.raises(RefusedError, match="shift goes from -2 to 7"):
            ours.named(f"shifted(shift = {value})")


def test_parts_wire_types_and_schedules(command: str) -> None:
    assert plans(twins.two_rings, "4") == plans(roundelay.algorithm(TWO_RINGS), "4")
    assert [c.verdict for c in twins.shifted.check([1, 2, 5])] == ["proved"] * 3
    assert [c.verdict for c in twins.rows_then_columns.check(["2x2", "2x3"])] == ["proved"] * 2  # type: ignore[list-item]


def formerly(n: Ranks) -> None:
    chunks(n)
    play("reduce_scatter.ring")
    play("all_gather.ring")


def test_a_part_has_its_former_name_too(command: str) -> None:
    assert roundelay.lang.play is run and "play" not in roundelay.lang.__all__
    assert [c.verdict for c in roundelay.algorithm("all_reduce")(formerly).check([2, 5])] == ["proved"] * 2


def test_it_is_run_beside_the_file(command: str) -> None:
    twin = roundelay.load(ROOT / "algorithms" / "all_reduce" / "ring.algo")

    def call(comm: Communicator) -> None:
        numbers = np.full(100, comm.rank + 1, "int64")
        # One rank has the function, the others have the file: it is the same call.
        comm.run(twins.ring if comm.rank == 0 else twin, numbers)
        assert (numbers == 6).all()
        comm.install(twins.ring)
        comm.all_reduce(numbers)
        assert (numbers == 18).all()

    threads(call, 3)


def line_of(function: Callable[..., Any], text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if text in line)


def wrong_ring(n: Ranks) -> None:
    chunks(n)
    for s in range(n - 2):
        for r in each:
            r.to((r + 1) % n).reduce(data[(r - s) % n])
    for s in range(n - 1):
        for r in each:
            r.to((r + 1) % n).copy(data[(r + 1 - s) % n])


def test_a_refuted_function_is_refuted_at_its_line(command: str) -> None:
    wrong = roundelay.algorithm("all_reduce")(wrong_ring)
    with pytest.raises(RefusedError) as error:
        wrong.check(3)
    line = line_of(wrong_ring, "range(n - 2)")
    assert error.value.code == "RL0501"
    assert f"--> {__file__}:{line}:" in str(error.value)
    assert "one more here, and it would be right" in str(error.value)

    def call(comm: Communicator) -> None:
        with pytest.raises(RefusedError, match="test_function.py:"):
            comm.run(wrong, np.zeros(9))

    threads(call, 3)


def unknown_part(n: Ranks) -> None:
    chunks(n)
    run("all_reduce.rang")


def test_an_unknown_name_is_refused_at_its_line() -> None:
    line = line_of(unknown_part, "rang")
    with pytest.raises(RefusedError, match=f"test_function.py:{line}:") as error:
        roundelay.algorithm("all_reduce")(unknown_part)
    assert error.value.code == "RL0203"


MISSING = "text"


def of_while(n: Ranks) -> None:
    while n > 1:
        chunks(n)


def of_division(n: Ranks) -> None:
    chunks(n / 2)  # type: ignore[arg-type]


def of_text(n: Ranks) -> None:
    chunks(MISSING)  # type: ignore[arg-type]


def of_float(n: Ranks) -> None:
    requires(n > 1.5)


def of_list(n: Ranks) -> None:
    for r in [0, 1]:
        chunks(r)


def of_step(n: Ranks) -> None:
    for s in range(0, n, 2):
        chunks(s)


def of_open_region(n: Ranks) -> None:
    for r in each:
        r.to(r + 1).copy(data[r:])


def of_print(n: Ranks) -> None:
    print(n)


def of_transfer(n: Ranks) -> None:
    for r in each:
        r.to(r + 1).copy(data).twice(2)


def of_update(n: Ranks) -> None:
    d = 1
    d += 1


def of_default(n: Ranks = 4) -> None:
    chunks(n)


def of_bounds(n: Ranks, k: Annotated[int, 8] = 2) -> None:
    chunks(n * k)


def of_start(n: Ranks, k: Annotated[int, range(9)] = 2) -> None:
    chunks(n * k)


def of_keyword(n: Ranks) -> None:
    chunks(n, k=2)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("function", "at", "said"),
    [
        (of_while, "while n", "no such statement in algorithms (while)"),
        (of_division, "n / 2", "write //, which rounds down"),
        (of_text, "MISSING", "`MISSING` is a str"),
        (of_float, "1.5", "this expression has no counterpart"),
        (of_list, "[0, 1]", "a loop goes over ranks, numbers or parts"),
        (of_step, "range(0, n, 2)", "a range has a start and an end"),
        (of_open_region, "data[r:]", "write data[a:b]"),
        (of_print, "print(n)", "this call is no statement of algorithms"),
        (of_transfer, "twice", "there are .into(…), .wire(…)"),
        (of_update, "d += 1", "`d` is bound again from itself"),
        (of_default, "def of_default", "the number of ranks has no name"),
        (of_bounds, "k: Annotated", "these are no bounds of a parameter"),
        (of_start, "k: Annotated", "these are no bounds"),
        (of_keyword, "chunks(n, k=2)", "only run(…) takes arguments by name"),
    ],
)
def test_what_the_language_has_not_is_refused(function: Any, at: str, said: str) -> None:
    with pytest.raises(RefusedError) as error:
        roundelay.algorithm("all_reduce")(function)
    line = line_of(function, at)
    assert said in str(error.value)
    assert (error.value.source or "").startswith(f"{__file__}:{line}:")
    assert f"{line} | " in str(error.value) and "^" in str(error.value)


def test_functions_of_no_file_and_things_that_are_none() -> None:
    space: dict[str, Any] = {}
    exec("def nowhere(n):\n    chunks(n)\n", space)
    with pytest.raises(RefusedError, match="cannot be read"):
        roundelay.algorithm("all_reduce")(space["nowhere"])
    with pytest.raises(RefusedError, match="stands over a function, not over a type"):
        roundelay.algorithm("all_reduce")(dict)
    with pytest.raises(RuntimeError, match="use it in a function under @roundelay.algorithm"):
        chunks(3)


def test_from_edit_to_a_checked_run_on_four_ranks_takes_seconds(command: str, tmp_path: Path) -> None:
    import time

    script = tmp_path / "edit.py"
    script.write_text(
        "import numpy as np, roundelay\nfrom roundelay.lang import *\n\n\n"
        + '@roundelay.algorithm("all_reduce")\n'
        + inspect.getsource(wrong_ring).replace("n - 2", "n - 1")
        + "\n\ndef main(comm):\n    data = np.full(1000, comm.rank + 1)\n    comm.run(wrong_ring, data)\n"
        + "    return int(data[-1])\n\n\n"
        + 'if __name__ == "__main__":\n    wrong_ring.check(4)\n    print(roundelay.launch(main, 4))\n'
    )
    begin = time.monotonic()
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=LIMIT)
    took = time.monotonic() - begin
    assert done.stdout == "[10, 10, 10, 10]\n", done.stderr
    print(f"{took:.1f} s")
    assert took < 30


