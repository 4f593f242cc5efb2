"""The input of a search: jobs, a space of plans, objectives, limits.

Answers: which of these can be combined, and which errors can they have?
Elsewhere: the space (space.py), objectives (objectives.py), the answer (find.py).
"""

from collections.abc import Iterator, Sequence

from flopcast.errors import Problem, SpecError
from flopcast.fixes import in_place
from flopcast.records import Record, field
from flopcast.search.equal_parts import of_parts
from flopcast.search.objectives import OBJECTIVES, Objective
from flopcast.search.screen import of_lists
from flopcast.search.space import Space
from flopcast.search.usual_training import batch_assumed, precision_assumed, usual_batch
from flopcast.spec.job import Job
from flopcast.units import Number


class Limit(Record):
    """An upper limit for a plan, in the unit of an objective's loss."""

    name: str
    objective: Objective
    most: Number


class Question(Record):
    """The settings of one search.

    Attributes
    ----------
    jobs : tuple of Job
        One job for each cluster and stack. The jobs are equal in all else. Their plans give the fields that
        the space omits.
    space : Space
        The allowed values of the fields of a plan, for each job.
    objectives : tuple of str
        Names of `OBJECTIVES`: the first one ranks plans, and all of them form the front. With a single
        objective, memory is added for the front.
    given : tuple of Job
        Jobs with plans to compare with the best, such as the plans in use today.
    total_tokens : float
        Tokens of the whole run; 0 if its duration does not matter.
    deadline_s, budget_usd : float or None
        The largest duration and the largest cost of the run.
    evolve : bool
        Whether evolution chooses the plans of the space that are estimated (evolved_plans.py). Otherwise,
        all plans are estimated.

    Raises
    ------
    SpecError
        The error lists every fault of the question.
    """

    jobs: tuple[Job, ...]
    space: Space = field(default_factory=Space)
    objectives: tuple[str, ...] = ("step_time",)
    given: tuple[Job, ...] = ()
    total_tokens: float = 0.0
    deadline_s: float | None = None
    budget_usd: float | None = None
    evolve: bool = False

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        problems = tuple(_faults(self))
        if problems:
            raise SpecError(problems)

    @property
    def named(self) -> tuple[Objective, ...]:
        """Return the objectives that the user names."""
        return tuple(OBJECTIVES[name] for name in dict.fromkeys(self.objectives))

    @property
    def asked(self) -> tuple[Objective, ...]:
        """Return the objectives of the front. Memory is added to a single objective."""
        names = self.objectives if len(self.objectives) > 1 else (*self.objectives, "memory")
        return tuple(OBJECTIVES[name] for name in dict.fromkeys(names))

    @property
    def first(self) -> Objective:
        """Return the first objective, by which plans are ranked."""
        return self.asked[0]

    @property
    def limits(self) -> tuple[Limit, ...]:
        """Return the limits that every plan must keep besides memory."""
        asked = (("deadline", "time_to_train", self.deadline_s), ("budget", "run_cost", self.budget_usd))
        return tuple(
            Limit(name=name, objective=OBJECTIVES[objective], most=most)
            for name, objective, most in asked
            if most is not None
        )

    def sized(self) -> Iterator[Job]:
        """Yield the jobs on clusters of every size."""
        for job in self.jobs:
            yield from self.space.jobs(job)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Return the assumptions of a search, each text once.

        These are the assumptions of the jobs, the usual global batch (one text for each number of devices
        if they differ), and the precision. Reports print them, so that a reader can set any of them.
        """
        texts, sized = [text for job in self.jobs for text in job.assumptions], tuple(self.sized())
        if not self.space.global_batch:
            batches = [batch_assumed(job, usual_batch(job, self.space.micro_batch)) for job in sized]
            several = len(set(batches)) > 1
            texts += [
                f"{text} on {job.cluster.num_devices} devices" if several else text
                for text, job in zip(batches, sized, strict=True)
            ]
        if not self.space.precision:
            texts += [precision_assumed(job, job.cluster.node.device.dtype_of_16_bits) for job in sized]
        return tuple(dict.fromkeys(texts))


def _faults(question: Question) -> Iterator[Problem]:
    if not question.jobs:
        yield _missing("jobs", "at least one job", "a search needs a job", "give a job")
    for name in question.objectives:
        if name not in OBJECTIVES:
            yield _unknown(name, question.objectives)
    if not question.objectives:
        because = "a search ranks plans by an objective"
        yield _missing("objectives", ", ".join(OBJECTIVES), because, "name one")
    known = [name for name in question.objectives if name in OBJECTIVES]
    yield from _of_needs(question, known)
    for job in question.jobs:
        if job.batch.listed:
            yield of_lists(job)
        if (unequal := of_parts(job)) is not None:
            yield unequal
    if any(OBJECTIVES[name].per_step for name in known):
        yield from _of_batches(question)


def _of_needs(question: Question, known: Sequence[str]) -> Iterator[Problem]:
    """Yield faults of missing values that objectives and limits need: tokens, prices, powers."""
    if question.total_tokens < 0:
        yield Problem(
            "tokens", question.total_tokens, "above 0", "tokens is the length of the run", "write 2e12"
        )
    limits = question.limits
    for limit in limits:
        if limit.most <= 0:
            yield Problem(
                limit.name, limit.most, "above 0", "every run takes time and costs money", "raise it"
            )
    asked = [(f"a {limit.name}", limit.objective) for limit in limits]
    asked += [(f"the objective {name}", OBJECTIVES[name]) for name in dict.fromkeys(known)]
    who = {
        need: [name for name, one in asked if need in one.needs] for need in ("tokens", "price", "power")
    }
    if who["tokens"] and not question.total_tokens:
        allowed, fix = "the number of tokens to train on", "add --tokens 2e12, or --samples"
        yield _missing("tokens", allowed, f"{_need(who['tokens'])} the number of tokens of the run", fix)
    for job in question.jobs:
        cluster, device = job.cluster, job.cluster.node.device
        if who["price"] and cluster.price is None:
            allowed = f"a price for the devices of {cluster.name}"
            because = f"{_need(who['price'])} a price, and the catalogue has no price for {device.name}"
            yield _missing("cluster.price", allowed, because, "add --price '2.10 USD/h'")
        if who["power"] and device.board_power_w is None:
            allowed, because = f"the board power of {device.name}", f"{_need(who['power'])} it"
            fix = "add board_power_w to the description of the device"
            yield _missing("device.board_power_w", allowed, because, fix)


def _need(names: Sequence[str]) -> str:
    """Return the start of a sentence on what limits and objectives need: "a budget needs"."""
    return f"{' and '.join(names)} {'needs' if len(names) == 1 else 'need'}"


def _missing(field: str, allowed: str, because: str, fix: str) -> Problem:
    """Return the fault of leaving out a value."""
    return Problem(field, None, allowed, because, fix, fault="is missing")


def _of_batches(question: Question) -> Iterator[Problem]:
    """Yield the fault of comparing step times of different batches."""
    batches = set(question.space.global_batch)
    if not batches:
        try:
            batches = {usual_batch(job, question.space.micro_batch) for job in question.sized()}
        except SpecError as error:
            yield from error.problems
    if len(batches) > 1:
        because = (
            f"step times of different global batches ({min(batches)} to {max(batches)} sequences) cannot "
            "be compared"
        )
        fix = "use tokens_per_s, or set one global batch"
        yield Problem("objective", "step_time", "tokens_per_s if global batches differ", because, fix)


OTHER_NAMES = {
    "speed": "step_time",
    "fast": "step_time",
    "throughput": "tokens_per_s",
    "mfu": "tokens_per_s_per_device",
    "cheapest": "cost",
    "price": "cost",
    "dollar": "cost",
    "usd": "cost",
    "money": "cost",
    "duration": "time_to_train",
    "watt": "energy",
    "kwh": "energy",
}


def _unknown(name: str, objectives: Sequence[str]) -> Problem:
    """Return the fault of an unknown objective, which suggests a similar one."""
    import difflib

    near = difflib.get_close_matches(name, OBJECTIVES, n=1)
    allowed, because = ", ".join(OBJECTIVES), "flopcast does not rank plans by other objectives"
    same = (objective for other, objective in OTHER_NAMES.items() if other in name)
    right = near[0] if near else next(same, "")
    fix: str = in_place(right or "step_time", name)
    if not right and any(each in OBJECTIVES for each in objectives):
        fix = f"remove {name}"
    return Problem("objective", name, allowed, because, fix)
