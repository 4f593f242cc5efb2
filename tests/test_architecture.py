"""The yardstick, enforced: directions, purity, budgets, names, exports."""

import ast
import sys
from functools import cache

from all_cases import all_cases
from children import ran
from conftest import PACKAGE

import flopcast
from flopcast.cost.collectives.formulas import FORMULAS
from flopcast.cost.kernels.classes import BASES
from flopcast.cost.kernels.fallback_classes import FALLBACK_CLASSES
from flopcast.cost.kernels.features import FEATURES
from flopcast.dtypes import ELEMENT_BYTES
from flopcast.interop.configs.formats import KINDS as IMPORTERS
from flopcast.interop.exports.kinds import KINDS as EXPORTERS
from flopcast.interop.hugging_face.families import FAMILIES
from flopcast.library import catalog
from flopcast.operators.formats import FORMATS
from flopcast.operators.memory_bound import KINDS as KERNEL_KINDS
from flopcast.schedules import SCHEDULES
from flopcast.search.objectives import OBJECTIVES
from flopcast.spec.optimizers import OPTIMIZERS
from flopcast.spec.precision import RECIPES
from flopcast.workload.rewrites import REWRITES

BELOW = {  # folder or module → what it may import of flopcast, besides itself
    "records": set(),
    "fixes": set(),
    "errors": {"fixes", "records", "slips", "units"},
    "slips": {"meant_quantities"},
    "quantities": set(),
    "meant_quantities": {"quantities"},
    "units": {"quantities"},
    "dtypes": set(),
    "kept_results": set(),
    "garbage": set(),
    "field_text": set(),
    "operators": {"errors", "units", "dtypes", "kept_results"},
    "strict_model": {"field_text", "fixes", "quantities", "units"},
    "layers": {"operators", "strict_model"},
    "graph": {"layers"},
    "schedules": {"dtypes", "errors", "strict_model"},
    "spec": {"layers", "schedules"},
    "workload": {"spec"},
    "memory": {"workload"},
    "cost": {"workload"},
    "timeline": {"cost"},
    "serving": {"economics", "memory"},
    "economics": {"timeline"},
    "serving/explain": {"serving", "report"},
    "render/page/table": {"records", "units"},
    "rl": {"prediction", "serving"},
    "report": {"economics", "memory", "render/page/table"},  # a notebook shows a report as a table
    "prediction": {"report"},
    "search": {"prediction"},
    "search/deployments": {"search", "serving"},
    "files": {"errors", "strict_model"},
    "interop/hugging_face": {"files", "spec"},
    "library": {"files", "cost", "interop/hugging_face"},  # models of the hub that have no entry
    "interop/tracing": {"graph"},
    "interop": {"library", "prediction", "serving", "interop/hugging_face", "interop/tracing", "graph"},
    "requests": {"interop", "search", "search/deployments"},
    "workers": {"garbage", "library", "search"},
    "lab/measure": {"cost", "files"},
    "lab/calibration": {"lab/measure"},
    "lab/validation": {"prediction", "lab/calibration"},
    "lab": {"requests", "lab/validation"},
    "render": {"search", "search/deployments", "lab", "serving", "rl", "shared_network"},
    "argument_checks": {"files", "spec"},
    "predictor": {"argument_checks", "library", "prediction"},
    "shared_network": {"report"},
    "api": {"jobs", "predictor", "render", "serving", "rl"},
    "explanations": {"api", "serving/explain"},
    "plans_that_fit": {"api"},
    "best_plans": {"jobs", "library", "search"},
    "placement": {"library", "search"},
    "layout_answers": {"placement", "render", "requests"},
    "best_deployments": {"requests"},
    "accuracy": {"api", "lab"},
    "jobs": {"argument_checks", "requests"},
    "__init__": {"accuracy", "api", "best_deployments", "best_plans", "jobs"},
    "ui": {"accuracy", "best_deployments", "best_plans", "garbage", "layout_answers", "plans_that_fit"},
    "cli": {"best_deployments", "explanations", "ui", "workers"},
    "__main__": {"cli"},
}
EDGES = {
    "files",
    "library",
    "interop",
    "requests",
    "workers",
    "lab",
    "accuracy",
    "argument_checks",
    "predictor",
    "api",
    "explanations",
    "plans_that_fit",
    "best_plans",
    "placement",
    "layout_answers",
    "best_deployments",
    "jobs",
    "ui",
    "cli",
}
PURE = [name for name in BELOW if name not in EDGES | {"__init__", "__main__"}]
IMPURE = {"os", "sys", "time", "random", "socket", "subprocess", "urllib", "pathlib", "tempfile", "shutil"}
UNITS = (
    "_s", "_bytes", "_flop", "_flop_per_s", "_bytes_per_s", "_tokens", "_sequences", "_w", "_j", "_usd",
    "_hz", "_usd_per_hour", "_tokens_per_s", "_per_s",
    "_efficiency", "_error", "_ratio", "_fraction", "_factor", "_share",
)  # fmt: skip
EXPORTS = {
    "Batch", "Cluster", "FlopcastError", "InfeasibleError", "Job", "Model", "Plan", "Predictor", "Problem",
    "Report", "ServingJob", "ServingReport", "Site", "Space", "SpecError", "Stack", "compare", "diagnose",
    "dump_job", "export_job", "job", "load_job", "predict", "predict_memory", "predict_serving",
    "report_page", "search_deployments", "search_plans", "serving_job", "validate_suite",
}  # fmt: skip
FILES = sorted(PACKAGE.rglob("*.py"))
PACKAGES = {".".join(("flopcast", *p.parent.relative_to(PACKAGE).parts)) for p in FILES}


