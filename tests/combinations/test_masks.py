"""Which plans of a batch are possible is what each is told alone, for every kind of model and mode."""

from collections import defaultdict
from itertools import product

from all_cases import all_cases
from combination_cases import MODELS, job_of, plan_of, stack

from flopcast.spec.checks import Case
from flopcast.spec.plan import batch_plans, structure_of
from flopcast.workload.checks import check, valid

GRID = {
    "tensor_parallel": (1, 2, 3),
    "context_parallel": (1, 2),
    "pipeline_parallel": (1, 2, 5),
    "virtual_stages": (1, 2),
    "expert_parallel": (1, 4),
    "expert_tensor_parallel": (1, 2),
    "data_shard": (0, 2, 3),
}
MODES = {
    "plain": {},
    "sharded": {"zero": 3},
    "heads exchanged": {"context_exchange": "all_to_all", "zero": 1},
    "groups of blocks": {"recompute": "full:uniform:4"},
    "blocks of 8 bits": {"precision": "mxfp8"},
    "factored": {"optimizer": "adafactor"},
    "listed stages": {"stage_layers": (5, 3), "zero": 1},
    "zero bubble": {"schedule": "zb_h1", "recompute": "selective"},
}


def by_structure(model, mode):
    """Plans of the grid on sixteen devices, or nearly so, by structure; every seventh of them."""
    found = defaultdict(list)
    for values in list(product(*GRID.values()))[::7]:
        degrees = dict(zip(GRID, values, strict=True))
        model_ranks = (
            degrees["tensor_parallel"] * degrees["context_parallel"] * degrees["pipeline_parallel"]
        )
        replicas = max(16 // model_ranks, 1)
        plan = plan_of(model, degrees, mode, {"data_parallel": replicas})
        found[structure_of(plan)].append(plan)
    return [plans for plans in found.values() if len(plans) > 1]


@all_cases("mode", MODES)
@all_cases("name", ["experts", "latent", "windows"])
def test_the_mask_of_a_batch_is_what_each_plan_is_told_alone(name, mode):
    model = MODELS[name]
    software = stack("megatron-core")

    for plans in by_structure(model, MODES[mode]):
        job = job_of(model, plan_of(model, {"data_parallel": 16}), software)
        alone = [not check(job.model_copy(update={"plan": plan})) for plan in plans]

        assert valid(Case.of(job, batch_plans(plans)))[:, 0].tolist() == alone
