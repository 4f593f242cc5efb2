"""All rules of a job, including those about rewrites and the division of layers.

Answers: can this job be predicted, and if not, what is wrong with it; which plans are possible?
Elsewhere: all other rules (spec/rules*.py), how rules are applied (spec/checks.py). The names of rewrites,
and of ways to divide layers, are checked here and not in spec/, so that a new rewrite needs one file and
one line.
"""

import numpy as np

from flopcast.errors import Problem
from flopcast.fixes import set_to
from flopcast.spec.checks import Case, Rule, broken, first, kept, still_open
from flopcast.spec.job import Job
from flopcast.spec.layer_strategies import layers_word
from flopcast.spec.orders import uneven
from flopcast.spec.plan import Plan
from flopcast.spec.rules import RULES as RULES_OF_NOUNS
from flopcast.spec.rules_adapters import RULES as RULES_OF_ADAPTERS
from flopcast.spec.rules_batch import RULES as RULES_OF_BATCHES
from flopcast.spec.rules_context import RULES as RULES_OF_CONTEXT
from flopcast.spec.rules_encoder import RULES as RULES_OF_ENCODERS
from flopcast.spec.rules_experts import RULES as RULES_OF_EXPERTS
from flopcast.spec.rules_forward import RULES as RULES_OF_FORWARD_PASSES
from flopcast.spec.rules_layers import RULES as RULES_OF_LAYERS
from flopcast.spec.rules_node_groups import RULES as RULES_OF_NODE_GROUPS
from flopcast.spec.rules_offload import RULES as RULES_OF_OFFLOAD
from flopcast.spec.rules_operations import RULES as RULES_OF_OPERATIONS
from flopcast.spec.rules_optimizer import RULES as RULES_OF_OPTIMIZERS
from flopcast.spec.rules_outer import RULES as RULES_OF_OUTER_ROUNDS
from flopcast.spec.rules_precision import RULES as RULES_OF_PRECISION
from flopcast.spec.rules_recompute import RULES as RULES_OF_RECOMPUTE
from flopcast.spec.rules_schedule import RULES as RULES_OF_SCHEDULES
from flopcast.spec.rules_shard_groups import RULES as RULES_OF_SHARD_GROUPS
from flopcast.spec.rules_sharding import RULES as RULES_OF_SHARDS
from flopcast.spec.rules_shared_graphs import RULES as RULES_OF_SHARED_GRAPHS
from flopcast.spec.rules_size import RULES as RULES_OF_SIZES
from flopcast.spec.rules_speeds import RULES as RULES_OF_SPEEDS
from flopcast.spec.rules_stack import RULES as RULES_OF_STACKS
from flopcast.spec.rules_stages import RULES as RULES_OF_STAGES
from flopcast.spec.rules_storage import RULES as RULES_OF_STORAGE
from flopcast.spec.rules_traced import RULES as RULES_OF_TRACED
from flopcast.spec.rules_tuning import RULES as RULES_OF_TUNING
from flopcast.spec.rules_vision import RULES as RULES_OF_VISION
from flopcast.spec.shared_sequences import plans_of
from flopcast.strict_model import cached_results
from flopcast.workload.layouts import layouts_of
from flopcast.workload.rewrites import REWRITES
from flopcast.workload.stages import leaves_no_stage_empty


def _unknown(case: Case) -> str:
    """Return faults of rewrites that the stack names and flopcast does not have."""
    return ", ".join(name or "''" for name in case.stack.rewrites if name not in REWRITES)


def _layers(case: Case) -> tuple[int, ...]:
    """Return how many equal layers are consecutive, over the whole model without a vision tower."""
    embedding, *rest = (count for _, count in case.model.runs())
    return embedding, *rest[case.model.first_block - 1 :]


def _filled(case: Case, stages: int) -> bool:
    """Return whether the stack's rule gives each of this many stages a layer."""
    return leaves_no_stage_empty(_layers(case), stages, case.stack.pipeline)


def _every_stage_filled(case: Case) -> np.ndarray:
    """Return a mask of plans whose stages all hold a layer, (plans, 1).

    Equal chunks always do: where blocks do not divide into them, another rule says so. So do chunks
    that the plan lists.
    """
    degrees = case.plans.pipeline_parallel
    if case.stack.pipeline.partition == "even" or case.plans.structure.stage_layers:
        return np.ones(degrees.shape, dtype=bool)
    distinct, code = np.unique(degrees, return_inverse=True)
    filled = np.array([_filled(case, int(stages)) for stages in distinct])[code.reshape(degrees.shape)]
    return np.asarray(filled | uneven(case.plans))


