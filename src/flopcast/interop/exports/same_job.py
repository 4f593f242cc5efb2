"""Check that an exported file describes the job for which it was written.

Answers: which job does the file's own reader return, and how does it differ from the exported one?
Elsewhere: the writers (one file per kind), the readers (interop/megatron and the folders next to it).

Every export is checked: the reader that `predict` and `import` use reads the file again. The export is
refused if a field of the model, plan or batch differs; differences in a stack become notes. Two ways of
writing the same setting count as equal: `canonical` converts both to one form.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from flopcast.errors import Problem, SpecError, spec_error
from flopcast.files.exported import Exported, not_expressible, text_file
from flopcast.files.validate import build
from flopcast.files.yaml_text import Document
from flopcast.fixes import in_words
from flopcast.interop.configs.formats import parsed, read_kind
from flopcast.interop.configs.import_options import ImportOptions
from flopcast.layers.base import Norm
from flopcast.layers.block import Block
from flopcast.library import catalog
from flopcast.library.edits import merged
from flopcast.records import Record
from flopcast.spec.batch import Batch
from flopcast.spec.job import Job
from flopcast.spec.model import Model
from flopcast.spec.offload import offload_word
from flopcast.spec.plan import Plan
from flopcast.spec.precision import RECIPES
from flopcast.spec.shards import ShardGroup, shards_word
from flopcast.spec.stack import Stack

# Facts about a model that change no prediction of a job
NAMING = ("name", "source", "context_length", "trained_length", "trained_precision")
MANY = 8  # differences of a stack that are listed one by one
Difference = tuple[str, object, object]


def read_back(document: Document, job: Job, left_open: tuple[str, ...] = ()) -> Job:
    """Return the job that a reader's document describes, on the cluster of the exported job.

    If the document omits a part, the part of the job is used: DeepSpeed's file contains no model. Fields of
    the plan in `left_open`, which the format leaves to the program, also keep the values of the job.

    Raises
    ------
    SpecError
        A part of the document is not valid.
    """
    data = document.data if isinstance(document.data, dict) else {}
    nouns: dict[str, type[Plan] | type[Batch]] = {"plan": Plan, "batch": Batch}
    update: dict[str, object] = {
        key: build(noun, document, data[key], (key,)) for key, noun in nouns.items() if key in data
    }
    if "model" in data:
        update["model"] = _model(document, data["model"])
    if isinstance(plan := update.get("plan"), Plan):
        update["plan"] = plan.model_copy(update={name: getattr(job.plan, name) for name in left_open})
    if "stack" in data:
        update["stack"] = _stack(document, data["stack"])
    return job.model_copy(update=update)


def _model(document: Document, data: object) -> Model:
    """Return a model that is described, or named by its entry in the catalogue."""
    if isinstance(data, dict) and "base" in data:
        base = catalog.document("models", str(data["base"])).data
        data = merged(base, {key: value for key, value in data.items() if key != "base"})
    return build(Model, document, data, ("model",))


def _stack(document: Document, data: object) -> Stack:
    if isinstance(data, str):
        return catalog.stack(data)
    base = catalog.document("stacks", str(data["base"])).data if isinstance(data, dict) else {}
    changes = {key: value for key, value in data.items() if key != "base"} if isinstance(data, dict) else {}
    return build(Stack, document, merged(base, changes), ("stack",))


def check_same(job: Job, reread: Job, target: str) -> tuple[str, ...]:
    """Refuse a job that its file changes; return notes on settings of the stack that the file cannot
    contain.

    Parameters
    ----------
    job : the job that was exported
    reread : the job that the written file describes
    target : the name of the format in faults

    Returns
    -------
    tuple of str
        At most one sentence: the settings that must accompany the file to give the same stack.

    Raises
    ------
    SpecError
        The format cannot express some fields of the model, plan or batch. All of them are reported.
    """
    if job.model.has_encoder and not reread.model.has_encoder:
        because = "flopcast does not write encoder-decoder models as files of other programs yet"
        fix = "choose a decoder"
        raise spec_error("model.blocks", "an encoder", f"blocks that {target} can express", because, fix)
    problems = [_problem(difference, target) for difference in differences(job, reread)]
    if problems:
        raise SpecError(problems)
    lost = tuple(_differing("stack", canonical_stack(job), canonical_stack(reread)))
    return (_what_is_lost(job.stack, reread.stack, lost),) if lost else ()


def _problem(difference: Difference, target: str) -> Problem:
    """Return a fault with the edit that removes what the format cannot express."""
    field, value, instead = difference
    simple = isinstance(instead, bool | int | float | str) or instead is None
    word = json.dumps(instead).strip('"') if simple else str(instead)
    if isinstance(instead, tuple) and instead and all(isinstance(each, int) for each in instead):
        simple, word = True, ",".join(map(str, instead))
    elif instead == ():
        word = "no value"
    fix = f"add {field}={word}" if simple else f"change {field}, or export to another format"
    return not_expressible(field, value, word, target, fix)


def _what_is_lost(stack: Stack, reread: Stack, lost: tuple[Difference, ...]) -> str:
    fields = [
        f"{field.removeprefix('stack.')} = {in_words(new) or 'none'} instead of {in_words(old) or 'none'}"
        for field, old, new in lost
    ]
    more = f", and {len(fields) - MANY} more" if len(fields) > MANY else ""
    named = "your description of this stack"
    if stack.name in catalog.names("stacks"):
        changed = " and your changes of this stack" * (stack != catalog.stack(stack.name))
        named = f"--stack {stack.name}{changed}"
    return (
        f"the file cannot contain the stack {stack.label}; to import it again, add {named}. "
        f"Otherwise, flopcast assumes {reread.label}, with {'; '.join(fields[:MANY])}{more}"
    )


def differences(job: Job, reread: Job) -> tuple[Difference, ...]:
    """Return the fields of model, plan and batch that differ: the field, the job's value, the file's."""
    rule = job.stack.pipeline.partition
    return (
        *_differing_models(canonical_model(job), canonical_model(reread)),
        *_differing("plan", canonical_plan(job, rule), canonical_plan(reread, rule)),
        *_differing("batch", canonical_batch(job.batch), canonical_batch(reread.batch)),
    )


def _differing_models(value: dict[str, Any], other: dict[str, Any]) -> Iterator[Difference]:
    """Yield the fields in which models differ; extra kinds of blocks are compared with the other's last."""
    mine, theirs = value["blocks"], other["blocks"]
    if len(mine) == len(theirs):
        yield from _differing("model", value, other)
        return
    aside = {"blocks": None, "layers": None}
    yield from _differing("model", value | aside, other | aside)
    for index, kind in enumerate(mine):
        yield from _differing(f"model.blocks.{index}", kind, theirs[min(index, len(theirs) - 1)])


