"""Files that state the settings of vLLM without its command: Helm values, KServe, and Ray Serve.

Answers: which containers of vLLM, with which flags, does such a file deploy?
Elsewhere: containers that state their command (containers.py), what the flags mean (vllm.py).

A setting `maxModelLen` or `max_model_len` is the flag `--max-model-len`; one that vLLM does not have is an
error or a note, as in a command.

References
----------
vllm-project/production-stack: helm/templates/deployment-vllm-multi.yaml (a `vllmConfig` without
`enablePrefixCaching` turns the prefix cache off). llm-d/llm-d: guides/*/values.yaml of the chart
llm-d-modelservice (`parallelism` becomes flags of containers with `modelCommand: vllmServe`).
kserve/kserve: docs/samples/llmisvc, LLMInferenceService (`parallelism`, and the variable
VLLM_ADDITIONAL_ARGS, which follows the flags), and InferenceService with the Hugging Face runtime.
Ray Serve LLM (https://docs.ray.io/en/latest/serve/llm): LLMConfig (`engine_kwargs` are vLLM's own).
"""

import json
import re
from collections.abc import Iterator, Mapping

from flopcast.files.yaml_text import Path
from flopcast.records import Record

IMAGE = "vllm-openai"  # starts vLLM with the flags that follow
HUB = "hf://"
ROLE = "--disaggregation-mode"  # as in Dynamo's workers of vLLM
DEGREES = ("tensor", "pipeline", "data")  # of `parallelism`
OF_RUNTIME = ("--model_name", "--model_dir")  # flags of KServe's runtime that vLLM does not have
Mapped = Mapping[str, object]


class Container(Record, eq=False):
    """A container: its entry in the file, the path of it, how many of it run, and the pods of its group.

    `note` states what is assumed about the container.
    """

    entry: Mapped
    path: Path
    replicas: int = 1
    group: int = 0
    note: str = ""


def stated_containers(data: Mapped) -> list[Container]:
    """Return the containers of a file that states settings without a command; none of any other file.

    >>> data = {"model_loading_config": {"model_id": "gpt2"}, "engine_kwargs": {"max_num_seqs": 8}}
    >>> [one.entry["args"] for one in stated_containers(data)]
    [['--model', 'gpt2', '--max-num-seqs', '8']]
    """
    readers = (_production_stack, _llm_d, _llm_inference_service, _inference_service, _ray)
    return next((found for read in readers if (found := list(read(data)))), [])


def _production_stack(data: Mapped) -> Iterator[Container]:
    models = inside(data, "servingEngineSpec", "modelSpec")
    for place, model in enumerate(models if isinstance(models, list) else ()):
        settings, cache = inside(model, "vllmConfig"), inside(model, "lmcacheConfig")
        config = {"enablePrefixCaching": False} | settings if isinstance(settings, dict) else {}
        engine = {name: value for name, value in config.items() if name not in ("extraArgs", "v0", "v1")}
        words = ["--model", str(inside(model, "modelURL")), *flags(engine)]
        words += _words(config.get("extraArgs"))
        if inside(model, "enableLoRA"):
            words.append("--enable-lora")
        if inside(cache, "enabled"):
            words += ["--kv-transfer-config.kv_role", str(inside(cache, "kvRole") or "kv_both")]
            size = inside(cache, "cpuOffloadingBufferSize")
            words += ["--kv-offloading-size", str(size)] if size else []
        entry = {"image": f"{IMAGE}:{inside(model, 'tag')}", "args": words}
        path = ("servingEngineSpec", "modelSpec", place)
        yield Container(entry=entry, path=path, replicas=_count(inside(model, "replicaCount")))


def _llm_d(data: Mapped) -> Iterator[Container]:
    artifacts = inside(data, "modelArtifacts")
    parts = {role: data.get(role) for role in ("prefill", "decode") if isinstance(artifacts, dict)}
    used = {role: one for role, one in parts.items() if one and inside(one, "create") is not False}
    for role, one in used.items():
        entry = _first(inside(one, "containers"))
        if entry.get("modelCommand") == "vllmServe":
            words = _degrees(inside(one, "parallelism")) + _words(entry.get("args"))
            words += [ROLE, role] if len(used) > 1 else []
            entry = {**entry, "image": IMAGE, "args": ["--model", _model(artifacts), *words]}
        yield Container(entry=entry, path=(role, "containers", 0), replicas=_count(inside(one, "replicas")))


