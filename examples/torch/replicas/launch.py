"""Runs an example with torchft: a lighthouse, and torchrun for each replica, which starts its ranks again after a
fault. With `--kill` it runs twice, with and without the fault, and compares the losses.

python examples/torch/replicas/launch.py hsdp --ranks 2 --kill 4 [--device cuda] [--backend gloo]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

Notes = list[dict[str, Any]]
HEARTBEAT_MS = 2000
"""The lighthouse takes a replica for lost that is silent for this time."""
LIGHTHOUSE = """
from torchft.coordination import LighthouseServer
server = LighthouseServer("127.0.0.1:0", 1, join_timeout_ms=10_000, heartbeat_timeout_ms=%d)
print(server.address(), flush=True)
input()
"""
"""On several hosts this is the program `torchft_lighthouse`, on one of them."""


def launch(options: argparse.Namespace, kill: int, folder: Path) -> Notes:
    """Run all replicas; return what they have noted."""
    notes = folder / f"notes{kill}.jsonl"
    command = [sys.executable, "-c", LIGHTHOUSE % HEARTBEAT_MS]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    lighthouse = subprocess.Popen(command, text=True, **pipes)  # type: ignore[call-overload]
    started = []
    try:
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "TORCHFT_LIGHTHOUSE": lighthouse.stdout.readline().strip(),
            # Else ranks that torchrun starts again find in its store what those before have written.
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        }
        example = [str(Path(__file__).with_name(f"{options.example}.py")), "--notes", str(notes), "--kill", str(kill)]
        for name in ("replicas", "backend", "device", "steps"):
            example += [f"--{name}", str(getattr(options, name))]
        for replica in range(options.replicas):
            # On a host of its own a replica needs no more than the two last variables and this line.
            torchrun = ["--standalone", "--max-restarts", "3", "--monitor-interval", "0.1"]
            torchrun += ["--nproc-per-node", str(options.ranks)]
            command = [sys.executable, "-m", "torch.distributed.run", *torchrun, *example, "--replica", str(replica)]
            with (folder / f"output{kill}.{replica}.txt").open("wb") as output:
                started.append(subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT))
        until = time.monotonic() + options.limit
        while any(each.poll() is None for each in started) and time.monotonic() < until:
            time.sleep(0.1)
        codes = [each.poll() for each in started]  # None: it has not ended.
    finally:
        for each in started:
            each.terminate()  # torchrun ends its ranks.
            each.wait()
        lighthouse.kill()
        lighthouse.wait()
    if any(code != 0 for code in codes):
        texts = [(folder / f"output{kill}.{replica}.txt").read_text() for replica in range(options.replicas)]
        sys.exit("\n".join([f"torchrun ended with {codes}", *(text[-3000:] for text in texts)]))
    return [json.loads(line) for line in notes.read_text().splitlines()]


def show(notes: Notes) -> None:
    """Print how the run went."""
    begin = notes[0]["time"]
    for note in notes:
        what = " ".join(f"{key} {note[key]}" for key in ("step", "loss", "replicas") if key in note)
        print(f"{note['time'] - begin:7.2f} s  replica {note['replica']} life {note['life']}  {note['event']:6} {what}")


def differences(without: Notes, killed: Notes, tolerance: float) -> list[str]:
    """Return in what a run with a fault differs from one without, and what of the fault did not happen."""
    found = []
    lives = {note["life"] for note in killed if note["event"] == "step"}
    if lives != {0, 1}:
        found.append(f"steps were made by processes of lives {sorted(lives)}, not of 0 and 1")
    if not any(note["event"] == "failed" for note in killed):
        found.append("no step has failed")
    if tolerance == 0:
        expected, losses = (
            {note["step"]: note["loss"] for note in notes if note["event"] == "step"} for notes in (without, killed)
        )
        wrong = [step for step, loss in expected.items() if losses.get(step) != loss]
        found += [f"the loss of step {step} is {losses.get(step)}, not {expected[step]}" for step in wrong]
    ends = [[note["loss"] for note in notes if note["event"] == "end"] for notes in (without, killed)]
    if not all(math.isclose(loss, ends[0][0], rel_tol=tolerance) for end in ends for loss in end):
        found.append(f"final losses are {ends[1]} with a fault, {ends[0]} without")
    return found


def main() -> None:
    """Run the example that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("example", choices=("hsdp", "streaming_diloco"))
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=1, help="the ranks of a replica")
    parser.add_argument("--backend", choices=("roundelay", "gloo", "nccl"), default="roundelay")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--kill", type=int, default=-1, help="the step in which replica 0 is killed")
    parser.add_argument("--tolerance", type=float, help="of the loss; for hsdp 0, for streaming_diloco 1e-6")
    parser.add_argument("--limit", type=float, default=180, help="seconds that a run may take")
    options = parser.parse_args()
    tolerance = options.tolerance
    if tolerance is None:
        tolerance = 0.0 if options.example == "hsdp" else 1e-6
    with tempfile.TemporaryDirectory() as folder:
        without = launch(options, -1, Path(folder))
        if options.kill < 0:
            show(without)
            return
        killed = launch(options, options.kill, Path(folder))
    show(killed)
    found = differences(without, killed, tolerance)
    losses = [next(note["loss"] for note in notes if note["event"] == "end") for notes in (without, killed)]
    print(f"final loss {losses[0]!r} without a fault, {losses[1]!r} with one")
    sys.exit("\n".join(found) if found else 0)


if __name__ == "__main__":
    main()
