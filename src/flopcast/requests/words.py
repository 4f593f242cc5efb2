"""Words of a request that have no option: paths of files, names of models, changes.

Answers: is this word a path, the name of a model, or a change of the job?
Elsewhere: what files contain (sources.py), the entries that names mean (library/catalog.py).

A file has priority over a model of the same name: `llama-3-8b` is the folder of that name if there is one.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from flopcast.errors import Problem, SpecError, shown
from flopcast.files.inputs import PIPED, exists, is_missing, similar_files
from flopcast.files.nearest_names import alternatives
from flopcast.fixes import Fix, write
from flopcast.library import catalog
from flopcast.records import replace
from flopcast.requests.graph_models import is_in_catalogue
from flopcast.requests.job_request import JobRequest
from flopcast.spec.graph_file import ENDINGS as GRAPHS
from flopcast.spec.job import Job

SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch", ".job")
ENDINGS = (".json", ".yaml", ".yml", ".toml", ".py", *GRAPHS, *SCRIPTS)
CONFIG = "config.json"
WEIGHTS = re.compile(r"\.(safetensors|bin|pth?|ckpt|gguf|index\.json)$")
OF_A_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
OF_HUGGING_FACE = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/")  # begins an address
NEAR = 3  # names that an error suggests
BETWEEN_CHANGES = re.compile(rf"[,;]?\s+(?=(?:\w+(?:\.[\w-]+)+|{'|'.join(Job.model_fields)})=)")
OF_TIMM = re.compile(r"(vit|deit|beit|swin|resne|convnext|efficientnet|mobilenet|regnet|densenet|vgg)\w*$")


def separate_changes(text: str) -> list[str]:
    """Split a text into its changes KEY=VALUE, which spaces separate. Values may also contain spaces.

    >>> separate_changes("plan.recompute=full cluster.price=2 USD/h")
    ['plan.recompute=full', 'cluster.price=2 USD/h']
    """
    return BETWEEN_CHANGES.split(text.strip())


def is_path(text: str) -> bool:
    """Return whether a text that could name a catalogue entry is a path, because it has a folder or a
    suffix.

    "-" is a path. A text in the form OWNER/NAME of the hub is a path only if there is such a file.

    >>> is_path("./config.json"), is_path("qwen2.5-7b"), is_path("meta-llama/Llama-3-8B")
    (True, False, False)
    """
    if not text:
        return False
    if text == PIPED or exists(text) or Path(text).suffix in ENDINGS:
        return True
    return "/" in text and not OF_A_HUB.fullmatch(text)


def is_model(text: str) -> bool:
    """Return whether a text is a model name for `--model` and not a path.

    >>> is_model("llama-3-8b"), is_model("meta-llama/Meta-Llama-3-8B"), is_model("job.yaml")
    (True, True, False)
    """
    return not is_path(text) and catalog.known("models", text) is not None


def is_command(text: str) -> bool:
    """Return whether a text is a command that starts a serving engine and not a path.

    >>> is_command("vllm serve meta-llama/Llama-3.1-8B -tp 2"), is_command("llama-3.1-8b")
    (True, False)
    """
    if len(text.split()) < 2 or exists(text):
        return False
    from flopcast.interop.serving.kinds import has_command  # a name or a path needs no engine

    return has_command(text)


def files_and_changes(words: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words of a command line that are files of the job or its model, and those that are
    changes.

    The first word is a file or a model unless it has the form of a change; later words are files if these
    exist, and models if these are known. A command that starts a serving engine counts as a file.
    """
    files = tuple(
        word
        for place, word in enumerate(words)
        if (exists(word) and not (place and "=" in word))
        or not (place or "=" in word or word.startswith("plan."))
        or is_command(word)
        or (place and is_model(word))
        or ("=" not in word and WEIGHTS.search(word))
    )
    changes: list[str] = []
    for word in (each for each in words if each not in files):
        if changes and "=" not in word and re.fullmatch(r"[a-z]\w*\.[\w.]+", changes[-1]):
            changes[-1] += f" {word}"  # one error for a key and its value without an equals sign
        else:
            changes.append(word)
    return files, tuple(changes)


