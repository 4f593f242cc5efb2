"""The time that is left of a search: exact where everything goes at a constant rate, near it elsewhere."""

import pytest
from all_cases import all_cases

from flopcast.search.find import Progress
from flopcast.search.time_left import BEHIND_RATIO, REFINE_RATIO, SearchTime

FIRST_LOOK_S, PLANS, REFINED, PLAYED = 2.0, 40_000, 40, 156
RUNS = {  # chunks, workers, seconds of processor time to screen, how much slower the busy machine is
    "one process": (10, 1, 30.0, 1.0),
    "several processes": (32, 4, 80.0, 1.0),
    "screening is short": (12, 2, 6.0, 1.0),
    "screening is long": (48, 2, 100.0, 1.0),
    "others use the processors too": (32, 2, 40.0, 2.5),
}


def events(chunks, workers, screening_s, slower):
    """Progress with the seconds since the start, of a search that goes at constant rates."""
    now_s, speed = FIRST_LOOK_S, workers / slower
    yield now_s, Progress(doing="screening", done=0, total=PLANS)
    for done in range(1, chunks + 1):
        now_s += screening_s / chunks / speed
        plans, spent_s = PLANS * done // chunks, screening_s * done / chunks
        yield now_s, Progress(doing="screening", done=plans, total=PLANS, processor_s=spent_s)
    unit_s = BEHIND_RATIO * FIRST_LOOK_S / (REFINED * REFINE_RATIO + PLAYED) / speed
    for done in range(1, REFINED + 1):
        now_s += unit_s * REFINE_RATIO
        yield now_s, Progress(doing="refining", done=done, total=REFINED)
    for done in range(1, PLAYED + 1):
        now_s += unit_s
        total = 125 if done <= 125 else PLAYED
        yield now_s, Progress(doing="simulating", done=done, total=total)


@all_cases("name", RUNS)
def test_after_a_fifth_of_the_time_the_rest_is_known_within_a_factor_of_one_and_a_half(name):
    chunks, workers, screening_s, slower = RUNS[name]
    search = SearchTime(workers=workers)
    heard = list(events(chunks, workers, screening_s, slower))
    end_s = heard[-1][0]

    left = [(now_s, search.left_s(one, now_s, FIRST_LOOK_S)) for now_s, one in heard]

    assert left[0][1] is None
    later = [(now_s, left_s) for now_s, left_s in left if 0.2 * end_s <= now_s <= 0.9 * end_s]
    assert len(later) > 10
    assert all((end_s - now_s) / 1.5 <= left_s <= 1.5 * (end_s - now_s) for now_s, left_s in later)
    assert left[-1][1] == pytest.approx(0.0, abs=0.05 * end_s)


def test_plans_of_an_earlier_start_say_nothing_about_the_rate():
    search = SearchTime()
    search.left_s(Progress(doing="screening", done=0, total=1000), 0.0, 0.0)

    before = search.left_s(Progress(doing="screening", done=500, total=1000, kept=500), 1.0, 0.0)
    after = search.left_s(Progress(doing="screening", done=600, total=1000, kept=500), 11.0, 0.0)

    assert before is None
    assert after == pytest.approx(11.0 * 4)