def _differing(path: str, value: object, other: object) -> Iterator[Difference]:
    """Yield the single values that differ; lists of different lengths differ as a whole."""
    if isinstance(value, Mapping) and isinstance(other, Mapping):
        for key in dict.fromkeys((*value, *other)):
            yield from _differing(f"{path}.{key}", value.get(key), other.get(key))
    elif isinstance(value, list) and isinstance(other, list) and len(value) == len(other):
        for index, (one, two) in enumerate(zip(value, other, strict=True)):
            yield from _differing(f"{path}.{index}", one, two)
    elif value != other:
        yield path, value, other


def canonical_model(job: Job) -> dict[str, Any]:
    """Return a job's model in a canonical form: kinds of blocks, and their layers.

    Names are left out. Runs of equal blocks, and patterns that give the same layers, have one form, so that
    two descriptions of one model compare as equal.
    """
    model = job.model
    data = model.model_dump(exclude={*NAMING, "blocks", "pattern"})
    data["learned_positions"] += data.pop("position_offset")
    kinds: list[dict[str, Any]] = []
    layers: list[int] = []
    for place, count in model.runs():
        if not 1 <= place <= len(model.blocks):
            continue
        kind = _canonical_block(model.blocks[place - 1], job)
        if kind not in kinds:
            kinds.append(kind)
        layers += [kinds.index(kind)] * count
    rows = [[kind, len(list(row))] for kind, row in groupby(layers)]
    return data | {"blocks": kinds, "layers": rows}


def _canonical_block(block: Block, job: Job) -> dict[str, Any]:
    """Return a block with all derived fields; a window wider than sequences is removed."""
    data = block.model_dump(exclude={"count"})
    mixer, inner = data["mixer"], data["feed_forward"]
    rms: Norm = "rmsnorm"
    if data["norm"] == rms:
        data["norm_bias"] = False
    if mixer["kind"] == "attention":
        mixer["kv_heads"] = mixer["kv_heads"] or mixer["heads"]
        mixer["head_size"] = mixer["head_size"] or job.model.hidden // mixer["heads"]
        narrow = mixer["window"] is not None and mixer["window"] < job.batch.sequence_length
        mixer["window"] = mixer["window"] if narrow else None
        if not narrow or mixer["window_kind"] == "sliding":
            mixer.pop("window_kind")
    if inner["kind"] == "experts":
        each = inner["shared_hidden"] or inner["expert_hidden"]
        inner["shared_hidden"] = inner.pop("shared_experts") * each
    return data