def with_named_model(request: JobRequest) -> JobRequest:
    """Return the request with the model among its files as its `model`.

    Raises
    ------
    SpecError
        A word is neither a file nor a model, or there are two models.
    """
    models = [word for word in request.files if is_model(word)]
    known = [*models, *filter(is_command, request.files)]
    problems = [_unknown(word) for word in request.files if word not in known and _is_wrong(word)]
    named = [*models, *([] if request.model is None else [request.model])]
    if models and len(named) > 1:
        allowed, because = "one model", "a job has exactly one model"
        right = [name for name in named if is_model(str(name)) or exists(str(name))]
        fix = f"leave out {' or '.join(map(str, right if len(right) == 2 else named[1:]))}"
        fault = f"= {shown(named[0])} and also {shown(named[1])}"
        problems.append(Problem("model", named[1], allowed, because, fix, fault=fault))
    if problems:
        raise SpecError(problems)
    if not models:
        return request
    files = tuple(word for word in request.files if word not in models)
    return replace(request, files=files, model=models[0])


def _is_wrong(word: str) -> bool:
    """Return whether a word is neither a file, a folder nor a graph of the catalogue, or is a file with
    weights.
    """
    return (is_missing(word) and not is_in_catalogue(word)) or WEIGHTS.search(word) is not None


def without_config(path: str, place: Path, where: str = "") -> Problem:
    """Return the fault of a model that is a file with weights, or a folder without a configuration."""
    is_folder = place.is_dir()
    fault = f"{shown(path)} {'is a folder without ' + CONFIG if is_folder else 'holds weights'}"
    because = "the configuration describes the model, and flopcast reads no weights"
    near = place if is_folder else place.parent
    fix = f"copy {CONFIG} from the Hugging Face page of the model to {near / CONFIG}"
    fix = fix if is_folder else f"{fix}, and give it in place of {path}"
    fix = fix if is_folder or not exists(str(near / CONFIG)) else f"give {near / CONFIG} instead"
    return Problem("model", path, f"the path of a {CONFIG}, or its folder", because, fix, where, fault)


def _unknown(word: str) -> Problem:
    """Return the fault of a word that is neither a file nor a model, with the nearest names of either."""
    because = "there is no file with this name, and no model in the catalogue"
    fault = f"{shown(word)} was not found"
    if WEIGHTS.search(word):
        return without_config(word, Path(word))
    from flopcast.interop.graphs.named import is_name  # only an error needs it

    named = f"timm:{word}" if OF_TIMM.match(word) and not is_path(word) else word
    if is_name(named):
        file = f"{re.split('[:/]', named.rstrip('/'))[-1]}.yaml"
        because = "only flopcast import graph builds models of other libraries"
        fix = f"run flopcast import graph {named} -o {file}, and predict {file}"
        return Problem("job", word, "a file that exists, or a model", because, fix, fault=fault)
    if re.match(r"(plan|batch|model|cluster|stack|site)\.\w", word) and not is_path(word):
        allowed, because = "KEY=VALUE, such as plan.tensor_parallel=4", "a change of the job needs a value"
        from flopcast.files.field_examples import EXAMPLES

        return Problem(
            "argument", word, allowed, because, write(EXAMPLES.get(word.partition(".")[2], "2"), word)
        )
    if OF_HUGGING_FACE.match(word) and is_model(name := OF_HUGGING_FACE.sub("", word)):
        return Problem("job", word, "a file that exists, or a model", because, write(name), fault=fault)
    if is_path(word):
        near = [str(each) for each in similar_files(Path(word), most=NEAR)]
        fix = f"did you mean {alternatives(near)}?" if near else "check the path"
        stem = Path(word).with_suffix("").name
        if is_model(stem):
            fix = Fix(f"write {stem}, the model of the catalogue", ({"": stem},))
        allowed = "a file that exists, or a model (flopcast catalog models)"
        return Problem("job", word, allowed, because, fix, fault=fault)
    problem = catalog.unknown_name("models", word)
    allowed = f"a file that exists, or a model: {problem.allowed}"
    return Problem("job", word, allowed, because, problem.fix, fault=fault)
