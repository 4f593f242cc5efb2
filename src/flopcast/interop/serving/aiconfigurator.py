"""Experiments of AIConfigurator: the YAML file of `aiconfigurator cli exp`.

Answers: which model, machine, engine, traffic and limits does an experiment state?
Elsewhere: manifests that AIConfigurator writes (dynamo.py), its measured points
(lab/serving_runs/aiconfigurator.py), the search over the degrees of an experiment (search/deployments).

An experiment states lists of degrees to search over. A list with one value becomes a field of the plan; a
longer list becomes a note, which states how to search over its values. The first experiment of `exps` is
read. In the flat layout of newer releases, a worker's keys begin with its role (prefill_gemm_quant_mode,
agg_tp_candidates).

Source: ai-dynamo/aiconfigurator on GitHub (Apache-2.0), src/aiconfigurator/cli/example.yaml.
"""

from collections.abc import Mapping, Sequence

from flopcast.errors import Problem, SpecError, spec_error
from flopcast.files.package_table import read_table
from flopcast.files.yaml_text import Document, Path
from flopcast.fixes import set_to
from flopcast.library import catalog
from flopcast.library.published_formats import stored_formats
from flopcast.units import Number

NAME = "aiconfigurator"
DESCRIPTION = "experiments of AIConfigurator (YAML of `aiconfigurator cli exp`)"
_WORDS: dict[str, dict[str, str]] = read_table(__package__, "tables/aiconfigurator.yaml")
SYSTEMS, ALIASES, ENGINES = (_WORDS[name] for name in ("systems", "aliases", "engines"))
GEMMS, CACHES, PROFILES = (_WORDS[name] for name in ("gemms", "caches", "profiles"))
DEGREES = _WORDS["degrees"]
WORKERS: Mapping[str, tuple[str, ...]] = {
    "agg": ("worker_config",),
    "disagg": ("prefill_worker_config", "decode_worker_config"),
}
POOLS = ("prefill", "decode")
QUANTISATIONS = ("gemm_quant_mode", "moe_quant_mode", "kvcache_quant_mode")
OF_A_ROLE = ("model_path", "system_name", "backend_name")
MODES = tuple(WORKERS)
USUAL_LENGTHS = {"isl": 4000, "osl": 1000}
USUAL_ENGINE = "trtllm"
READ = (
    *("mode", "serving_mode", "model_name", "model_path", "total_gpus", "system_name", "backend_name"),
    *("isl", "osl", "ttft", "tpot", "config", "profiles"),
)


def is_experiments(data: object) -> bool:
    """Return whether plain data is a file of experiments.

    >>> is_experiments({"one": {"serving_mode": "agg", "system_name": "h200_sxm"}})
    True
    """
    return bool(_experiments(data))


def _experiments(data: object) -> list[str]:
    """Return the names of the experiments in a file, those that run first at the front."""
    if not isinstance(data, dict):
        return []
    found = [
        name
        for name, each in data.items()
        if isinstance(each, dict)
        and "serving_mode" in each
        and each.keys() & {"system_name", "decode_system_name"}
    ]
    listed = data.get("exps")
    order = [name for name in listed if name in found] if isinstance(listed, list) else []
    return [*order, *(name for name in found if name not in order)]


def _nested(flat: Mapping[str, object]) -> Mapping[str, object]:
    """Return an experiment in the older layout's sections; an older one does not change."""
    if "config" in flat:
        return flat
    mode = str(flat.get("serving_mode"))
    config = {key: flat[key] for key in ("nextn", "nextn_accepted") if key in flat}
    taken = set(config)
    for worker in WORKERS.get(mode, ()):
        role = worker.removesuffix("worker_config")  # "prefill_", "decode_" or ""
        keys = {f"{role}{key}": key for key in QUANTISATIONS}
        keys |= {_flat_list(worker, key): key for key in DEGREES}
        config[worker] = {key: flat[name] for name, key in keys.items() if name in flat}
        taken |= keys.keys()
    shared = {key: flat[name] for key in OF_A_ROLE if (name := f"decode_{key}") in flat}
    taken |= {f"decode_{key}" for key in shared}
    return {key: value for key, value in flat.items() if key not in taken} | shared | {"config": config}


def _flat_list(worker: str, key: str) -> str:
    """Return the flat layout's name for a worker's list of degrees."""
    return f"{worker.removesuffix('worker_config') or 'agg_'}{key.removesuffix('list')}candidates"


