"""The short table of what `main.py` found."""

from __future__ import annotations

import json
import math
from typing import Any

NEAR = 1e-6
"""The relative difference up to which results count as the same: a sum of two ranks has one order only."""

NO_TIME = "no time left"
"""How a job ended, or begins to say how, that was not run or not ended for lack of time: its results are not wrong."""


def size_text(size: int) -> str:
    """Write a size as people read it."""
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size // factor} {unit}"
    return f"{size} B" if size else ""


def compared(ours: dict[str, Any] | None, theirs: dict[str, Any] | None, late: tuple[bool, bool] = (False, False)) -> str:
    """Say how a result compares with the reference's; `late` says whose job ran out of time, ours and the reference's."""
    if ours is None:
        return NO_TIME if late[0] else "NOT RUN"
    if ours["error"]:
        return f"FAILED: {ours['error']}"
    if theirs is None:
        return NO_TIME if late[1] else "no reference"
    if theirs["error"]:
        return "no reference"
    if not ours["result"] and not theirs["result"]:
        return "needs a GPU"
    if len(ours["result"]) != len(theirs["result"]):
        return f"WRONG: {len(ours['result'])} numbers instead of {len(theirs['result'])}"
    for place, (a, b) in enumerate(zip(ours["result"], theirs["result"], strict=True)):
        if not abs(a - b) <= NEAR * max(1.0, abs(b)):
            return f"WRONG: number {place} is {a} instead of {b}"
    return "same"


def right(run: Any, faces: list[str], ends: dict[str, str]) -> tuple[list[str], int]:
    """Return the lines about results, and how many are not as the reference's."""
    def by_case(backend: str) -> dict[str, Any]:
        return {row["case"]: row for row in run.rows(f"right-{backend}") if "case" in row}

    def late(backend: str) -> bool:
        return ends.get(f"right-{backend}", "").startswith(NO_TIME)

    theirs = by_case(run.reference)
    ours = {face: by_case(face) for face in faces}
    if not theirs and not any(ours.values()):
        return [], 0
    lines = [f"results beside {run.reference}:"]
    bad = 0
    names = list(theirs) + [name for found in ours.values() for name in found if name not in theirs]
    for name in dict.fromkeys(names):
        times = {face: (late(face), late(run.reference)) for face in faces}
        told = [f"{face} {compared(ours[face].get(name), theirs.get(name), times[face])}" for face in faces]
        bad += sum(not text.endswith(("same", "needs a GPU", NO_TIME)) for text in told)
        lines.append(f"  {name:16} " + "; ".join(told))
    return lines, bad


def table(run: Any, name: str, faces: list[str], figure: str) -> list[str]:
    """Return the lines about times: of the reference, and of each face with the ratio to it."""
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for row in run.rows(name):
        if "backend" in row:
            rows.setdefault((row["case"], row["bytes"]), {})[row["backend"]] = row
    lines: list[str] = []
    ratios: dict[str, list[float]] = {face: [] for face in faces}
    for (case, size), found in rows.items():
        base = found.get(run.reference, {}).get(figure)
        cells = []
        for backend in [run.reference, *faces]:
            row = found.get(backend, {})
            if figure not in row:
                cells.append(f"{backend} {row.get('error', '-')}")
                continue
            ratio = ""
            if backend != run.reference and base:
                ratios[backend].append(row[figure] / base)
                ratio = f" ({row[figure] / base:.2f})"
            host = f" host {row['host_us']:.1f}" if size == 8 and "host_us" in row else ""
            cells.append(f"{backend} {row[figure]:.1f}{ratio}{host}")
        lines.append(f"  {case:18} {size_text(size):8} " + ", ".join(cells))
    for face, known in ratios.items():
        if known:
            mean = math.exp(sum(map(math.log, known)) / len(known))
            slower = sum(ratio > 1 for ratio in known)
            lines.append(f"  {face}: {mean:.2f} of {run.reference}'s time in the mean, slower at {slower} of {len(known)}")
    return lines


def write(run: Any, faces: list[str], ends: dict[str, str]) -> int:
    """Print the table, and write all rows to one file; return the status of the program."""
    lines, bad = right(run, faces, ends)
    for name, title in (("calls", "us a call"), ("graphs", "us a call in a CUDA graph"), ("steps", "us a step")):
        found = table(run, name, faces, "us")
        if found:
            lines += [f"{title}, the median of the slowest rank:", *found]
    about = next((row for name in ends for row in run.rows(name) if "torch" in row), {})
    text = "\n".join(lines)
    print(text, flush=True)
    (run.folder / "table.txt").write_text(text + "\n")
    whole = {"about": about, "ends": ends, "rows": {name: run.rows(name) for name in ends}}
    (run.folder / "rows.json").write_text(json.dumps(whole, indent=1))
    late = [name for name, end in ends.items() if end.startswith(NO_TIME)]
    failed = [name for name, end in ends.items() if end != "done" and name not in late]
    print(f"{bad} results differ, {len(failed)} jobs failed{': ' if failed else ''}{', '.join(failed)}")
    if late:
        print(f"{NO_TIME} for {', '.join(late)}")
    return 3 if bad or failed or late else 0
