"""The benchmark of torch.distributed's backends, at sizes that say nothing about speed."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from place import search_path

pytest.importorskip("torch", reason="the benchmark measures torch.distributed")

from roundelay.bench import _command, _job, _report  # noqa: E402
from roundelay.errors import Error, UsageError  # noqa: E402

TINY = ["--seconds", "0.01", "--parameters", "2k", "--batch", "2", "--sizes", "8,64K", "--quiet"]


def bench(*arguments: str, module: tuple[str, ...] = ("roundelay.bench",)) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=search_path())
    return subprocess.run(
        [sys.executable, "-m", *module, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@functools.cache
def whole() -> tuple[subprocess.CompletedProcess[str], dict[str, object]]:
    done = bench(*TINY, "--json", "-", "--no-memory")
    assert done.returncode == 0, done.stderr
    return done, json.loads(done.stdout)


def test_every_case_is_measured_under_both() -> None:
    _, found = whole()
    rows = {(row["case"], row["bytes"], row["backend"]): row for row in found["rows"]}  # type: ignore[attr-defined]
    sized = [name for name in _job.COLLECTIVES if name != "barrier"]
    expected = {(name, size, b) for name in sized for size in (8, 65536) for b in ("gloo", "roundelay")}
    expected |= {(name, 0, b) for name in ("barrier", *_job.STEPS) for b in ("gloo", "roundelay")}
    assert set(rows) == expected
    for row in rows.values():
        assert row["error"] is None
        assert row["wall_us"] >= row["wall_min_us"] > 0 and row["cpu_us"] > 0 and row["rounds"] >= 5


def test_ratios_are_of_the_first_backend() -> None:
    _, found = whole()
    rows = found["rows"]
    first = next(row for row in rows if row["case"] == "barrier" and row["backend"] == "gloo")  # type: ignore
    other = next(row for row in rows if row["case"] == "barrier" and row["backend"] == "roundelay")  # type: ignore
    assert first["ratio"] == 1.0
    assert other["ratio"] == other["wall_us"] / first["wall_us"]


def test_losses_are_those_of_gloo() -> None:
    _, found = whole()
    losses = {(row["case"], row["backend"]): row["loss"] for row in found["rows"] if row["loss"]}  # type: ignore
    for step in _job.STEPS:
        assert losses[step, "gloo"] == pytest.approx(losses[step, "roundelay"], rel=1e-5)


def test_the_table_has_memory_and_busy_loops_end(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    arguments = ["bench-torch", *TINY, "--only", "all_reduce", "--sizes", "1K", "--busy", "--json", str(file), "--backends", "roundelay"]
    done = bench(*arguments, module=("roundelay",))
    assert done.returncode == 0, done.stderr
    assert "a busy loop on every core" in done.stdout.splitlines()[0]
    assert any(line.startswith("all_reduce") and "1 KiB" in line for line in done.stdout.splitlines())
    assert "peak memory of a process with roundelay alone" in done.stdout
    found = json.loads(file.read_text())
    assert found["busy"] is True and all(row["memory_mib"] > 10 for row in found["rows"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "all_reduse"], "--only all_reduse: there is all_reduce"),
        (["--sizes", "8,many"], "`many` is no size"),
        (["--sizes", "64K..8"], "the first size is larger"),
        (["--ranks", "0"], "--ranks 0"),
        (["--parameters", "none"], "--parameters none is no count"),
        (["--backends", "nccl", "--device", "cpu"], "nccl moves memory of GPUs only"),
        (["--backends", "smoke"], "--backends smoke: there is nccl"),
    ],
)
def test_wrong_use(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _command.main(arguments) == 2
    assert said in capsys.readouterr().err


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        _command.main(["--help"])
    text = capsys.readouterr().out
    assert "mpirun -n 2 python -m roundelay.bench" in text and "--parameters parameters" in text


def test_sizes() -> None:
    assert _job.sizes_of("8,64K,1MiB") == [8, 65536, 1 << 20]
    assert _job.sizes_of("8..1K") == [8, 64, 512]
    assert _job.sizes_of("1K..4K*2,8") == [8, 1024, 2048, 4096]
    with pytest.raises(UsageError):
        _job.sizes_of("8..64*1")


def _results(*rows: _job.Row) -> _job.Results:
    job = _job.Job(["gloo", "roundelay"], 2, ["all_reduce", "ddp"], [8], 1, "cpu", 1, 1, 1)
    return _job.Results(job, list(rows))


def test_a_wrong_result_and_other_losses_are_failures() -> None:
    wrong = _job.Row("all_reduce", 8, "roundelay", error="the result is wrong")
    gloo, ours = (_job.Row("ddp", 0, name, loss=loss) for name, loss in (("gloo", 1.0), ("roundelay", 1.1)))
    found = _report.problems(_results(wrong, gloo, ours))
    assert len(found) == 2 and "the loss is 1.1" in found[1]
    assert "roundelay: the result is wrong" in _report.line(_results(wrong), "all_reduce", 8)


def test_a_lost_rank_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from roundelay.bench import _run

    job = _job.Job(["no-such-backend"], 2, ["barrier"], [8], 0.01, "cpu", 100, 1, 20)
    with pytest.raises(Error, match="rank . ended with 1(.|\n)*no-such-backend"):
        _run.run(job, lambda event: None)


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ("pass", "import time; time.sleep(600)", "rank 1 had not ended 3 s after the last result"),
        ("raise SystemExit(3)", "import time; time.sleep(600)", "rank 0 ended with 3"),
    ],
)
def test_ranks_that_do_not_end_are_ended(
    first: str, second: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from roundelay.bench import _run

    monkeypatch.setattr(_run, "PATIENCE", 3.0 if first == "pass" else 600.0)
    monkeypatch.setattr(_run, "GRACE", 0.1)
    for rank in range(2):
        (tmp_path / f"log{rank}").touch()
    ranks = [subprocess.Popen([sys.executable, "-c", code]) for code in (first, second)]
    with pytest.raises(Error, match=said):
        _run._end(ranks, str(tmp_path))
    assert ranks[1].returncode == -signal.SIGKILL


def test_an_interrupt_leaves_no_process(tmp_path: Path) -> None:
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=search_path())
    command = [sys.executable, "-m", "roundelay.bench", "--only", "barrier", "--seconds", "90", "--busy"]

    def heard() -> None:
        # A job in the background of a script is started with Ctrl-C ignored.
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=heard,
    ) as process:
        assert process.stderr is not None
        try:
            assert "barrier" in process.stderr.readline()
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130 and "stopped" in said
    # Its ranks and busy loops were in the session that it led.
    alive = [int(stat.rpartition(")")[2].split()[3]) for stat in map(_stat, Path("/proc").glob("[0-9]*/stat")) if stat]
    assert process.pid not in alive


def _stat(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def test_it_says_that_numpy_is_needed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert _command.main(["--only", "barrier", "--backends", "gloo,roundelay"]) == 2
    assert "pip install numpy" in capsys.readouterr().err


def test_the_plot_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match="pip install matplotlib"):
        _report.plotter()


def test_the_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the plot is drawn by matplotlib")
    rows = [_job.Row("all_reduce", 8, name, wall_us=us) for name, us in (("gloo", 300.0), ("roundelay", 10.0))]
    _report.plot(_results(*rows), str(tmp_path / "run.svg"))
    assert "all_reduce" in (tmp_path / "run.svg").read_text()