def label(name):
    """The folder, or module, that a module belongs to; the deepest one that BELOW lists."""
    parts = name.removeprefix("flopcast.").split(".")
    return next((p for n in (3, 2, 1) if (p := "/".join(parts[:n])) in BELOW), parts[0])


def module_of(path):
    """A file's module."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


@cache
def tree(path):
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def walked(module):
    """All nodes of a module, which many tests go through."""
    return tuple(ast.walk(module))


def nodes(path):
    """All nodes of a file."""
    return walked(tree(path))


@cache
def allowed(name):
    """Everything below a folder, itself included."""
    return {name}.union(*(allowed(lower) for lower in BELOW[name]))


@cache
def imports(path):
    """Modules that a file imports, typing-only imports included: they too are a direction."""
    found = []
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            in_package = node.module in PACKAGES
            found += [f"{node.module}.{a.name}" for a in node.names] if in_package else [node.module]
    return found


def functions(path):
    return [n for n in nodes(path) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]


@all_cases("path", FILES)
def test_every_file_imports_only_what_lies_below_it(path):
    used = {label(name) for name in imports(path) if name.startswith("flopcast.")}

    assert used <= allowed(label(module_of(path)))


JOBS = (
    "load_job(folder('jobs') / 'paper' / 'llemma-7b-vista-pp4-tp2-dp2.yaml')",
    "job(model='llama-3-8b', cluster='dgx-h100:1', plan='dp=8 gbs=64')",
)


@all_cases("words", JOBS)
def test_a_prediction_loads_neither_serving_nor_formats_nor_measurements_nor_renderers(words):
    program = (
        "import sys; from flopcast import job, load_job, predict; "
        f"from flopcast.library.catalog import folder; predict({words}); print(*sys.modules)"
    )

    loaded = ran([sys.executable, "-c", program], check=True, text=True).stdout.split()

    rooms = {name.split(".")[1] for name in loaded if name.startswith("flopcast.")}
    assert "prediction" in rooms
    assert rooms & {"serving", "interop", "lab", "render", "workers", "ui", "cli"} == set()


@all_cases("name", PURE)
def test_the_core_touches_no_file_clock_or_environment(name):
    mine = [path for path in FILES if label(module_of(path)) == name]
    touched = {f"{p.name}: {m}" for p in mine for m in imports(p) if m.split(".")[0] in IMPURE}
    called = {
        f"{p.name}: {n.func.id}"
        for p in mine
        for n in nodes(p)
        if isinstance(n, ast.Call)
        and isinstance(n.func, ast.Name)
        and n.func.id in ("open", "print", "input")
    }

    assert touched | called == set()


@all_cases("path", FILES)
def test_files_and_functions_stay_small(path):
    lengths = {f.name: f.end_lineno - f.lineno + 1 for f in functions(path)}

    assert len(path.read_text(encoding="utf-8").splitlines()) <= 350
    assert {name: length for name, length in lengths.items() if length > 60} == {}


REGISTERED = {  # what has a name that a user or a catalogue entry writes → the names
    "schedules": tuple(SCHEDULES),
    "kernels": (*BASES, *FEATURES, *FALLBACK_CLASSES, *KERNEL_KINDS),
    "formats": (*FORMATS, *RECIPES, *ELEMENT_BYTES),
    "optimizers": tuple(OPTIMIZERS),
    "collectives": tuple(FORMULAS),
    "rewrites": tuple(REWRITES),
    "importers": tuple(IMPORTERS),
    "exporters": tuple(EXPORTERS),
    "families": tuple(FAMILIES),
    "objectives": tuple(OBJECTIVES),
    **{kind: tuple(catalog.names(kind)) for kind in ("stacks", "models", "devices", "clusters", "hosts")},
}
MAY_COMPARE = {  # a file or a folder → what it may compare with, and the reason
    # the owner of the words: a registry, or the field of a noun that takes them
    "search/usual_training": {"formats"},  # 16 bits of the device's engines
    "spec/precision": {"formats"},
    "spec/cluster": {"formats"},  # peaks of a device, by dtype
    "spec/data_parallel": {"collectives"},
    "spec/expert_software": {"collectives"},
    "operators/exchanges": {"collectives"},
    "layers/base": {"collectives"},  # context_exchange: ring, all_gather, all_to_all
    "layers/context": {"collectives"},
    # other things with the same word: an axis of ranks, a part of a layer, a section of a page
    "cost/placement": {"kernels"},
    "cost/ranks": {"kernels"},
    "cost/host": {"kernels"},
    "cli/validate": {"objectives"},
    "ui/responses": {"objectives"},
    "requests/sources": {"exporters"},
    # a rewrite finds its pattern by the kinds of kernels that it replaces
    "workload/rewrites": {"kernels"},
    "serving/rewrites": {"kernels"},
    "workload/tensor_overlap": {"collectives"},
    # words of other programs, as their files, logs and tables have them; what is made of each is a table
    "interop": {"formats", "families", "kernels", "importers", "exporters"},
    "interop/exports": {
        "formats",
        "optimizers",
        "kernels",
        "collectives",
        "stacks",
    },  # which stacks a program's settings can express
    "interop/megatron": {
        "formats",
        "optimizers",
        "kernels",
        "collectives",
        "importers",
        "exporters",
        "stacks",
        "rewrites",
    },
    "lab": {"formats", "kernels", "collectives"},
}


def words_of(node, constants, deep=3):
    """Texts of an expression: literals, and constants of the module that are literals."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        for part in node.elts:
            yield from words_of(part, constants, deep)
    elif isinstance(node, ast.Starred):
        yield from words_of(node.value, constants, deep)
    elif isinstance(node, ast.Name) and node.id in constants and deep:
        yield from words_of(constants[node.id], constants, deep - 1)