def canonical_plan(job: Job, rule: str) -> dict[str, Any]:
    """Return a plan in canonical form, without settings of axes that have one rank.

    `rule` is the rule by which the stack of the exported job divides blocks: a list of equal chunks
    equals no list only if the stack divides blocks evenly.
    """
    plan = job.plan
    placed = sorted(plan.offload, key=lambda one: (one.kind, one.tier, one.fraction))
    data = plan.model_dump() | {
        "schedule": plan.pipeline_schedule,
        "offload": offload_word(tuple(placed)) or "none",
    }
    shared = plan.context_parallel > 1
    for name in ("context_exchange", "context_order"):
        data[name] = data[name] if shared else None
    data["sequence_parallel"] = plan.sequence_parallel and plan.tensor_parallel > 1
    if not job.model.has_experts:
        data["expert_tensor_parallel"] = data["expert_parallel"] = None
    whole = plan.zero == 0 or plan.data_shard == plan.data_parallel
    data["data_shard"] = 0 if whole else plan.data_shard
    data["shards"] = shards_word(_distinct_groups(plan)) or "none"
    data["stage_layers"] = () if rule == "even" and len(set(plan.stage_layers)) <= 1 else plan.stage_layers
    axes = {"tp": "tensor", "cp": "context", "dp": "data", "pp": "pipeline"}
    used = (axis for axis in plan.rank_order.split("-") if getattr(plan, f"{axes[axis]}_parallel") > 1)
    data["rank_order"] = "-".join(used)
    return data | _canonical_recompute(job)


def _distinct_groups(plan: Plan) -> list[ShardGroup]:
    """Return a plan's groups except those that only repeat `data_shard` for all ranks."""
    usual = plan.data_shard or plan.data_parallel
    groups = (one.model_copy(update={"ranks": one.ranks or plan.data_parallel}) for one in plan.shards)
    return sorted((one for one in groups if one.messages or one.ranks != usual), key=lambda one: one.kind)


def _canonical_recompute(job: Job) -> dict[str, Any]:
    """Return the recomputed modules, with the stack's own modules if the plan names none."""
    plan = job.plan
    selective, full = plan.recompute == "selective", plan.recompute == "full"
    modules = plan.recompute_modules or job.stack.selective_groups
    every = set(plan.recompute_blocks) in (set(), set(range(len(job.model.blocks))))
    return {
        "recompute_modules": sorted(modules) if selective else (),
        "recompute_method": plan.recompute_method if full else None,
        "recompute_layers": plan.recompute_layers if full else None,
        "recompute_blocks": () if every else plan.recompute_blocks,
        "partition_activations": full and plan.tensor_parallel > 1 and plan.partition_activations,
    }


def canonical_batch(batch: Batch) -> dict[str, Any]:
    """Return a batch without documents that fill a sequence and without lists of equal micro-batches."""
    if len(batch.kinds) == 1:
        (batch,) = batch.kinds
    packed = len(batch.lengths) > 1
    return batch.model_dump(exclude={"packed"}) | {"documents": batch.documents if packed else ()}


def canonical_stack(job: Job) -> dict[str, Any]:
    """Return the settings of a stack that affect this job, without its name."""
    narrow = job.plan.precision in RECIPES
    used = {"experts": job.model.has_experts, "narrow": narrow, "offload": bool(job.plan.offload)}
    idle = {name for name, is_used in used.items() if not is_used}
    return job.stack.model_dump(exclude={"name", "era", "source"} | idle)


Reader = Callable[[bytes, int], Document]


def checked(
    job: Job, text: bytes, read: Reader, target: str, left_open: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Read the exported file and compare it with the job; return notes on what differs.

    Raises
    ------
    SpecError
        The file would describe another job.
    """
    if job.model.vision is not None:
        fix = "set model.vision to null, so that only the decoder is written"
        tower = "a decoder without a vision tower"
        raise SpecError([not_expressible("model.vision", "a vision tower", tower, target, fix)])
    if job.model.family == "hybrids":
        fix = "choose a model with attention in all blocks, and describe the hybrid in the settings of the"
        fix, found, allowed = f"{fix} framework", "linear attention", "blocks with attention"
        raise SpecError([not_expressible("model.blocks", found, allowed, target, fix)])
    document = read(text, job.cluster.num_devices)
    return check_same(job, read_back(document, job, left_open), target)


class SettingsFile(Record):
    """A file of settings that flopcast reads back, to compare its job with the exported one.

    Attributes
    ----------
    name, kind : the name of the file, and its format
    target : what errors call its settings
    family : stacks whose kernels the program runs
    otherwise : what a note says about a job with any other stack
    left_open : fields of the plan that the file cannot state, and that the user adds
    """

    name: str
    kind: str
    target: str
    family: Collection[str]
    otherwise: str
    left_open: tuple[str, ...] = ()

    def _read(self, text: bytes, devices: int) -> Document:
        options = ImportOptions(devices=devices, model=bool(self.left_open))
        return read_kind(parsed(text, self.name), self.kind, options)

    def exported(self, job: Job, lines: Sequence[str], lacking: Sequence[str], *others: str) -> Exported:
        """Return the file of these lines with notes on what it is `lacking`, on the stack, and `others`.

        Raises
        ------
        SpecError
            The file would describe another job.
        """
        lost = checked(job, "\n".join(lines).encode("utf-8"), self._read, self.target, self.left_open)
        foreign = [] if job.stack.name in self.family else [f"the stack {job.stack.label} {self.otherwise}"]
        return text_file(self.name, lines, [*lacking, *foreign, *lost, *others])


def without_cluster(job: Job) -> list[str]:
    """Return the note on a file that states the whole job except its cluster."""
    return [f"the file does not contain the cluster; to import it again, add --cluster {job.cluster.name}"]
