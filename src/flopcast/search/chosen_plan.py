"""The plan that flopcast chooses for a job without a plan, and the sentences of a report about this choice.

Answers: how good is the chosen plan, compared with the next best plan and with plans that may not fit?
Elsewhere: the choice itself (default_plan.py).
"""

from collections.abc import Collection

from flopcast.cost.between_plans import TIED_RATIO
from flopcast.records import Record
from flopcast.spec.plan import Plan
from flopcast.spec.plan_fields import short_name

FASTER_PLAN = 'plan "'  # begins the sentence about a faster plan that may not fit
NO_TIGHT_PLANS = (
    "flopcast did not consider plans that may not fit (the upper end of the 90 % interval of memory exceeds"
    " the memory of the device); a search with headroom 1 also considers them"
)


class FasterTight(Record):
    """A plan that may not fit, its step time divided by that of the chosen plan, and its memory as text."""

    plan: Plan
    ratio: float
    need: str

    def sentence(self) -> str:
        """Return the sentence that offers the plan, for the assumptions of a report."""
        return (
            f'{FASTER_PLAN}{self.plan.short()}" would be {1 - self.ratio:.1%} faster, but may not fit:'
            f" {self.need}; check with a short test run"
        )


class ChosenPlan(Record):
    """The chosen plan, the number of plans that it was chosen from, and the next best plan.

    `possible` plans keep every rule and `fitting` of them fit. If none fits, `fitting` counts tight plans
    and `tight` is true. `tied` of the simulated plans are tied with the fastest (rank.py), and `plan` is
    the simplest of these. `next_best` is the fastest plan or, if that is `plan`, the next plan that is not
    a variant of `plan`. `next_ratio` is the step time of `next_best` divided by that of `plan`. If only one
    plan was simulated, `next_best` is None. `num_variants` plans were derived from the fitting ones and
    simulated too. `faster_tight` is a plan that was left out, because it may not fit.
    """

    plan: Plan
    possible: int
    fitting: int
    tight: bool
    tied: int = 1
    next_best: Plan | None
    next_ratio: float
    num_variants: int = 0
    faster_tight: FasterTight | None = None

    def sentence(self, fixed: Collection[str] = ()) -> str:
        """Return one sentence for the assumptions of a report. It states that not every plan was compared.

        Parameters
        ----------
        fixed : collection of str
            Fields of the plan that were given, by long name; the sentence lists the others.
        """
        own = {short_name(name, Plan.model_fields[name]) for name in fixed} | set(fixed)
        words = self.plan.short().split()
        filled = " ".join(word for word in words if word.partition("=")[0] not in own)
        start = f"plan completed with {filled}" if fixed and filled else "plan chosen automatically"
        fit = "only just fit" if self.tight else "fit"
        tried = f"{self.possible} typical plan{'s' * (self.possible != 1)} ({self.fitting} {fit})"
        if self.num_variants:
            several = "s" * (self.num_variants > 1)
            tried += f" and {self.num_variants} variant{several}"
            tried += " with layers divided differently or with less recompute"
        if self.next_best is None or self.next_ratio >= 1:
            text = f"{start}: the fastest of {tried}"
        else:
            near = f"plans within {TIED_RATIO - 1:.0%} of the fastest"
            text = f"{start}: the simplest of {self.tied} {near}; flopcast tried {tried}"
        if self.next_best is not None:
            text += f". {self._next()}"
        if self.tight:
            return f"{text}. flopcast search compares more plans"
        return f"{text}. {NO_TIGHT_PLANS}"

    def _next(self) -> str:
        """Return how far the next best plan is behind, or the fastest plan ahead."""
        if self.next_best is None:
            return ""
        ahead, off = self.next_ratio < 1, abs(self.next_ratio - 1)
        gap = f"{off:.1%}" if off >= 0.0005 else "less than 0.1%"
        name = f"{'fastest' if ahead else 'next best'} plan, {self.next_best.short()},"
        return f"The {name} is {gap} {'faster' if ahead else 'slower'}"
