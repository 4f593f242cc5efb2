"""Long loops of the laboratory that report their progress.

Answers: which callback may be given to a function that processes many runs or classes?
Elsewhere: how the progress is shown, and the effect of an interrupt (cli/progress.py).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

Member = TypeVar("Member")
Watched = Callable[[Sequence[Member]], Iterable[Member]]
"""A function that yields the members of a sequence and counts them; it may end before the last one."""
