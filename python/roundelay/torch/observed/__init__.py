"""Observation of process groups and communicators of any backend: what ``roundelay.observe`` does.

Files in reading order:

``_entries``     the entry of a call, as it is kept, and its description and signature, which are computed later
``_tracks``      the entries of one kind of a group: collectives, or messages
``_observer``    the observer of a group: records calls, waits for works, and raises the error of a verdict
``_exchange``    what the observers of a group tell each other through its store
``_diagnosis``   who is at fault, a pure function of the reports of the ranks
``_process``     what this process and those beside it on the host do
``_watch``       the thread of a process that looks at its observers
``_flights``     flight records that ``roundelay doctor`` reads
``_group``       a process group that stands in for another one and observes its calls
``_comm``        the hooks of a communicator of torchcomms

Calls are counted by the ranks, from the call of ``observe`` on, which is collective. A call appends one entry, and its
end takes the time; everything else is done by the thread, when a call is overdue, and once in an interval.
"""

from __future__ import annotations

from ._attach import observe, observer_of
from ._diagnosis import RankVerdict
from ._group import ObservedGroup
from ._observer import GroupObserver

__all__ = ["GroupObserver", "ObservedGroup", "RankVerdict", "observe", "observer_of"]
