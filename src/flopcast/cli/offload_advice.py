"""What a command says about offload where a job does not fit its devices.

Answers: which placement does a command propose, as text and as JSON?
Elsewhere: how it is found (search/offload_that_fits.py), a plan that flopcast chooses itself
(requests/changes_that_fit.py).
"""

from flopcast.report.memory_report import MemoryReport
from flopcast.spec.job import Job

Advice = tuple[list[str], dict[str, object]]


def offload_advice(job: Job, memory: MemoryReport) -> Advice:
    """Return the placement with which a plan fits its devices, as lines and as keys of JSON.

    Both are empty if the plan fits its devices. The value of the key is None if no placement is enough.
    """
    if memory.device_verdict != "does not fit" or job.batch.listed:
        return [], {}
    from flopcast.api import offload_that_fits

    found = offload_that_fits(job)
    if found is None:
        return [], {"offload_that_fits": None}
    return [f"{found.option} fits: {found.price}"], {"offload_that_fits": found.as_json()}