def constants_of(module):
    """Expressions of a module's constants, by name."""
    pairs = [(target, n.value) for n in module.body if isinstance(n, ast.Assign) for target in n.targets]
    for target, value in list(pairs):
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs += zip(target.elts, value.elts, strict=True)
    return {target.id: value for target, value in pairs if isinstance(target, ast.Name)}


COMPARISONS = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)


def compared_names(module):
    """Registered names that a module compares something with: kind and name."""
    constants = constants_of(module)
    for node in walked(module):
        if isinstance(node, ast.Compare) and isinstance(
            node.ops[0], (ast.Eq, ast.NotEq, ast.In, ast.NotIn)
        ):
            sides = (node.left, *node.comparators)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            sides = node.args if node.func.attr in ("startswith", "endswith") else ()
        elif isinstance(node, ast.MatchValue):
            sides = (node.value,)
        else:
            continue
        words = {word for side in sides for word in words_of(side, constants)}
        yield from ((kind, word) for kind, names in REGISTERED.items() for word in words & set(names))


def may_compare(module):
    """What a file may compare with: as its own entry says, or that of the nearest folder."""
    parts = module.replace(".", "/").split("/")
    places = ("/".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((MAY_COMPARE[place] for place in places if place in MAY_COMPARE), set())


@all_cases("path", FILES)
def test_nobody_tests_the_name_of_a_registered_thing_but_its_owner(path):
    allowed_kinds = may_compare(module_of(path))

    by_word = {}
    for kind, word in compared_names(tree(path)):
        by_word.setdefault(word, set()).add(kind)
    assert {word for word, kinds in by_word.items() if not kinds & allowed_kinds} == set()


TESTS_OF_NAMES = """
OLD = ("gpipe", "zb_v")
found = schedule in OLD or kernel.startswith("grouped_gemm") or "flash_attention" == kernel
match precision:
    case "nvfp4":
        pass
"""


def test_a_test_of_a_name_is_found():
    found = {word for _, word in compared_names(ast.parse(TESTS_OF_NAMES))}

    assert found == {"gpipe", "zb_v", "grouped_gemm", "flash_attention", "nvfp4"}
    assert may_compare("timeline.step") == set()


@all_cases("path", FILES)
def test_every_argument_has_a_type_and_every_float_a_unit(path):
    arguments = [a for f in functions(path) for a in f.args.args + f.args.kwonlyargs]
    bare = [a.arg for a in arguments if a.annotation is None and a.arg not in ("self", "cls")]
    floats = [(a.arg, a.annotation) for a in arguments if a.annotation is not None]
    floats += [
        (n.target.id, n.annotation)
        for n in nodes(path)
        if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
    ]
    quantities = {"float", "Floats", "float | None", "Floats | None"}
    unitless = [n for n, kind in floats if ast.unparse(kind) in quantities and not f"_{n}".endswith(UNITS)]

    assert bare == []
    assert unitless == []


@all_cases("path", FILES)
def test_dataclasses_are_frozen_and_nothing_is_asserted_or_swallowed(path):
    thawed = [
        n.name
        for n in nodes(path)
        if isinstance(n, ast.ClassDef)
        and (
            any(
                ast.unparse(d).startswith("dataclass(") and "frozen=True" not in ast.unparse(d)
                for d in n.decorator_list
            )
            or any(keyword.arg == "frozen" for keyword in n.keywords)
        )
        and not n.name.startswith("_")
    ]
    asserts = [n.lineno for n in nodes(path) if isinstance(n, ast.Assert)]

    assert thawed == []
    assert asserts == []


def untyped_attributes(made):
    """Public attributes that a constructor sets to something whose type a reader would have to infer."""
    arguments = {a.arg for a in made.args.args + made.args.kwonlyargs}
    for node in ast.walk(made):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            several = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
            pairs = zip(target.elts, node.value.elts, strict=True) if several else [(target, node.value)]
            for one, value in pairs:
                known = isinstance(value, ast.Constant) or (
                    not several and isinstance(value, ast.Name) and value.id in arguments
                )
                if ast.unparse(one).startswith("self.") and not one.attr.startswith("_") and not known:
                    yield f"self.{one.attr}"


def untyped(module):
    """Public names whose types no annotation states: type checkers infer different ones, or none."""
    for node in walked(module):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            annotations = [a.annotation for a in node.args.args + node.args.kwonlyargs] + [node.returns]
            bare = [a for a in annotations if isinstance(a, ast.Name) and a.id in ("dict", "list", "tuple")]
            yield from (f"{node.name}: {ast.unparse(each)}" for each in bare)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for part in node.body:
                if isinstance(part, ast.FunctionDef) and part.name == "__init__":
                    yield from untyped_attributes(part)
                elif isinstance(part, ast.Assign) and "ConfigDict" in ast.unparse(part.value):
                    yield f"{node.name}.{ast.unparse(part.targets[0])}"
    for node in module.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            lengths = {len(v.elts) for v in node.value.values if isinstance(v, ast.Tuple)}
            name = ast.unparse(node.targets[0])
            if len(lengths) > 1 and not name.startswith("_"):
                yield name


@all_cases("path", FILES)
def test_every_public_name_states_its_type(path):
    """What `pyright --verifytypes flopcast --ignoreexternal` finds in code that mypy accepts."""
    assert list(untyped(tree(path))) == []


def test_a_name_without_a_type_is_found():
    constructor = "class Log:\n def __init__(self, a: int):\n  self.a, self.b = a, f(a)\n"
    text = f"SIZES = {{1: (1,), 2: (1, 2)}}\n{constructor}"

    assert list(untyped(ast.parse(text))) == ["self.a", "self.b", "SIZES"]
    assert (PACKAGE / "py.typed").is_file()


def test_modules_do_not_import_each_other_in_circles():
    names = {".".join(("flopcast", *p.relative_to(PACKAGE).with_suffix("").parts)): p for p in FILES}
    graph = {name: {m for m in imports(path) if m in names and m != name} for name, path in names.items()}
    order: list[str] = []
    while graph.keys() - set(order):
        free = [n for n, needs in graph.items() if n not in order and needs <= set(order)]
        assert free, sorted(graph.keys() - set(order))
        order += free


def test_the_public_names_are_exactly_these_and_all_load():
    assert set(flopcast.__all__) == EXPORTS
    assert len(EXPORTS) <= 30
    assert all(getattr(flopcast, name) is not None for name in EXPORTS)


def test_the_spine_fits_a_screen():
    spine = next(f for f in functions(PACKAGE / "prediction.py") if f.name == "predict")

    assert spine.end_lineno - spine.lineno + 1 <= 25


def test_nothing_is_pickled():
    guilty = [p.name for p in FILES for m in imports(p) if m.split(".")[0] in ("pickle", "shelve", "dill")]

    assert guilty == []
