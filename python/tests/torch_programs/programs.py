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
BACKENDS = {"gloo": ("gloo", ""), "python": ("roundelay", "0"), "compiled": ("roundelay", "1")}
"""The backends by name: what torch is asked for, and which face of ours it is."""


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
    backends = sys.argv[5].split(",")
    results: dict[str, dict[str, Any]] = {backend: {} for backend in backends}
    for name, module in modules.items():
        for backend in backends:
            print(name, backend, flush=True)
            asked, os.environ["ROUNDELAY_TORCH_COMPILED"] = BACKENDS[backend]
            # A store and a group for each: what one program breaks must not break the next.
            store = FileStore(f"{folder}/store-{name}-{backend}", ranks)
            dist.init_process_group(asked, store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=60))
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
