"""Runs a function of a module as the ranks of a job, in processes of their own."""

from __future__ import annotations

import faulthandler
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from place import search_path

HERE = Path(__file__).resolve().parent

ENTRY_POINTS = """[torch.backends]
roundelay = roundelay.torch:autoload

[torch.distributed.backends]
roundelay = roundelay.torch:register
"""


def installed(folder: str) -> str:
    """Return a search path on which the package is as if it were installed, entry points included."""
    meta = Path(folder) / "roundelay-0.1.0.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: roundelay\nVersion: 0.1.0\n")
    (meta / "entry_points.txt").write_text(ENTRY_POINTS)
    return search_path(folder)


def run(
    module: str, function: str, ranks: int, backend: str = "roundelay", seconds: float = 120, **environment: str
) -> list[Any]:
    """Return what ``function(rank)`` of a module returns on each rank, as JSON passes it.

    A rank that was killed on purpose returns None. Raises AssertionError with the output of a rank that fails; no
    process outlives the call.
    """
    with tempfile.TemporaryDirectory() as folder:
        processes = []
        for rank in range(ranks):
            variables = dict(
                os.environ,
                PYTHONPATH=installed(folder) if rank == 0 else search_path(folder),
                OMP_NUM_THREADS="1",
                ROUNDELAY_TEST_JOB=json.dumps(
                    dict(
                        module=module,
                        function=function,
                        rank=rank,
                        ranks=ranks,
                        backend=backend,
                        folder=folder,
                        seconds=seconds,
                    )
                ),
                **environment,
            )
            with open(f"{folder}/log{rank}", "w") as log:
                processes.append(
                    subprocess.Popen([sys.executable, __file__], env=variables, stdout=log, stderr=subprocess.STDOUT)
                )
        try:
            for process in processes:
                process.wait(seconds)
        except subprocess.TimeoutExpired:
            texts = [Path(f"{folder}/log{rank}").read_text() for rank in range(ranks)]
            raise AssertionError(f"{function} has not ended in {seconds} s\n" + "\n----\n".join(texts)) from None
        finally:
            for process in processes:
                process.kill()
                process.wait()
        results = []
        for rank, process in enumerate(processes):
            if process.returncode == -9:
                results.append(None)
                continue
            if process.returncode != 0:
                text = Path(f"{folder}/log{rank}").read_text()
                raise AssertionError(f"{function}: rank {rank} ended with {process.returncode}\n{text}")
            results.append(json.loads(Path(f"{folder}/result{rank}").read_text()))
        return results


def main() -> None:
    job = json.loads(os.environ["ROUNDELAY_TEST_JOB"])
    from datetime import timedelta

    import torch.distributed as dist

    sys.path.insert(0, str(HERE))
    spec = importlib.util.spec_from_file_location(job["module"], HERE / f"{job['module']}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[job["module"]] = module
    spec.loader.exec_module(module)
    # What every thread does, shortly before the deadline.
    faulthandler.dump_traceback_later(max(job["seconds"] - 10, 1))
    store = dist.FileStore(f"{job['folder']}/store", job["ranks"])
    dist.init_process_group(
        job["backend"], store=store, rank=job["rank"], world_size=job["ranks"], timeout=timedelta(seconds=30)
    )
    result = getattr(module, job["function"])(job["rank"])
    if dist.is_initialized():
        dist.destroy_process_group()
    Path(f"{job['folder']}/result{job['rank']}").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