def _most_filled(case: Case) -> int:
    """Return the largest number of stages, below that of the first plan, that all hold a layer."""
    most = min(first(case.plans.pipeline_parallel) - 1, sum(_layers(case)))
    return next(stages for stages in range(most, 0, -1) if _filled(case, stages))


RULES: tuple[Rule, ...] = (
    *RULES_OF_NOUNS,
    *RULES_OF_BATCHES,
    *RULES_OF_ENCODERS,
    *RULES_OF_CONTEXT,
    *RULES_OF_EXPERTS,
    *RULES_OF_ADAPTERS,
    *RULES_OF_RECOMPUTE,
    *RULES_OF_OFFLOAD,
    *RULES_OF_STORAGE,
    *RULES_OF_OPERATIONS,
    *RULES_OF_SPEEDS,
    *RULES_OF_NODE_GROUPS,
    *RULES_OF_OPTIMIZERS,
    *RULES_OF_OUTER_ROUNDS,
    *RULES_OF_PRECISION,
    *RULES_OF_SCHEDULES,
    *RULES_OF_SHARDS,
    *RULES_OF_SHARD_GROUPS,
    *RULES_OF_SIZES,
    *RULES_OF_STACKS,
    *RULES_OF_STAGES,
    *RULES_OF_TRACED,
    *RULES_OF_FORWARD_PASSES,
    *RULES_OF_TUNING,
    *RULES_OF_LAYERS,
    *RULES_OF_VISION,
    *RULES_OF_SHARED_GRAPHS,
    Rule(
        field="plan.pipeline_parallel",
        holds=_every_stage_filled,
        allowed=lambda c: (
            f"a number of stages, such as {_most_filled(c)}, for which this stack gives every stage at"
            " least one layer"
        ),
        because="every stage needs at least one layer with weights",
        fix=lambda c: {"pipeline_parallel": _most_filled(c)},
    ),
    Rule(
        field="model.mtp",
        holds=lambda c: c.model.mtp == 0 or c.stack.pipeline.partition == "even",
        allowed="0 on this stack",
        because="multi-token prediction needs a stack that divides the blocks evenly over the stages",
        fix=({"mtp": 0}, "choose another stack, such as megatron-core"),
    ),
    Rule(
        field="stack.rewrites",
        holds=lambda case: not _unknown(case),
        value=_unknown,
        allowed=lambda _: ", ".join(REWRITES),
        because="flopcast knows only these changes of kernels",
        fix=lambda case: " or ".join(
            (
                *(f"write {name}" for name in REWRITES if name.startswith(_unknown(case))),
                f"remove {_unknown(case)}",
            )
        ),
    ),
)


OF_STEPS = tuple(rule for rule in RULES if rule.about_steps or rule.about_lists)
OF_PROGRAMS = tuple(rule for rule in RULES if not (rule.about_steps or rule.about_lists))


@cached_results(1024, "checkpoint")  # advice tries the same edits of a plan in several orders
def check(job: Job) -> tuple[Problem, ...]:
    """Return every rule that the job breaks; empty if it can be predicted.

    If its blocks have strategies, the rules of a plan apply to each layout of blocks.
    """
    own = broken(job, OF_STEPS if _has_right_programs(_of_any_batch(job)) else RULES)
    if own or not job.plan.layers:
        return own
    layouts = (job.model_copy(update={"plan": layout}) for layout in layouts_of(job.plan)[1:])
    found = ((layout.plan, one) for layout in layouts for one in broken(layout, RULES))
    return tuple(_of_layout(job, plan, one) for plan, one in found)


def _of_any_batch(job: Job) -> Job:
    """Return a job that is equal for plans that differ only in their global batch."""
    return job.with_part("plan", global_batch=1)


@cached_results(1024, "checkpoint")
def _has_right_programs(job: Job) -> bool:
    """Return whether a job keeps the rules that read neither the global batch nor lists."""
    structure = plans_of(job.plan, job.batch).structure
    return not broken(job, _open_rules(job.model_copy(update={"plan": structure})))


@cached_results(1024, "checkpoint")
def _open_rules(job: Job) -> tuple[Rule, ...]:
    """Return the rules of programs that depend on the numbers of a plan, given one with its structure."""
    return still_open(job, OF_PROGRAMS)


def _of_layout(job: Job, layout: Plan, problem: Problem) -> Problem:
    """Return a broken rule of a layout as a fault of the strategies."""
    because = f"{problem.because} ({problem.field} = {problem.value} in the layout {layout.short()})"
    allowed = f"strategies in which {problem.field} is allowed: {problem.allowed}"
    fix = set_to(layers="none")
    return Problem("plan.layers", layers_word(job.plan.layers), allowed, because, fix)


def valid(case: Case) -> np.ndarray:
    """Return a mask of shape (plans, 1): plans that keep every rule."""
    return kept(case, RULES)
