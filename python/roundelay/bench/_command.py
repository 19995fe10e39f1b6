"""The command line of the benchmark."""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import sys
from collections.abc import Sequence
from typing import Any

from roundelay.errors import Error, UsageError

from ._job import COLLECTIVES, STEPS, Job, Results, Row, bytes_text, sizes_of

SIZES = "8,1K,16K,256K,1M,4M,16M,64M"
BACKENDS = ("nccl", "gloo", "mpi", "roundelay")

DESCRIPTION = """Measure torch.distributed under several backends, by turns, in one run.

The same processes open a group of each backend. Every case is measured in rounds; in a round each backend has its
turn. A time is the median over rounds, that of the slowest rank; processor time is that of all threads of a rank, the
mean of ranks; memory is the peak of a process that has this backend alone. Ratios are to the first backend.
"""

EXAMPLES = f"""cases:
  {", ".join(COLLECTIVES)}
            (`exchange`: isend to the next rank and irecv from the one before; `start`: until
            all_reduce(async_op=True) has returned)
  {", ".join(STEPS)}
            a training step (forward, backward, optimizer) of a model of --parameters parameters

examples:
  python -m roundelay.bench                             two ranks on this machine, about two minutes
  python -m roundelay.bench --sizes 8,1M --only all_reduce,ddp
  python -m roundelay.bench --ranks 4 --sizes 8..64M*4 --json run.json --plot run.png
  python -m roundelay.bench --busy                      beside a busy loop on every core
  python -m roundelay.bench --device cuda               nccl and roundelay, a GPU each rank
  torchrun --nproc-per-node 2 -m roundelay.bench        ranks of a launcher (no memory)
  mpirun -n 2 python -m roundelay.bench                 with mpi, where torch has it
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="python -m roundelay.bench",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = made.add_argument
    add("--backends", help=f"names with commas, the first to compare with; by default what is there of {BACKENDS}")
    add("--ranks", type=int, default=2, metavar="N", help="processes of this machine (2)")
    add("--sizes", default=SIZES, help=f"bytes of the larger buffer of a rank: 8,64K or 8..64M*4 ({SIZES})")
    add("--only", metavar="CASES", help="cases with commas; all by default")
    add("--device", choices=["cpu", "cuda"], help="where the tensors are (cpu, cuda where each rank has a GPU)")
    add("--parameters", default="25M", help="parameters of the model of the steps, M for a million (25M)")
    add("--batch", type=int, default=8, metavar="N", help="samples of a rank in a step (8)")
    add("--seconds", type=float, default=0.5, metavar="S", help="time for each case under each backend (0.5)")
    add("--timeout", type=float, default=60, metavar="S", help="an operation without progress fails after it (60)")
    add("--busy", action="store_true", help="run a busy loop on every core beside")
    add("--no-memory", action="store_true", help="leave out the peak memory, which takes a start of each backend")
    add("--json", metavar="FILE", help="write all figures to a file; - for standard output, without the table")
    add("--plot", metavar="FILE", help="draw them, as .png, .svg or .pdf (needs matplotlib)")
    add("--quiet", action="store_true", help="no progress")
    return made


def number(text: str) -> int:
    """Read a count with an optional k or M, of thousands. Raises ``UsageError``."""
    factor = {"k": 1000, "m": 1_000_000}.get(text[-1:].lower(), 1)
    digits = text[:-1] if factor > 1 else text
    try:
        value = int(float(digits) * factor)
    except ValueError:
        value = 0
    if value < 1:
        raise UsageError(f"--parameters {text} is no count, such as 500k or 25M")
    return value


def names(text: str | None, known: Sequence[str], option: str) -> list[str]:
    """Read names with commas; all that are known if none are given. Raises ``UsageError`` for another one."""
    if text is None:
        return list(known)
    found = [name.strip() for name in text.split(",") if name.strip()]
    for name in found:
        if name not in known:
            raise UsageError(f"{option} {name}: there is {', '.join(known)}")
    if not found:
        raise UsageError(f"{option} names nothing: there is {', '.join(known)}")
    return [name for name in known if name in found] if option == "--only" else list(dict.fromkeys(found))


def _device(given: argparse.Namespace, ranks: int) -> str:
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    local = int(os.environ.get("LOCAL_WORLD_SIZE", ranks))
    if given.device == "cuda" and gpus < local:
        raise UsageError(f"--device cuda: {local} ranks, and {gpus} GPUs here: pass --ranks {gpus or 'N --device cpu'}")
    return str(given.device or ("cuda" if gpus >= local else "cpu"))


def job_of(given: argparse.Namespace, launched: int | None) -> tuple[Job, list[str]]:
    """Return the job of a command line, and what of it cannot be measured, with reasons. Raises ``UsageError``."""
    ranks = launched or given.ranks
    for option, value in (("--ranks", ranks), ("--batch", given.batch), ("--seconds", given.seconds)):
        if value <= 0:
            raise UsageError(f"{option} {value}: it is more than 0")
    cases, sizes = names(given.only, COLLECTIVES + STEPS, "--only"), sizes_of(given.sizes)
    asked, parameters = names(given.backends, BACKENDS, "--backends"), number(given.parameters)
    try:
        from ._rank import missing
    except ImportError as error:
        raise UsageError(f"the benchmark needs torch ({error}): pip install torch") from error
    device = _device(given, ranks)
    absent = {name: reason for name in asked if (reason := missing(name, device)) is not None}
    if given.backends is not None and absent:
        raise UsageError("; ".join(f"--backends {name}: {reason}" for name, reason in absent.items()))
    backends = [name for name in asked if name not in absent]
    job = Job(backends, ranks, cases, sizes, given.seconds, device, parameters, given.batch, given.timeout)
    return job, [f"without {name}: {reason}" for name, reason in absent.items()]


class Listener:
    """Collects what rank 0 says, prints each line of the table when it is complete, and shows progress."""

    def __init__(self, results: Results, table: bool, progress: bool) -> None:
        self.results = results
        self.table = table
        self.progress = progress
        self.what = ""

    def __call__(self, event: dict[str, Any]) -> None:
        if "progress" in event:
            size = f" {bytes_text(event['bytes'])}" if event["bytes"] else ""
            self._show(f"[{event['progress'] + 1}/{event['of']}] {self.what}{event['case']}{size}")
            return
        row = Row(**event["row"])
        self._show("")
        known = self.results.row(row.case, row.bytes, row.backend)
        if known is not None:
            known.memory_mib = row.memory_mib
            return
        self.results.rows.append(row)

    def _show(self, text: str) -> None:
        if not self.progress:
            return
        if sys.stderr.isatty():
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
        elif text:
            print(text, file=sys.stderr, flush=True)

    def print(self) -> None:
        """Print the table with everything that is known."""
        from ._report import heading, line, summary

        self._show("")
        if not self.table:
            return
        print(heading(self.results))
        for case, size in self.results.job.points():
            print(line(self.results, case, size))
        print("\n".join(["", *summary(self.results)]))


def _launched() -> tuple[int, int] | None:
    """Return rank and size of this process if a launcher started it."""
    pairs = [("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE")]
    for rank, size in pairs:
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    return None


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; 0, 1 for a run that failed or a wrong result, 2 for wrong use."""
    made = parser()
    given = made.parse_args(arguments)
    try:
        return _run(given)
    except UsageError as error:
        print(f"{made.prog}: error: {error}", file=sys.stderr)
        return 2
    except Error as error:
        print(f"\nerror[{error.code}]: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130


def _write(results: Results, json: str | None) -> None:
    """Write results as JSON to a file, or to standard output for ``-``."""
    if json == "-":
        print(results.text())
    elif json is not None:
        with open(json, "w", encoding="utf-8") as file:
            print(results.text(), file=file)


def _run(given: argparse.Namespace) -> int:
    from . import _report
    from ._run import busy, cores, run

    launched = _launched()
    if given.plot is not None:
        _report.plotter()
    job, notes = job_of(given, launched[1] if launched else None)
    import torch

    if importlib.util.find_spec("numpy") is None:
        raise UsageError("torch gathers objects by numpy, which is not installed: `pip install numpy`")

    machine = {
        "host": platform.node(),
        "cores": cores(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": platform.platform(),
        "load": os.getloadavg()[0],
    }
    results = Results(job, busy=given.busy, machine=machine)
    speaks = launched is None or launched[0] == 0
    table = given.json != "-" and speaks
    listener = Listener(results, table, progress=speaks and not given.quiet)
    if table:
        beside = ", a busy loop on every core" if given.busy else ""
        print(f"{job.ranks} ranks, {job.device}, torch {torch.__version__}, {cores()} cores{beside}, {platform.platform()}")
        for note in notes:
            print(note)
    try:
        with busy(given.busy and speaks):
            if launched is not None:
                from ._rank import run as be

                os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
                os.environ.setdefault("MASTER_PORT", "29500")
                os.environ.update(RANK=str(launched[0]), WORLD_SIZE=str(launched[1]))
                be(job, listener)
            else:
                run(job, listener)
                for backend in [] if given.no_memory else job.backends:
                    listener.what = f"memory, {backend}: "
                    run(job.only(backend), listener)
    finally:
        # What was measured is kept, also where an error or Ctrl-C has ended the run.
        if speaks and results.rows:
            listener.print()
            _write(results, given.json)
    if not speaks:
        return 0
    if given.plot is not None:
        _report.plot(results, given.plot)
    found = _report.problems(results)
    for text in found:
        print(f"error: {text}", file=sys.stderr)
    return 1 if found else 0