def job_of_experiments(document: Document, model: str | None = None) -> Document:
    """Return the job of the first experiment of a file.

    Raises
    ------
    SpecError
        The file has no experiment, or the first one has faults, which are all reported with their lines.
    """
    names = _experiments(document.data)
    if not names:
        because = "an experiment states serving_mode and system_name"
        fix = "give a file of `aiconfigurator cli exp`"
        allowed = "an experiment"
        raise spec_error("exps", None, allowed, because, fix, document.where(()), fault="is missing")
    return _Experiment(document, names, model).job()


class _Experiment:
    """One experiment: its values, their faults, and notes."""

    def __init__(self, document: Document, names: Sequence[str], model: str | None) -> None:
        data = document.data if isinstance(document.data, dict) else {}
        self._document, self._name, self._model = document, names[0], model
        self._data: Mapping[str, object] = _nested(data[names[0]])
        self._problems: list[Problem] = []
        self._stored, self._flat = "", "config" not in data[names[0]]
        self._notes: list[str] = []
        if names[1:]:
            text = f"flopcast reads only the experiment {names[0]}, and not {', '.join(names[1:])}"
            self._notes.append(text)

    def job(self) -> Document:
        """Return the job of the experiment.

        Raises
        ------
        SpecError
            The experiment has faults, which are all reported together. Fields that are not used become
            notes.
        """
        self._check_roles()
        mode = self._choice(("serving_mode",), {name: name for name in MODES}, MODES[0])
        system = ALIASES.get(str(self._data["system_name"]), self._data["system_name"])
        cluster = self._choice(("system_name",), SYSTEMS, "", system)
        engine = self._choice(("backend_name",), ENGINES, ENGINES[USUAL_ENGINE])
        model = self._model or self._named_model()
        job: dict[str, object] = {
            "model": model,
            "cluster": self._cluster(cluster),
            "engine": engine,
            "plan": self._plan(mode),
            "traffic": {
                f"{kind}_tokens": self._number((key,), USUAL_LENGTHS[key])
                for kind, key in (("prompt", "isl"), ("output", "osl"))
            },
            "slo": self._limits(),
        }
        for key in self._data:
            if key not in READ and key.removeprefix("prefill_") not in OF_A_ROLE:
                self._notes.append(f"{self._name}.{key} is not used")
        if self._problems:
            raise SpecError(self._problems)
        places: dict[Path, str] = {(part,): self._document.where((self._name,)) for part in job}
        data = {part: value for part, value in job.items() if value} | {"assumptions": self._notes}
        return Document(self._document.name, data, dict(self._document.lines), places)

    def _named_model(self) -> str:
        """Return the model: a name on the hub, or one of AIConfigurator's names, such as DEEPSEEK_V3."""
        name = self._data.get("model_path") or self._data.get("model_name")
        if not name:
            because, fix = "an experiment needs exactly one model", "add model_path: NAME"
            allowed = "the name of a model of the Hugging Face hub"
            self._fault(("model_path",), None, allowed, because, fix, "is missing")
            return ""
        entry = catalog.known("models", str(name))
        if entry and (formats := stored_formats(str(name), entry)):
            self._stored = stored = formats.weights
            self._notes.append(f"weights in {stored}, according to the name {name}")
        return entry or str(name)

    def _check_roles(self) -> None:
        """Report pools with different models, machines or engines, because a job has one of each."""
        for key in OF_A_ROLE:
            mine, theirs = self._data.get(f"prefill_{key}"), self._data.get(key)
            if mine is not None and mine != theirs:
                because = "a prediction is for one model, one machine and one engine"
                fix = set_to({f"prefill_{key}": theirs})
                self._fault((f"prefill_{key}",), mine, str(theirs), because, fix)

    def _cluster(self, name: str) -> dict[str, object]:
        """Return the cluster with the devices of the experiment."""
        if not name:
            return {}
        each = catalog.cluster(name).node.devices
        devices = self._number(("total_gpus",), each)
        if devices < each:
            return {"base": name, "nodes": 1, "groups": {"0": {"node": {"devices": devices}}}}
        if devices % each:
            because = f"jobs on several nodes use whole nodes of {each} devices"
            fix = set_to({"total_gpus": devices // each * each})
            self._fault(("total_gpus",), devices, f"a multiple of {each}", because, fix)
        return {"base": name, "nodes": max(devices // each, 1)}

    def _plan(self, mode: str) -> dict[str, object]:
        """Return the plan: formats, drafted tokens, and degrees with a single stated value."""
        config = self._data.get("config")
        config = config if isinstance(config, dict) else {}
        plan = self._formats(WORKERS[mode][-1], config) | self._drafting(config)
        read = {*WORKERS[mode], "nextn", "nextn_accept_rates", "nextn_accepted"}
        self._notes += [f"{self._name}.config.{key} is not used" for key in config if key not in read]
        workers = {key: config[key] for key in WORKERS[mode] if isinstance(config.get(key), dict)}
        degrees = {key: self._degrees(key, worker) for key, worker in workers.items()}
        if mode == "agg":
            return plan | next(iter(degrees.values()), {})
        lists = [worker[key] for worker in workers.values() for key in DEGREES if key in worker]
        searched = any(isinstance(each, list) and len(each) > 1 for each in lists)
        if len(degrees) == len(POOLS) and all("tp" in each for each in degrees.values()) and not searched:
            return plan | dict(zip(POOLS, degrees.values(), strict=True))
        text = "to search separate pools for prefill and decode, run flopcast search --plan pools=yes"
        self._notes.append(text)
        return plan

    def _formats(self, worker: str, config: Mapping[str, object]) -> dict[str, object]:
        """Return number formats: those of the decoding workers, or those of a profile."""
        given = config.get(worker)
        given = given if isinstance(given, dict) else {}
        found: dict[str, object] = {"weights": self._stored} if self._stored else {}
        profiles = self._data.get("profiles")
        for place, profile in enumerate(profiles if isinstance(profiles, list) else ()):
            found["weights"] = self._choice(("profiles", place), PROFILES, "bf16", profile)
        for field, key, formats in (
            ("weights", "gemm_quant_mode", GEMMS),
            ("expert_weights", "moe_quant_mode", GEMMS),
            ("cache", "kvcache_quant_mode", CACHES),
        ):
            if key in given:
                found[field] = self._choice(("config", worker, key), formats, "bf16", given[key])
        return found

    def _drafting(self, config: Mapping[str, object]) -> dict[str, object]:
        """Return the number of tokens that multi-token prediction modules draft, and how many are accepted.

        Each rate is the probability that a drafted token is right, given that those before it are right.
        """
        drafted, rates = config.get("nextn"), config.get("nextn_accept_rates")
        if not isinstance(drafted, int) or not drafted:
            return {}
        mean = config.get("nextn_accepted")  # of the drafted tokens, in the flat layout
        if isinstance(mean, (int, float)):
            return {"draft": "mtp", "drafted": drafted, "accepted": 1.0 + mean}
        accepted, share = 1.0, 1.0
        for rate in rates[:drafted] if isinstance(rates, list) else ():
            share *= float(rate)
            accepted += share
        return {"draft": "mtp", "drafted": drafted} | ({"accepted": accepted} if rates else {})

    def _degrees(self, worker: str, given: Mapping[str, object]) -> dict[str, object]:
        """Return degrees with one value, and note the others."""
        found: dict[str, object] = {}
        for key, word in DEGREES.items():
            values = given.get(key)
            if isinstance(values, list) and len(values) == 1:
                found[word] = values[0]
            elif isinstance(values, list):
                listed = ",".join(map(str, values))
                option = f'--plan "{word}={listed}"'
                written = self._written(worker, key)
                self._notes.append(f"{written} is a list; to search it, run flopcast search FILE {option}")
        return found

    def _written(self, worker: str, key: str) -> str:
        """Return the file's name for a worker's list of degrees."""
        return _flat_list(worker, key) if self._flat else f"{worker}.{key}"

    def _limits(self) -> dict[str, object]:
        """Return the latency limits, which AIConfigurator states for means in milliseconds."""
        limits: dict[str, object] = {}
        for metric in ("ttft", "tpot"):
            if metric in self._data:
                limits[f"{metric}_s"] = f"{self._number((metric,), 0):g} ms"
                limits[f"{metric}_percentile"] = 50
        if limits:
            self._notes.append("limits of mean latencies are treated as limits of median latencies")
        return limits

    def _number(self, path: Path, usual: Number) -> Number:
        value = self._data.get(str(path[0]), usual)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            return value
        because = "this key is a number of tokens, devices or milliseconds"
        fix = f"set {path[0]} to {usual or 1000}"
        self._fault(path, value, "a number above 0", because, fix)
        return usual or 1.0

    def _choice(self, path: Path, known: Mapping[str, str], usual: str, value: object = None) -> str:
        """Return the meaning of a word; an unknown word is a fault."""
        given = self._data.get(str(path[0])) if value is None else value
        if given is None:
            return usual
        if str(given) not in known:
            because = "flopcast does not support other values"
            fix = f"set {path[-1]} to {next(iter(known))}"
            self._fault(path, given, f"one of {', '.join(known)}", because, fix)
            return usual
        return known[str(given)]

    def _fault(
        self, path: Path, value: object, allowed: str, because: str, fix: str, fault: str = ""
    ) -> None:
        field = ".".join(map(str, (self._name, *path)))
        where = self._document.where((self._name, *path))
        self._problems.append(Problem(field, value, allowed, because, fix, where=where, fault=fault))
