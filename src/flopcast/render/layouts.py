"""The best layout of a plan on its cluster, as text and as plain data.

Answers: what do `flopcast search --node-order`, `--group-division` and `--per-layer` print?
Elsewhere: the layouts themselves (search/node_order.py, search/group_division.py, search/per_layer.py).
"""

from flopcast.render.trained_text import subject_lines
from flopcast.search.group_division import GroupDivision
from flopcast.search.node_order import NodeOrder
from flopcast.search.per_layer import PerLayer
from flopcast.spec.job import Job
from flopcast.units import nine_digits, show_seconds


def node_order_text(job: Job, found: NodeOrder) -> str:
    """Return the answer as text: the order, its step, and the step with the default order."""
    order = ",".join(map(str, found.order))
    return "\n".join(
        [
            *subject_lines(job),
            f"default   {show_seconds(found.default_step_time_s)} per step, without variation between"
            f" steps",
            f"best      {show_seconds(found.step_time_s, like=found.default_step_time_s)} per step,"
            f" {found.speedup_ratio - 1.0:.2%} faster",
            f"order     {order}",
            f"set       cluster.tiers.{len(job.cluster.tiers) - 1}.links.order=[{order}]",
        ]
    )


def node_order_json(found: NodeOrder) -> dict[str, object]:
    """Return the best order of nodes as plain data for JSON, under the key "node_order"."""
    return {
        "node_order": {
            "order": list(found.order),
            "clean_step_time_s": nine_digits(found.step_time_s),
            "default_clean_step_time_s": nine_digits(found.default_step_time_s),
            "speedup": nine_digits(found.speedup_ratio),
        }
    }


def group_division_text(found: GroupDivision) -> str:
    """Return the answer as text: the parts of each group, their step, and the step with equal parts.

    The last line ("set") is the change that applies the answer to the job: the blocks of stages, or the
    micro-batches of each group. If equal parts do not fit into memory, the first line states this.
    """
    job = found.job
    words = found.what.replace("_", "-")
    each = "" if found.what == "blocks" else " for each replica"
    equal = "does not fit"
    if found.equal_step_time_s < float("inf"):
        equal = f"{show_seconds(found.equal_step_time_s)} per step, without variation between steps"
    lines = [
        *subject_lines(job),
        f"equal     {equal}",
        f"best      {show_seconds(found.step_time_s)} per step, {found.speedup_ratio - 1.0:.1%} faster",
        *(
            f"{f'group {number}':<10}{name}: {part} {words}{each}"
            for number, (name, part) in enumerate(zip(found.names, found.parts, strict=True))
        ),
    ]
    edits = [f"cluster.groups.{g}.micro_batches={part}" for g, part in enumerate(found.parts)]
    if found.what == "blocks":
        edits = [f"plan.stage_layers={','.join(map(str, job.plan.stage_layers))}"]
    return "\n".join([*lines, f"set       {' '.join(edits)}"])


def group_division_json(found: GroupDivision) -> dict[str, object]:
    """Return the division over groups as plain data for JSON, under the key "group_division"."""
    equal = found.equal_step_time_s
    return {
        "group_division": {
            "what": found.what,
            "groups": list(found.names),
            "parts": list(found.parts),
            "stage_layers": list(found.job.plan.stage_layers),
            "clean_step_time_s": nine_digits(found.step_time_s),
            "equal_clean_step_time_s": nine_digits(equal) if equal < float("inf") else None,
        }
    }


def per_layer_text(job: Job, found: PerLayer) -> str:
    """Return the result as text: the best plan with equal blocks, and the best plan with strategies.

    The last line is the plan to copy.
    """
    uniform = "no plan fits on these stages with these micro-batches"
    faster = ""
    if found.uniform.step_time_s < float("inf"):
        uniform = f"{show_seconds(found.uniform.step_time_s)} per step, without variation between steps"
        uniform += f": {found.uniform.plan.short()}"
        faster = f", {found.speedup_ratio - 1.0:.1%} faster"
    return "\n".join(
        [
            *subject_lines(job),
            f"alike     {uniform}",
            f"best      {show_seconds(found.best.step_time_s)} per step{faster}"
            f" ({found.predictions} plans predicted)",
            f'set       --plan "{found.best.plan.short()}"',
        ]
    )


def per_layer_json(found: PerLayer) -> dict[str, object]:
    """Return the best plan with strategies per layer as plain data for JSON, under the key "per_layer"."""
    alike = found.uniform.step_time_s
    fits = alike < float("inf")
    return {
        "per_layer": {
            "plan": found.best.plan.model_dump(mode="json"),
            "short": found.best.plan.short(),
            "clean_step_time_s": nine_digits(found.best.step_time_s),
            "alike_short": found.uniform.plan.short() if fits else None,
            "alike_clean_step_time_s": nine_digits(alike) if fits else None,
            "predictions": found.predictions,
        }
    }
