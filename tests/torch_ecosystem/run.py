"""Runs programs of others beside Gloo and with roundelay in its place, and makes a table.

    python run.py [--only TEXT ...] [--json FILE] [--list]

A program passes if all of its processes end with 0. Programs that train say their losses and a digest of their
parameters, which are to be those of Gloo bit for bit: two ranks add two numbers, in one order.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import catalogue
from catalogue import HERE, Program

RANKS = 2
BEFORE = 900.0
"""The seconds that a program's code of before may take."""


@dataclass
class Outcome:
    """What came out of a program: `pass`, `fail` or `hung`, figures, the end of its output, and if roundelay was loaded."""

    state: str
    seconds: float
    detail: dict[str, Any]
    text: str
    used: bool


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def environment(program: Program, folder: str, replace: bool, sources: Path | None) -> dict[str, str]:
    """Return the variables of a program's processes."""
    paths = [str(HERE / "witness"), str(HERE / "stubs"), str(HERE / "programs"), str(sources or "")]
    found = {key: value for key, value in os.environ.items() if not key.startswith("ROUNDELAY_REPLACE")}
    found |= dict(
        OMP_NUM_THREADS="1",
        TOKENIZERS_PARALLELISM="false",
        HF_HUB_OFFLINE="1",
        CUDA_VISIBLE_DEVICES="",
        ECOSYSTEM_WITNESS=folder,
        PYTHONPATH=os.pathsep.join(filter(None, [*paths, os.environ.get("PYTHONPATH")])),
    )
    found |= program.environment
    if replace:
        found["ROUNDELAY_REPLACE"] = program.replaced
    return found


