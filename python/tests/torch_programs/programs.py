"""One rank that runs the examples, under one backend after the other, in one process."""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import sys
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[3] / "examples" / "torch"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem != "job")
BACKENDS = ("gloo", "roundelay")


def main() -> None:
    rank, ranks, folder, seconds = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4])
    faulthandler.dump_traceback_later(seconds, exit=True)
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import FileStore

    import roundelay.torch

    torch.set_num_threads(1)
    roundelay.torch.register()
    sys.path.insert(0, str(EXAMPLES))
    modules = {name: importlib.import_module(name) for name in NAMES}
    results: dict[str, dict[str, Any]] = {backend: {} for backend in BACKENDS}
    for name, module in modules.items():
        for backend in BACKENDS:
            print(name, backend, flush=True)
            # A store and a group for each: what one program breaks must not break the next.
            store = FileStore(f"{folder}/store-{name}-{backend}", ranks)
            dist.init_process_group(
                backend, store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=20)
            )
            try:
                results[backend][name] = module.run()
            except Exception:
                results[backend][name] = traceback.format_exc()
                traceback.print_exc()
            dist.destroy_process_group()
    (folder / f"result{rank}").write_text(json.dumps(results))
    sys.stdout.flush()
    # Nothing of a program that failed holds the end.
    os._exit(0)


if __name__ == "__main__":
    main()
