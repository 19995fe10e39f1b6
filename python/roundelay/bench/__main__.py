"""``python -m roundelay.bench``: backends of ``torch.distributed`` side by side."""

from __future__ import annotations

import sys

from roundelay.bench import main

if __name__ == "__main__":
    sys.exit(main())
