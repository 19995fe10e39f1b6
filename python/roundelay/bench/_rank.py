"""What each rank does: opens a group of each backend, and measures the cases by turns."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, Store

from roundelay.torch import NAME, register

from ._cases import Case, collect, make
from ._job import Job, Row

VARIABLE = "ROUNDELAY_BENCH_JOB"
MOST_ROUNDS = 1000
LEAST_ROUNDS = 5
ROUND = 0.004
"""The seconds that one round of short calls takes."""

Emit = Callable[[dict[str, Any]], None]


def missing(backend: str, device: str) -> str | None:
    """Return why a backend cannot be measured here, or None if it can."""
    if backend == "gloo":
        if device != "cpu":
            return "gloo is measured on CPU only"
        return None if dist.is_gloo_available() else "this torch was built without Gloo"
    if backend == "nccl":
        if device != "cuda":
            return "nccl moves memory of GPUs only: pass --device cuda"
        return None if dist.is_nccl_available() else "this torch was built without NCCL"
    if backend == "mpi":
        if not dist.is_mpi_available():
            return "this torch was built without MPI"
        if not any(name in os.environ for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK")):
            return "ranks under MPI are started by mpirun: mpirun -n 2 python -m roundelay.bench"
    return None


class Ranks:
    """The groups of this rank."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.limit = timedelta(seconds=job.timeout)
        self.rank = dist.get_rank()
        self.groups: dict[str, dist.ProcessGroup] = {}
        for backend in job.backends:
            group = dist.new_group(backend=backend, timeout=self.limit)
            assert isinstance(group, dist.ProcessGroup)
            self.groups[backend] = group

    def every(self, value: Any) -> list[Any]:
        """Return a value of each rank."""
        values = [None] * dist.get_world_size()
        dist.all_gather_object(values, value)
        return values

    def first(self, value: Any) -> Any:
        """Return the value of rank 0."""
        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]

    def run(self, emit: Emit) -> None:
        """Measure all, and emit rows on rank 0."""
        points = self.job.points()
        for index, (name, size) in enumerate(points):
            if self.rank == 0:
                emit({"progress": index, "of": len(points), "case": name, "bytes": size})
            rows = self.alone(name, size) if self.job.alone else self.measure(name, size)
            collect()
            if self.rank == 0:
                for row in rows:
                    emit({"row": asdict(row)})

    def open(self, name: str, size: int, backend: str) -> tuple[Case | None, Row]:
        """Make a case, call it until it is warm, and look at its result."""
        row = Row(name, size, backend)
        case, problem = None, None
        try:
            case = make(name, size, self.job, self.groups[backend])
            for _ in range(3):
                self.call(case, 1)
            if not case.right():
                problem = "the result is wrong"
            row.loss = case.loss
        except Exception as error:
            problem = f"{type(error).__name__}: {error}".splitlines()[0]
        problems = [text for text in self.every(problem) if text is not None]
        if problems:
            row.error = problems[0]
            return None, row
        return case, row

    def call(self, case: Case, calls: int) -> tuple[float, float]:
        """Return the seconds of wall time and of processor time that calls took."""
        wall = cpu = 0.0
        settle = case.settle
        for _ in range(calls if settle else 1):
            cpu_begun, begun = time.process_time(), time.perf_counter()
            if settle:
                case.call()
            else:
                for _ in range(calls):
                    case.call()
            if self.job.device == "cuda" and not settle:
                torch.cuda.synchronize()
            wall += time.perf_counter() - begun
            if settle:
                settle()
            cpu += time.process_time() - cpu_begun
        return wall, cpu

    def measure(self, name: str, size: int) -> list[Row]:
        """Return a row of each backend, measured by turns."""
        opened = {backend: self.open(name, size, backend) for backend in self.groups}
        cases = {backend: case for backend, (case, _) in opened.items() if case is not None}
        calls: dict[str, int] = {}
        rounds = MOST_ROUNDS
        for backend, case in cases.items():
            dist.barrier()
            begun = time.perf_counter()
            self.call(case, 3)
            taken = (time.perf_counter() - begun) / 3
            calls[backend] = max(1, min(1000, round(ROUND / taken)))
            rounds = min(rounds, max(LEAST_ROUNDS, int(self.job.seconds / (taken * calls[backend]))))
        calls, rounds = self.first((calls, rounds))
        taken_by: dict[str, list[tuple[float, float]]] = {backend: [] for backend in cases}
        order = list(cases)
        for _ in range(rounds):
            for backend in order:
                dist.barrier()
                wall, cpu = self.call(cases[backend], calls[backend])
                taken_by[backend].append((wall / calls[backend], cpu / calls[backend]))
            order.append(order.pop(0)) if order else None
        gathered = self.every(taken_by)
        rows = []
        for backend, (opened_case, row) in opened.items():
            rows.append(row)
            if opened_case is None:
                continue
            by_round = list(zip(*(each[backend] for each in gathered), strict=True))
            walls = [max(wall for wall, _ in each) for each in by_round]
            cpus = [statistics.fmean(cpu for _, cpu in each) for each in by_round]
            row.wall_us, row.wall_min_us = statistics.median(walls) * 1e6, min(walls) * 1e6
            row.cpu_us = statistics.median(cpus) * 1e6
            row.rounds, row.calls = rounds, calls[backend]
        return rows

    def alone(self, name: str, size: int) -> list[Row]:
        """Return a row with the memory that a case needs, with the one backend of this job."""
        reset = _reset_peak()
        (backend,) = self.groups
        case, row = self.open(name, size, backend)
        if case is not None:
            self.call(case, 5)
        peaks = self.every(_peak_mib(self.job.device))
        if case is not None and all(self.every(reset)):
            row.memory_mib = statistics.fmean(peaks)
        return [row]


def _reset_peak() -> bool:
    """Have the peak begin anew; False where the system cannot."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        return False
    return True


def _peak_mib(device: str) -> float:
    """Return the most memory that was held since the reset, on the device that is measured."""
    if device == "cuda":
        free, total = torch.cuda.mem_get_info()
        return (total - free) / (1 << 20)
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return 0.0


def run(job: Job, emit: Emit, store: Store | None = None, rank: int = -1) -> None:
    """Be one rank: of ours if a store is given, else of the launcher that started this process."""
    register()
    if job.device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", max(rank, 0))) % torch.cuda.device_count())
    limit = timedelta(seconds=job.timeout)
    # What coordinates the measurements.
    control = "gloo" if dist.is_gloo_available() else NAME
    if store is None:
        dist.init_process_group(control, timeout=limit)
    else:
        dist.init_process_group(control, store=store, rank=rank, world_size=job.ranks, timeout=limit)
    Ranks(job).run(emit)
    dist.destroy_process_group()


def main() -> None:
    """Be a rank that the command line started; what is found goes to a pipe, a line of JSON each."""
    given = json.loads(os.environ[VARIABLE])
    job = Job.of(given["job"])
    with open(given["pipe"], "w", encoding="utf-8") if given["pipe"] is not None else open(os.devnull, "w") as pipe:

        def emit(event: dict[str, Any]) -> None:
            print(json.dumps(event), file=pipe, flush=True)

        try:
            run(job, emit, FileStore(given["store"], job.ranks), given["rank"])
        except BrokenPipeError:
            sys.exit(1)


if __name__ == "__main__":
    main()
