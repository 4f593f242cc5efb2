"""A search in chunks: every plan once, texts that read as what was written."""

import numpy as np
from all_cases import all_cases
from conftest import make_job

from flopcast.library.curves import load_book
from flopcast.search.chunk_text import (
    candidates_text,
    exact_text,
    question_text,
    read_candidates,
    read_exact,
    read_question,
)
from flopcast.search.chunks import chunks, played, screened
from flopcast.search.exact import groups
from flopcast.search.grid import batches, num_plans, plan_at, plans_from
from flopcast.search.question import Question
from flopcast.search.space import Space
from flopcast.search.top_candidates import TopCandidates

JOB = make_job(cluster="selene:1", stack="megatron-core", plan="dp=8 gbs=64")
SPACE = Space(gpus="4,8", gbs=64, mbs="1,2", vpp="1,2", cp=1, zero="0,1")
QUESTION = Question(
    jobs=(JOB,), space=SPACE, objectives=("tokens_per_s", "memory"), total_tokens=1e9, given=(JOB,)
)


def plans_of(sized, batch):
    return [(sized.cluster.num_devices, plan_at(batch, row)) for row in range(batch.size)]


@all_cases("number", [1, 7, 50, 10_000])
def test_chunks_hold_every_plan_once_in_the_order_of_the_space(number):
    sized, whole = tuple(QUESTION.sized()), []
    for on, batch in batches(JOB, SPACE):
        whole += plans_of(on, batch)

    found = []
    for chunk in chunks(QUESTION, number):
        job = sized[chunk.place]
        some = list(plans_from(job, SPACE, chunk.structure, chunk.first, chunk.number, rows=5))
        assert sum(batch.size for batch in some) == chunk.number <= number
        for batch in some:
            found += plans_of(job, batch)

    assert found == whole
    assert len(found) == num_plans(JOB, SPACE)


def test_a_question_reads_as_it_was_written():
    assert read_question(question_text(QUESTION)) == QUESTION


def test_sieves_of_chunks_read_as_they_were_written_and_join_to_the_whole():
    book, sized = load_book(JOB.cluster), tuple(QUESTION.sized())
    whole = joined = TopCandidates()

    for chunk in chunks(QUESTION, 1_000_000):
        job = sized[chunk.place]
        whole = whole.joined(screened(QUESTION, chunk, lambda _: book))
    for chunk in chunks(QUESTION, 9):
        job = sized[chunk.place]
        candidates_kept = screened(QUESTION, chunk, lambda _: book)
        assert read_candidates(candidates_text(candidates_kept), job) == candidates_kept
        joined = joined.joined(candidates_kept)

    assert joined == whole
    assert whole.candidates == num_plans(JOB, SPACE)
    assert len({one.order for one in whole.best}) == len(whole.best) > 9


def test_played_plans_read_as_they_were_written():
    book, sized = load_book(JOB.cluster), tuple(QUESTION.sized())
    candidates_kept = screened(QUESTION, chunks(QUESTION, 30)[0], lambda _: book)
    jobs = [one.job for one in candidates_kept.to_play()]

    for members in groups(jobs)[:2]:
        some = [jobs[place] for place in members]
        exact = played(some, lambda _: book)
        again = read_exact(exact_text(exact), some)
        assert exact_text(again) == exact_text(exact)
        assert [one.plan for one in again] == [one.plan for one in exact]
        assert [one.factors for one in again] == [one.factors for one in exact]

    assert sorted(np.concatenate(groups(jobs)).tolist()) == list(range(len(jobs)))
    assert sized[0].cluster.num_devices == 4
