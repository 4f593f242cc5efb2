"""Adapters in slots of device memory: a cache, which loads missing adapters from the host.

Answers: can a request begin, and does its adapter have to be loaded first?
Elsewhere: when requests are admitted (scheduler.py), bytes of an adapter (adapters.py).

Adapters of running requests are never evicted. If a slot is needed, the idle adapter that was used least
recently is evicted.
"""

from collections import OrderedDict

from flopcast.dtypes import Integers

NONE = -1  # the adapter of a request without one


class AdapterCache:
    """The adapter slots of one engine.

    Parameters
    ----------
    adapter_ids : array of shape (requests,)
        The adapter of each request; NONE if it has none.
    slots : int

    Examples
    --------
    >>> import numpy as np
    >>> cache = AdapterCache(np.array([0, 1, 0]), slots=1)
    >>> cache.has_room(0), cache.begin(0), cache.has_room(1), cache.has_room(2), cache.begin(2)
    (True, True, False, True, False)
    """

    def __init__(self, adapter_ids: Integers, slots: int) -> None:
        self._adapters: list[int] = adapter_ids.tolist()
        self._slots = slots
        self._users: dict[int, int] = {}  # running requests of each adapter that has some
        self._idle: OrderedDict[int, None] = OrderedDict()  # loaded and unused, the least recent first
        self.loads: int = 0

    def has_room(self, request: int) -> bool:
        """Return whether the adapter of a request is loaded, or may take a slot."""
        adapter = self._adapters[request]
        return adapter == NONE or adapter in self._users or len(self._users) < self._slots

    def begin(self, request: int) -> bool:
        """Reserve the adapter of a request, and return whether it has to be loaded.

        A request without an adapter (`NONE`) never loads one. An adapter that is still in a slot, whether
        other running requests use it or not, costs nothing. Otherwise, the adapter takes a slot. If no slot
        is free, the idle adapter that was used least recently is evicted. The caller ensures that a slot is
        free or idle (`EngineBatch.has_slot`), because adapters in use are never evicted.
        """
        adapter = self._adapters[request]
        if adapter == NONE:
            return False
        if adapter in self._users:
            self._users[adapter] += 1
            return False
        self._users[adapter] = 1
        if adapter in self._idle:
            del self._idle[adapter]
            return False
        while len(self._users) + len(self._idle) > self._slots:
            self._idle.popitem(last=False)
        self.loads += 1
        return True

    def end(self, request: int) -> None:
        """Record that a request has ended or was preempted.

        Its adapter stays in its slot. If no other running request uses it, it becomes the idle adapter that
        is evicted last.
        """
        adapter = self._adapters[request]
        if adapter == NONE:
            return
        self._users[adapter] -= 1
        if not self._users[adapter]:
            del self._users[adapter]
            self._idle[adapter] = None
