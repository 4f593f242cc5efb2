"""How often this process looks for garbage.

Answers: when does a process of ours go through its objects to find cycles that nothing refers to?
"""

import gc

LEAST_OBJECTS = 150_000  # a prediction makes 100,000, almost all of which live until its end


def collect_rarely() -> None:
    """Look for garbage less often than usual; before modules load, this saves 40 ms."""
    gc.set_threshold(LEAST_OBJECTS)


def keep_all() -> None:
    """Never look again at the objects that exist now, such as modules; all of them live until the end."""
    gc.freeze()