def prepare(program: Program, sources: Path | None) -> None:
    """Run a program's code of before; what it could not do shows in the program."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", program.before]
        subprocess.run(command, env=environment(program, folder, False, sources), capture_output=True, timeout=BEFORE)


def run(program: Program, replace: bool, sources: Path | None) -> Outcome:
    """Run a program once."""
    with tempfile.TemporaryDirectory() as folder:
        base = environment(program, folder, replace, sources)
        command = [sys.executable, *program.command()]
        jobs = []
        if program.kind == "pytest":
            command += ["--junitxml", f"{folder}/report.xml", *(["-p", "torchft_roundelay"] if replace else [])]
            jobs.append((command, base))
        elif program.kind == "alone":
            jobs.append((command, base))
        else:
            port = free_port()
            for rank in range(RANKS):
                place = dict(
                    RANK=str(rank),
                    LOCAL_RANK=str(rank),
                    WORLD_SIZE=str(RANKS),
                    LOCAL_WORLD_SIZE=str(RANKS),
                    GROUP_RANK="0",
                    MASTER_ADDR="127.0.0.1",
                    MASTER_PORT=str(port),
                    OMPI_COMM_WORLD_RANK=str(rank),
                    OMPI_COMM_WORLD_LOCAL_RANK=str(rank),
                    OMPI_COMM_WORLD_SIZE=str(RANKS),
                )
                jobs.append((command, base | place))
        begin = time.monotonic()
        running = []
        for number, (command, variables) in enumerate(jobs):
            with open(f"{folder}/log{number}", "wb") as log:
                running.append(
                    subprocess.Popen(
                        command, env=variables, stdout=log, stderr=subprocess.STDOUT, cwd=folder, start_new_session=True
                    )
                )
        codes = waited(running, program.seconds)
        text = "\n".join(Path(f"{folder}/log{number}").read_text(errors="replace") for number in range(len(jobs)))
        detail: dict[str, Any] = {"codes": codes}
        if program.kind == "pytest":
            detail |= tests(Path(folder) / "report.xml")
        outcomes = re.findall(r"^OUTCOME (.*)$", text, re.MULTILINE)
        if outcomes:
            detail["outcomes"] = sorted((json.loads(each) for each in outcomes), key=json.dumps)
        figures = re.findall(r"^FIGURES (.*)$", text, re.MULTILINE)
        if figures:
            detail["figures"] = [json.loads(each) for each in figures]
        used = any(name.startswith("used-") for name in os.listdir(folder))
        state = "hung" if None in codes else "fail" if any(codes) else "pass"
        return Outcome(state, round(time.monotonic() - begin, 1), detail, text[-4000:], used)


def waited(running: list[subprocess.Popen[bytes]], seconds: float) -> list[int | None]:
    """Return the exit codes; None of what had not ended in time, nor 30 s after another one had failed."""
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until and any(process.poll() is None for process in running):
            if any(process.returncode for process in running):
                until = min(until, time.monotonic() + 30)
            time.sleep(0.05)
        return [process.poll() for process in running]
    finally:
        for process in running:
            # Sessions of their own: what a program has started ends with it.
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


def tests(report: Path) -> dict[str, Any]:
    """Return the cases of a pytest run by outcome."""
    found: dict[str, list[str]] = {"passed": [], "failed": [], "skipped": []}
    if not report.exists():
        return {}
    for case in xml.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        name = f"{case.get('classname', '').rsplit('.', 1)[-1]}.{case.get('name')}"
        kind = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        found[kind].append(name)
    return {"tests": {kind: len(names) for kind, names in found.items()}, "failed": sorted(found["failed"])}


def compared(gloo: Outcome, ours: Outcome) -> tuple[bool, str]:
    """Return if roundelay did as well as Gloo, and the reason or what was compared."""
    if gloo.used:
        return False, "roundelay was loaded beside Gloo: the run says nothing"
    if ours.state == "hung":
        return gloo.state == "hung", "has not ended in time" + (", nor with Gloo" if gloo.state == "hung" else "")
    if not ours.used:
        return False, "roundelay was not loaded"
    if "tests" in gloo.detail:
        only = sorted(set(ours.detail.get("failed", [])) - set(gloo.detail["failed"]))
        return not only, "fails only here: " + ", ".join(only) if only else "no case fails that passes with Gloo"
    if ours.state != "pass" and gloo.state != "pass":
        here, there = last_error(ours.text), last_error(gloo.text)
        return True, f"with Gloo too: {here}" if here == there else f"Gloo: {there}; here: {here}"
    if ours.state != "pass":
        return False, last_error(ours.text)
    if gloo.state != "pass":
        return True, "Gloo: " + last_error(gloo.text)
    first, second = gloo.detail.get("outcomes"), ours.detail.get("outcomes")
    if first is None:
        return True, ""
    if first == second:
        return True, "losses and parameters bit for bit"
    near = all(
        math.isclose(left, right, rel_tol=1e-5)
        for one, other in zip(first, second or [], strict=True)
        for left, right in zip(one["losses"], other["losses"], strict=True)
    )
    return near, "losses within 1e-5" if near else f"losses differ: {first} {second}"


def last_error(text: str) -> str:
    """Return the last line that looks like an exception."""
    lines = re.findall(r"^(?:\[rank\d+\]: ?)?((?:\w+\.)*\w*(?:Error|Exception|Interrupt)\b.*)$", text, re.MULTILINE)
    return (lines[-1] if lines else (text.strip().splitlines() or ["no output"])[-1])[:200]


def shown(outcome: Outcome) -> str:
    """Return an outcome for the table."""
    counts = outcome.detail.get("tests")
    if counts:
        return f"{counts['passed']} pass, {counts['failed']} fail, {counts['skipped']} skip"
    return outcome.state


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", nargs="*", default=[], help="programs whose names have one of these texts")
    parser.add_argument("--json", help="a file for the results")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    named = os.environ.get("ROUNDELAY_ECOSYSTEM_SOURCES")
    sources = Path(named).resolve() if named else None
    chosen = [p for p in catalogue.programs(sources) if not options.only or any(text in p.name for text in options.only)]
    if options.list:
        print("\n".join(program.name for program in chosen))
        return 0
    import torch

    face = "compiled" if os.environ.get("ROUNDELAY_TORCH_COMPILED") == "1" else "python"
    if face == "compiled":
        # Once, before a deadline of ranks runs.
        from roundelay.torch import compiled

        compiled.module()
    rows: list[dict[str, Any]] = []
    for program in chosen:
        missing = program.missing(sources)
        if missing:
            rows.append(dict(program=program.name, version="-", gloo="-", roundelay="skipped", ok=True, reason=missing))
            print(f"{program.name}: skipped: {missing}", flush=True)
            continue
        if program.before:
            prepare(program, sources)
        gloo, ours = run(program, False, sources), run(program, True, sources)
        ok, reason = compared(gloo, ours)
        row = dict(
            program=program.name,
            version=program.version(),
            gloo=shown(gloo),
            roundelay=shown(ours),
            ok=ok,
            reason=reason,
            seconds=[gloo.seconds, ours.seconds],
            detail=dict(gloo=gloo.detail, roundelay=ours.detail),
        )
        rows.append(row)
        print(f"{program.name} {row['version']}: gloo {row['gloo']} ({gloo.seconds} s), roundelay {row['roundelay']} "
              f"({ours.seconds} s){': ' + reason if reason else ''}", flush=True)  # fmt: skip
        if not ok:
            print(ours.text[-2500:], flush=True)
        if options.json:
            Path(options.json).write_text(json.dumps(dict(torch=torch.__version__, face=face, rows=rows), indent=1) + "\n")
    print(table(torch.__version__, face, rows))
    bad = [row["program"] for row in rows if not row["ok"]]
    skipped = sum(row["roundelay"] == "skipped" for row in rows)
    print(f"{len(rows) - len(bad) - skipped} passed, {len(bad)} failed, {skipped} skipped")
    return 1 if bad else 0


def table(version: str, face: str, rows: list[dict[str, Any]]) -> str:
    """Return the rows as a Markdown table."""
    lines = [f"\ntorch {version}, {face} face, {RANKS} ranks\n", "| program | version | Gloo | roundelay | reason |", "|---|---|---|---|---|"]
    for row in rows:
        lines.append(f"| {row['program']} | {row['version']} | {row['gloo']} | {row['roundelay']} | {row['reason']} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
