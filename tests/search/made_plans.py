"""Played plans made up by hand, so that the right order and the right sentence are known."""

from conftest import make_job

from flopcast.economics.amount import amount_of
from flopcast.economics.step import StepCost
from flopcast.search.exact import Exact
from flopcast.search.find import SearchResult
from flopcast.search.question import Question
from flopcast.search.rank import against, losses_of, ranked
from flopcast.search.settings import CandidatesBySetting, settings_of
from flopcast.search.top_candidates import TopCandidates
from flopcast.spec.plan import Plan
from flopcast.timeline.uncertainty import Sensitivity, interval

JOB = make_job()
DEVICE_BYTES = JOB.cluster.node.device.memory_bytes


def factor(name, sigma, share=1.0):
    return Sensitivity(name=name, log_sigma_factor=sigma, share=share)


def played(step_s, *factors, used_bytes=40e9, high_bytes=None, fits=True, job=JOB, breakdown=None, **plan):
    """A plan that takes so many seconds; its words are those of a plan, on one DGX A100."""
    low_s, high_s = interval(step_s, factors)
    made = Plan(**({"dp": 8, "gbs": 16, "precision": "fp16"} | plan))
    return Exact(
        job=job.model_copy(update={"plan": made}),
        step_time_s=step_s,
        step_low_s=low_s,
        step_high_s=high_s,
        factors=tuple(factors),
        cost=StepCost(
            step_s=amount_of(step_s, factors),
            step_tokens=made.global_batch * job.batch.mean_sequence_tokens,
            num_devices=job.cluster.num_devices,
            price=None,
            price_usd_per_hour=None,
            step_usd=None,
            energy=None,
        ),
        breakdown=breakdown or {"mlp": 0.6 * step_s, "attention": 0.4 * step_s},
        device_used_bytes=used_bytes,
        expected_bytes=used_bytes if fits else max(used_bytes, 1.001 * DEVICE_BYTES),
        high_bytes=high_bytes or 1.05 * used_bytes,
    )


def found(*plans, nearest=(), question=None, **parts):
    """The answer of a search that played these plans."""
    question = question or Question(jobs=(JOB,))
    order = ranked(question, plans)
    best = order[0].losses[0] if order else losses_of(question, played(10.0))[0]
    lacking = tuple(against(best, one, losses_of(question, one)) for one in nearest)
    candidates_by_setting = CandidatesBySetting(
        each=tuple(TopCandidates(candidates=500, possible=250) for _ in question.sized())
    )
    whole = {
        "question": question,
        "candidates": 1000,
        "possible": 500,
        "in_memory": len(plans),
        "feasible": len(plans),
        "played": len(plans) + len(nearest),
        "plans": order,
        "on_front": order,
        "nearest": lacking,
        "settings": settings_of(question, candidates_by_setting, order, lacking, partial=False),
        "given": (),
        "rejected": None,
        "thinned": False,
        "partial": False,
    }
    return SearchResult(**(whole | parts))