def _llm_inference_service(data: Mapped) -> Iterator[Container]:
    spec = inside(data, "spec") if data.get("kind") == "LLMInferenceService" else None
    prompts = inside(spec, "prefill")
    parts = {"decode": (spec, ("spec",)), "prefill": (prompts, ("spec", "prefill"))}
    for role, (part, path) in parts.items():
        entry = _first(inside(part, "template", "containers"))
        if not isinstance(part, dict) or entry.get("command") or inside(spec, "runtime") == "sglang":
            continue
        words = ["--model", _model(inside(spec, "model")), *_degrees(part.get("parallelism"))]
        words += [ROLE, role] if isinstance(prompts, dict) else []
        variables = entry.get("env")
        more = [
            str(one.get("value", ""))
            for one in (variables if isinstance(variables, list) else ())
            if isinstance(one, dict) and one.get("name") == "VLLM_ADDITIONAL_ARGS"
        ]
        entry = {
            **entry,
            "image": IMAGE,
            "entrypoint": words,
            "args": entry.get("args") or [],
            "command": " ".join(more),
        }
        yield Container(entry=entry, path=path, replicas=_count(part.get("replicas")))


def _inference_service(data: Mapped) -> Iterator[Container]:
    predictor = inside(data, "spec", "predictor") if data.get("kind") == "InferenceService" else None
    model = inside(predictor, "model")
    served = f"{inside(model, 'modelFormat', 'name')} {inside(model, 'runtime')}".lower()
    words = [word.replace("--model_id", "--model", 1) for word in _words(inside(model, "args"))]
    if not isinstance(model, dict) or not re.search("vllm|huggingface", served):
        return
    own = [word for word in words if not word.startswith(OF_RUNTIME)]
    stored = str(model.get("storageUri"))
    named = ["--model", stored.removeprefix(HUB)] if stored.startswith(HUB) else []
    entry, path = {**model, "image": IMAGE, "args": named + own}, ("spec", "predictor", "model")
    yield _scaled(entry, path, inside(predictor, "minReplicas"), inside(predictor, "maxReplicas"))


def _ray(data: Mapped) -> Iterator[Container]:
    for path, config, role in _ray_configs(data):
        named = inside(config, "model_loading_config")
        model = inside(named, "model_source") or inside(named, "model_id")
        settings = inside(config, "engine_kwargs")
        words = ["--model", str(model), *flags(settings if isinstance(settings, dict) else {})]
        scaled, entry = inside(config, "deployment_config"), {"image": IMAGE, "args": words}
        words += [ROLE, role] if role else []
        fewest, most = (inside(scaled, "autoscaling_config", f"{end}_replicas") for end in ("min", "max"))
        yield _scaled(entry, path, inside(scaled, "num_replicas") or fewest, most)


def _ray_configs(data: Mapped) -> Iterator[tuple[Path, Mapped, str]]:
    """Yield the LLMConfigs of a file: its own, or those of its applications, with the role of each."""
    if isinstance(data.get("model_loading_config"), dict):
        yield (), data, ""
    applications = data.get("applications")
    for place, one in enumerate(applications if isinstance(applications, list) else ()):
        path, listed = ("applications", place, "args"), inside(one, "args", "llm_configs")
        for at, config in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(config, dict):
                yield (*path, "llm_configs", at), config, ""
        for role in ("prefill", "decode"):
            if isinstance(config := inside(one, "args", f"{role}_config"), dict):
                yield (*path, f"{role}_config"), config, role


def flags(settings: Mapped) -> list[str]:
    """Return settings as flags.

    >>> flags({"maxModelLen": 4096, "enable_lora": False, "eplb_config": {"num_redundant_experts": 2}})
    ['--max-model-len', '4096', '--no-enable-lora', '--eplb-config', '{"num_redundant_experts": 2}']
    """
    words: list[str] = []
    for key, value in settings.items():
        name = re.sub("([A-Z])", r"-\1", key).lower().replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        elif value is not None:
            words += [f"--{name}", json.dumps(value) if isinstance(value, (dict, list)) else str(value)]
    return words


def inside(data: object, *keys: str) -> object:
    """Return the value below some keys, None if there is none."""
    for key in keys:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data


def _degrees(parallelism: object) -> list[str]:
    """Return the flags of a section with degrees; `expert: true` spreads experts over ranks."""
    stated = [(name, inside(parallelism, name)) for name in DEGREES]
    words = [word for name, value in stated if value for word in (f"--{name}-parallel-size", str(value))]
    return words + ["--enable-expert-parallel"] * bool(inside(parallelism, "expert"))


def _model(named: object) -> str:
    """Return the id of a model on the hub, else its name."""
    address = str(inside(named, "uri") or "")
    return address.removeprefix(HUB) if address.startswith(HUB) else str(inside(named, "name"))


def _scaled(entry: Mapped, path: Path, fewest: object, most: object) -> Container:
    """Return a container whose number varies between these two."""
    count = _count(fewest)
    varies = f"{count} replicas, the smallest number (at most {most})" if _count(most) > count else ""
    return Container(entry=entry, path=path, replicas=count, note=varies)


def _first(containers: object) -> dict[str, object]:
    first = containers[0] if isinstance(containers, list) and containers else None
    return first if isinstance(first, dict) else {}


def _words(listed: object) -> list[str]:
    return [str(word) for word in listed] if isinstance(listed, list) else []


def _count(stated: object) -> int:
    return stated if isinstance(stated, int) and stated > 0 else 1
