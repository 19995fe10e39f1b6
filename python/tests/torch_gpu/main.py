"""Tries the backend on several GPUs beside NCCL: what programs get, what a call costs, how long a training step takes.

    python python/tests/torch_gpu/main.py FOLDER [--ranks N] [--minutes M] [--device cpu] [--parts right,calls,…]

Needs an installed PyTorch and the package `roundelay` on the path, and nothing else; `tests/torch_gpu.sh` unpacks a
wheel and calls it. Each part is a job of its own with a deadline, so that what breaks one does not take the others
along. Rows go to FOLDER as JSON, a line each, what ranks write to FOLDER/log; a short table is printed at the end.
With `--device cpu` everything that needs no GPU runs beside Gloo: a test of this program.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import report

HERE = Path(__file__).resolve().parent
FACES = ("python", "compiled")

PARTS = {
    # name: (program, seconds, backends that run one after the other, or "" for one job with all of them)
    "right": ("right", 110, True),
    "windows": ("windows", 60, False),
    "calls": ("calls", 130, False),
    "graphs": ("graphs", 70, False),
    "steps": ("steps", 110, False),
}


def free_port() -> int:
    """Return a port that nobody uses."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Run:
    """All jobs of one call of this program."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.until = time.monotonic() + 60.0 * options.minutes
        self.folder = Path(options.folder).resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "log").mkdir(exist_ok=True)
        self.reference = "nccl" if options.device == "cuda" else "gloo"

    def environment(self, rank: int, port: int, backend: str) -> dict[str, str]:
        """Return the environment of a rank."""
        made = dict(
            os.environ,
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=str(self.options.ranks),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
            ROUNDELAY_TORCH_COMPILED="1" if backend == "compiled" else "0",
        )
        # Multicast of NVLink stays off, whoever would use it.
        made["NCCL_NVLS_ENABLE"] = "0"
        made["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"
        made.setdefault("OMP_NUM_THREADS", "4" if self.options.device == "cuda" else "1")
        return made

    def job(self, name: str, program: str, seconds: float, backend: str) -> str:
        """Run the ranks of one job; return how it ended."""
        whole, seconds = seconds, min(seconds, self.until - time.monotonic())
        if seconds < 10:
            print(f"{name:18} {'-':>6} s  {report.NO_TIME}", flush=True)
            return report.NO_TIME
        port, began = free_port(), time.monotonic()
        ranks = []
        for rank in range(self.options.ranks):
            with open(self.folder / "log" / f"{name}-{rank}.txt", "wb") as log:
                command = [sys.executable, str(HERE / "rank.py"), program, backend, str(self.folder / f"{name}.jsonl")]
                command += ["--device", self.options.device, "--seconds", str(seconds - 5)]
                ranks.append(
                    subprocess.Popen(
                        command,
                        env=self.environment(rank, port, backend),
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                    )
                )
        failed = ""
        until = began + seconds
        while any(rank.poll() is None for rank in ranks) and time.monotonic() < until:
            bad = [rank for rank, process in enumerate(ranks) if process.poll() not in (None, 0)]
            if bad and not failed:
                failed = self.failure(name, bad[0], ranks[bad[0]].returncode)
                until = min(until, time.monotonic() + 10)
            time.sleep(0.1)
        late = [rank for rank, process in enumerate(ranks) if process.poll() is None]
        for process in ranks:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        if not failed and late:
            failed = f"rank {late[0]} has not ended after {seconds:.0f} s"
        if not failed:
            bad = [rank for rank, process in enumerate(ranks) if process.returncode != 0]
            failed = self.failure(name, bad[0], ranks[bad[0]].returncode) if bad else ""
        if seconds < whole and (late or self.stopped(name)):
            # A job that had all of its time hangs; of one that had less, that is not known.
            failed = f"{report.NO_TIME}: it had {seconds:.0f} s of {whole:.0f}; {failed}"
        took = time.monotonic() - began
        print(f"{name:18} {took:6.1f} s  {failed or 'done'}", flush=True)
        return failed or "done"

    def failure(self, name: str, rank: int, code: int) -> str:
        """Say how a rank ended, with the last line that it wrote."""
        text = (self.folder / "log" / f"{name}-{rank}.txt").read_text(errors="replace")
        lines = [line for line in text.splitlines() if line.strip()]
        return f"rank {rank} ended with {code}: {lines[-1][:300] if lines else 'it said nothing'}"

    def stopped(self, name: str) -> bool:
        """Return True if a rank of a job was still running when its time was over: `rank.py` then ends itself."""
        logs = [self.folder / "log" / f"{name}-{rank}.txt" for rank in range(self.options.ranks)]
        return any(line.startswith("Timeout (") for log in logs for line in log.read_text(errors="replace").splitlines())

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of a job."""
        path = self.folder / f"{name}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def compile(self) -> bool:
        """Compile the face in C++ once, before a deadline of ranks runs."""
        began = time.monotonic()
        code = "from roundelay.torch import compiled; compiled.module()"
        try:
            ended = subprocess.run(
                [sys.executable, "-c", f"import torch; {code}"],
                env=self.environment(0, 0, "python"),
                capture_output=True,
                text=True,
                timeout=max(10.0, min(150.0, self.until - time.monotonic())),
            )
            said = "" if ended.returncode == 0 else ended.stderr.strip()
        except subprocess.TimeoutExpired:
            said = "the compiler has not ended"
        (self.folder / "log" / "compile.txt").write_text(said)
        last = said.splitlines()[-1][:300] if said else "done"
        print(f"{'compile':18} {time.monotonic() - began:6.1f} s  {last}", flush=True)
        return not said


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=7.5)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--faces", default=",".join(FACES))
    options = parser.parse_args()
    run = Run(options)
    faces = [face for face in options.faces.split(",") if face]
    if "compiled" in faces and not run.compile():
        faces.remove("compiled")
    os.environ["ROUNDELAY_GPU_FACES"] = ",".join(faces)
    ends: dict[str, str] = {}
    for part in options.parts.split(","):
        program, seconds, each = PARTS[part]
        for backend in [run.reference, *faces] if each else [""]:
            name = f"{part}-{backend}" if backend else part
            (run.folder / f"{name}.jsonl").unlink(missing_ok=True)
            ends[name] = run.job(name, program, seconds, backend)
    sys.exit(report.write(run, faces, ends))


if __name__ == "__main__":
    main()
