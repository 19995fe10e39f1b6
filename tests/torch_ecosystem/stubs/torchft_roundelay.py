"""A pytest plugin: torchft's Gloo process group is roundelay's in its tests."""

from __future__ import annotations

import torchft.process_group

from roundelay.torch.torchft import ProcessGroupRoundelay

torchft.process_group.ProcessGroupGloo = ProcessGroupRoundelay
