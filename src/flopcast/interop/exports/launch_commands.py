"""A serving job as the launch commands of its engine.

Answers: which script starts the instances of this deployment, and what can its flags not express?
Elsewhere: flags of each engine (interop/serving/vllm.py and the other files there); the reader of such
scripts (interop/serving/launch.py), which checks the exported script.

The export also succeeds if an engine lacks a flag: the script is read again, and each value that differs
gives a note.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from flopcast.files.exported import Exported, text_file
from flopcast.files.yaml_text import Document
from flopcast.interop.serving.launch import LaunchText, launched
from flopcast.interop.serving.settings import keys_of_engine
from flopcast.interop.serving.written import Launch, notes_of
from flopcast.library import catalog
from flopcast.library.model_yaml import flow
from flopcast.library.published_formats import published_formats
from flopcast.records import Record
from flopcast.spec.deployment import Deployment, Pool
from flopcast.spec.engine import Engine
from flopcast.spec.serving_job import ServingJob
from flopcast.spec.streaming import DEVICE

NAME = "serve.sh"
FIRST_PORT = 8000
DEGREES = (
    "tensor_parallel", "data_parallel", "expert_parallel", "redundant_experts", "pipeline_parallel"
)  # fmt: skip
OF_PLAN = (
    "weights", "expert_weights", "cache", "latents", "residual", "expert_messages", "peer_weight_fraction",
    "weights_on", "kv_on", "activations_on", "host_computes", "adapter_rank",
)  # fmt: skip
OF_ENGINE = ("prefill", "memory_fraction", "block_tokens", "prefix_cache", "preemption")
Writer = Callable[[ServingJob, str], Launch]


class LaunchExport(Record, eq=False):
    """The export of launch commands for one engine."""

    kind: str  # of interop.serving.kinds.KINDS
    write: Writer

    @property
    def description(self) -> str:
        """Return a description of the exported files."""
        return f"a script with launch commands of {keys_of_engine(self.kind).program}"

    @property
    def engine(self) -> str:
        """Return the engine of the catalogue that the commands start."""
        return keys_of_engine(self.kind).engine

    def export(self, job: ServingJob) -> Exported:
        """Return a script that starts the instances of a job.

        Returns
        -------
        Exported
            One file; its notes list every value that the flags do not express, and everything that must
            be added.

        Examples
        --------
        >>> from flopcast.interop.exports.kinds import SERVING
        >>> from flopcast.jobs import serving_job
        >>> job = serving_job("llama-3.1-8b", engine="vllm", plan="tp=2 replicas=1", gpus=2)
        >>> print(SERVING["vllm"].export(job).files[0][1].decode())  # doctest: +ELLIPSIS
        #!/bin/bash
        # llama-3.1-8b on dgx-h100: 1 instance of 2 devices
        MODEL=${MODEL:-llama-3.1-8b}  # the checkpoint: an id of the Hugging Face hub, or a folder
        CUDA_VISIBLE_DEVICES=0,1 vllm serve $MODEL \\
          --tensor-parallel-size 2 \\
        ...
        """
        text = _script(job, self.write)
        program = keys_of_engine(self.kind).program
        found = launched(LaunchText(raw=text.encode(), name=NAME), _no_file, kind=self.kind)
        notes = [
            (
                "the commands do not contain cluster and traffic; to import them again, add --cluster "
                f"{job.cluster.name} --traffic …"
            ),
            (
                f"MODEL is {job.model.name}, a name in flopcast's catalogue; set MODEL to the path or the "
                "Hugging Face id of your checkpoint"
            ),
            *notes_of(job),
        ]
        if self.engine not in (job.engine.name, job.engine.base):
            notes.append(f"the job uses {job.engine.name}, but these commands start {program}")
        if found is not None:
            notes += _differences(job, found, program)
        return text_file(NAME, text.splitlines(), notes)


def _no_file(*_: str) -> bytes:
    """Return no files: the script writes every file that it names."""
    return b""


def _script(job: ServingJob, write: Writer) -> str:
    pools = tuple(zip(("prefill", "decode"), job.kinds, strict=True)) if job.plan.pools else (("", job),)
    sizes = " and ".join(_size(kind, role) for role, kind in pools)
    lines = [
        "#!/bin/bash",
        f"# {job.model.name} on {job.cluster.name}: {sizes}",
        f"MODEL=${{MODEL:-{job.model.name}}}  # the checkpoint: an id of the Hugging Face hub, or a folder",
    ]
    number, first = sum(kind.replicas for _, kind in pools), 0
    port = FIRST_PORT
    for role, kind in pools:
        made = write(kind, role)
        name = f"{role or 'serve'}.yaml"
        flags = list(made.flags)
        if made.settings:
            lines += [f"cat > {name} <<'EOF'"]
            lines += [f"{key}: {flow(value)}" for key, value in made.settings.items()]
            lines += ["EOF"]
            flags.append(f"--extra_llm_api_options {name}")
        for _ in range(kind.replicas):
            node, devices, first = _places(kind, first)
            lines += [f"# on node {node}"] if node else []
            command = [*flags, f"--port {port}"]
            end = " &" if number > 1 else ""
            lines += [f"{devices}" + " \\\n  ".join(command) + end]
            port += 1
    lines += ["wait"] if number > 1 else []
    return "\n".join(lines) + "\n"


def _size(job: ServingJob, role: str) -> str:
    many = f"{job.replicas} instance{'s' * (job.replicas > 1)}"
    use = {"prefill": " for prompts", "decode": " for decoding"}.get(role, "")
    return f"{many} of {job.plan.devices} device{'s' * (job.plan.devices > 1)}{use}"


def _places(job: ServingJob, first: int) -> tuple[str, str, int]:
    """Return the node of an instance, the variable that selects its devices, and the next free device.

    The node is "" if the cluster has only one; an instance on several nodes names no devices.
    """
    each, size = job.cluster.node.devices, job.plan.devices
    if size > each:
        begin = -(-first // each)
        last = begin + -(-size // each) - 1
        nodes = f"{begin + 1} to {last + 1}, started as the engine's documentation says"
        return nodes, "", (last + 1) * each
    if first % each + size > each:
        first = -(-first // each) * each
    devices = ",".join(str(first % each + at) for at in range(size))
    several = job.cluster.num_devices > each
    return str(first // each + 1) if several else "", f"CUDA_VISIBLE_DEVICES={devices} ", first + size


def _differences(job: ServingJob, found: Document, program: str) -> Iterator[str]:
    """Yield each value of the deployment that differs in the script."""
    data: Any = found.data
    mine = _facts(job.plan, job.engine, job.replicas) | _formats(job)
    theirs = _read(job, data)
    for name, value in mine.items():
        other = theirs.get(name)
        if other != value:
            yield f"{program} has no flag for {name}={value}; the commands use {name}={other}"


def _read(job: ServingJob, data: Mapping[str, Any]) -> dict[str, object]:
    """Return the facts of a script that was read, in the same form."""
    plan, engine = dict(data["plan"]), data["engine"]
    changes = {} if isinstance(engine, str) else {key: engine[key] for key in engine if key != "base"}
    base = catalog.engine(engine if isinstance(engine, str) else engine["base"]).model_copy(update=changes)
    draft, drafted = plan.pop("draft", None), plan.pop("drafted", None)
    published = published_formats(job.model.name)
    weights = plan.get("weights", published.weights)
    experts = plan.get("weights") or published.expert_weights or weights
    formats = {"weights": weights, "expert_weights": experts, "cache": plan.get("cache", "bf16")}
    rank = plan.get("adapter_rank")
    slots = (plan.get("adapter_slots") or base.adapter_slots) if rank else 0
    # no engine has a flag for others
    formats |= {"latents": "replicated", "residual": "sequential", "expert_messages": "exposed"}
    formats["peer_weight_fraction"] = 0.0
    formats |= dict.fromkeys(("weights_on", "kv_on", "activations_on"), DEVICE) | {"host_computes": None}
    formats |= {"adapter_rank": rank, "adapter_slots": slots}
    for role in ("prefill", "decode"):
        if role in plan:
            plan[role] = Pool(**plan[role])
    deployment = Deployment(**plan)
    return (
        _facts(deployment, base, deployment.replicas)
        | formats
        | {"draft": draft, "drafted": drafted if draft else None, "draft_layers": 1}
    )


def _formats(job: ServingJob) -> dict[str, object]:
    plan, drafting = job.plan, job.plan.drafting
    name = None if drafting is None else drafting.model.name if drafting.model else drafting.drafter
    return {name: getattr(plan, name) for name in OF_PLAN} | {
        "expert_weights": plan.format_of_experts,
        "adapter_slots": job.adapter_slots,
        "draft": name,
        "drafted": None if drafting is None else drafting.drafted,
        "draft_layers": 1 if drafting is None else drafting.layers_at_once,
    }


def _facts(plan: Deployment, engine: Engine, replicas: int) -> dict[str, object]:
    """Return the degrees and limits of each kind of instance, and the settings of the engine."""
    named = zip(("prefill.", "decode."), plan.pools, strict=False) if plan.pools else (("", plan),)
    facts: dict[str, object] = {f"engine.{name}": getattr(engine, name) for name in OF_ENGINE}
    for prefix, pool in named:
        facts |= {f"{prefix}{name}": getattr(pool, name) for name in DEGREES}
        facts[f"{prefix}replicas"] = max(pool.replicas, 1) if prefix else replicas
        facts[f"{prefix}max_sequences"] = pool.max_sequences or engine.max_sequences
        facts[f"{prefix}max_tokens"] = pool.max_tokens or engine.max_tokens
    return facts
