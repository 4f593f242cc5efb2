"""The remaining time of a search or a sweep.

Answers: how long will the remaining work take, given the progress so far?
Elsewhere: how this is shown (cli/progress.py, ui/live_search.py).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flopcast.search.find import Progress

SCREENING, REFINING, PLAYING = "screening", "refining", "simulating"
FIRST_LOOK = "trying typical plans first, then all {:,} plans"  # shown while nothing is screened
BEHIND_RATIO = 11.0
"""Processor time of all work after screening, divided by the processor time of the first look at one
setting. Both compute the parts of the same model on the same cluster, and the number of parts hardly
depends on the space. Searches for GPT-3 175B on 256 A100, Llama 3 8B on 64 H100, Llama 3 70B on 512 H100
and Mixtral 8x7B on 256 H100 had ratios from 7 to 15.
"""
SHARED_RATIO = 0.2  # of the first look: layers and prices, which every worker works out again
MORE_PER_SETTING = 0.4  # of it for each further setting, whose best plans are simulated too
REFINED, PLAYED = 40, 125  # plans that a search usually refines, and simulates at first
MORE_PLAYED = 1.25  # over the number simulated at first: variants of the best follow
REFINE_RATIO = 2.0  # processor time of refining a plan, over that of simulating one


def left_text(left_s: float) -> str:
    """Return the remaining time as text for a progress line.

    >>> left_text(0.4), left_text(38.2), left_text(200.0)
    (', about 1 s left', ', about 38 s left', ', about 3 min left')
    """
    if left_s < 120.0:
        return f", about {max(1.0, left_s):.0f} s left"
    return f", about {left_s / 60:.0f} min left"


def left(since_s: float, done: int, kept: int, total: int) -> str:
    """Return the remaining time at the present rate, or "" if this process has done nothing yet.

    `done` is the number of finished parts, and `kept` the number of those that were finished before this
    start.

    >>> left(10.0, 600, 500, 1000), left(10.0, 500, 500, 1000)
    (', about 40 s left', '')
    """
    return left_text(since_s * (total - done) / (done - kept)) if done > kept else ""


class SearchTime:
    """The remaining time of a search: screening at its present rate, then refining and simulating.

    Until the rate of the second part is known, its duration is estimated from the first look at the space.
    Other programs may use the processor; the workers' share of it is measured during screening.
    """

    def __init__(self, workers: int = 1, settings: int = 1) -> None:
        """Start with the number of processes, and of settings that the question names."""
        self._workers, self._settings = workers, settings
        self._first_look_s, self._first_look_processor_s = 0.0, 0.0  # until it ended; of one setting
        self._behind_s, self._all_behind_s = 0.0, 0.0  # start of the second part; estimate of its length
        self._slowed_ratio = 1.0  # time of the workers over their processor time
        self._chunks, self._first_played = 0, 0  # screened; simulated before the variants are known
        self._seen: dict[str, Progress] = {}

    def left_s(self, progress: "Progress", now_s: float, processor_s: float) -> float | None:
        """Return the remaining seconds, or None as long as nothing is screened.

        Parameters
        ----------
        now_s : seconds since the start of the search
        processor_s : processor seconds of this process since then
        """
        first = not self._seen or (progress.doing == SCREENING and not progress.done)
        self._seen[progress.doing] = progress
        if first:
            self._first_look_s = now_s
            several = 1.0 + MORE_PER_SETTING * (self._settings - 1)
            self._first_look_processor_s = processor_s / self._settings
            self._all_behind_s = BEHIND_RATIO * several * self._first_look_processor_s / self._workers
            return None
        if progress.doing != SCREENING:
            self._behind_s = self._behind_s or now_s
            return self._left_behind_s(now_s - self._behind_s)
        self._behind_s = now_s
        return self._left_screening_s(progress, now_s - self._first_look_s)

    def _left_screening_s(self, progress: "Progress", since_s: float) -> float | None:
        """Return the seconds left, this long after screening began.

        Every worker but the one that has just finished is in the middle of a chunk. At first, each of them
        works out again much of what the first look found.
        """
        done = progress.done - progress.kept
        if not done:
            return None
        self._chunks += 1
        begun = done * (1.0 + 0.5 * (self._workers - 1) / self._chunks)
        if progress.processor_s:
            self._slowed_ratio = max(1.0, since_s * self._workers * done / begun / progress.processor_s)
        again_s = SHARED_RATIO * self._first_look_processor_s * self._slowed_ratio
        at_work_s = max(0.5 * since_s, since_s - again_s)
        rest_s = at_work_s * max(0.0, progress.total - progress.kept - begun) / begun
        return rest_s + self._all_behind_s * self._slowed_ratio

    def _left_behind_s(self, since_s: float) -> float:
        """Return the seconds left, this long after screening ended."""
        done, total = 0.0, 0.0
        for doing, weight, usual in ((REFINING, REFINE_RATIO, REFINED), (PLAYING, 1.0, PLAYED)):
            progress = self._seen.get(doing)
            done += weight * (progress.done - progress.kept) if progress else 0.0
            total += weight * (progress.total - progress.kept if progress else usual)
        played = self._seen.get(PLAYING)
        self._first_played = self._first_played or (played.total if played else 0)
        if played is None or played.total == self._first_played:
            total += (MORE_PLAYED - 1.0) * (self._first_played or PLAYED)
        share = min(1.0, done / total) if total > 0 else 1.0
        at_its_rate_s = since_s * (1.0 - share) / share if share else 0.0
        return (
            share * at_its_rate_s + (1.0 - share) * (1.0 - share) * self._all_behind_s * self._slowed_ratio
        )
