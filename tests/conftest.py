"""Shared jobs and paths. Jobs are built in memory: no test needs a file that it does not name."""

import contextlib
import gc
import importlib
import os
import signal
import sys
from pathlib import Path

import pytest
from _pytest.outcomes import OutcomeException
from hypothesis import settings

from flopcast.cli.measurement_folder import MeasurementFolder
from flopcast.files.yaml_text import Document
from flopcast.garbage import collect_rarely
from flopcast.lab.published.predictions import PublishedTables
from flopcast.library import catalog
from flopcast.requests.job_files import job_of

pytest_plugins = ["time_limit"]
collect_rarely()  # modules and tests live until the end
settings.register_profile("untimed", deadline=None)  # how busy a machine is says nothing of a claim
settings.load_profile("untimed")
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit SIG_IGN
TESTS = Path(__file__).resolve().parent
REPOSITORY = TESTS.parent
SHARED = REPOSITORY.parent / "shared"
PACKAGE = REPOSITORY / "src" / "flopcast"
BROWSERS, BROWSER_ENDS = [], contextlib.ExitStack()  # the running one, if any


GROUPS = {  # files that one worker runs, one after the other
    "published_runs": (
        "test_accuracy_pages.py",
        "test_collected_runs.py",
        "test_decisions_accuracy.py",
        "test_from_one_run.py",
        "test_functional_tests.py",
        "test_headlines.py",
        "test_held_out_runs.py",
        "test_published.py",
        "test_published_accuracy.py",
        "test_suites.py",
        "test_sweeps.py",
        "test_verdict.py",
    ),
    "waiting": (  # for browsers, servers and other processes: if two workers waited, a core would be idle
        "test_page_in_browser.py",
        "test_in_browser.py",
        "test_every_control.py",
        "test_widgets.py",
        "test_serving_page.py",
        "test_pages.py",
        "test_api_of_server.py",
        "test_hostile_requests.py",
        "test_desk.py",
        "test_clusters.py",
        "test_workers.py",
        "test_kills.py",
        "test_copies.py",
        "test_processes.py",
        "test_run.py",
        "test_wheel.py",
        "test_site.py",
        "test_time_limits.py",
    ),
    "measurements": (
        "test_score.py",
        "test_fitting.py",
        "test_peers.py",
        "test_served_kernels.py",
        "test_decode_attention.py",
    ),
    "sources": ("test_architecture.py", "test_docstrings.py"),  # both go through all nodes of all files
}
GROUP_OF_FIXTURE = {  # a fixture that is too costly to be made twice → the group of all tests that use it
    "published_runs": "published_runs",
    "measurements": "measurements",
    "server": "waiting",
    "chromium": "waiting",
}
FIRST = (  # the longest groups, so that workers end together
    *GROUPS["published_runs"],
    *GROUPS["waiting"],
    "test_docs.py",
    *GROUPS["measurements"],
    *GROUPS["sources"],
    "test_fuzz.py",
    "test_deployments.py",
    "test_screen_is_right.py",
    "test_choose.py",
    "test_sweep_command.py",
    "test_pruning.py",
    "test_uneven.py",
    "test_physical_bounds.py",
    "test_screen.py",
    "test_catalogue_entries.py",
    "test_search_command.py",
    "test_fixes_work.py",
    "test_every_stack.py",
    "test_predict_and_search.py",
    "test_offload_choices.py",
    "test_measured_offload.py",
    "test_notebooks.py",
    "test_kernel_limits.py",
    "test_space.py",
    "test_injected_causes.py",
    "test_slopes_of_factors.py",
    "test_usual_stack.py",
)


def group_of(file):
    """The name of the group of a file, None for most files."""
    return next((name for name, files in GROUPS.items() if file in files), None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """Run one worker more than there are cores: tests of servers, browsers and clusters often wait."""
    return len(os.sched_getaffinity(0)) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Run all tests of a file in one worker, since they share its fixtures; so too those of `GROUPS`.

    pytest-xdist 3.8 overlooks `xdist_group` under pytest 9.2 (pytest-xdist issue 1386).
    """
    from xdist.scheduler import LoadScopeScheduling

    class Grouped(LoadScopeScheduling):
        """Groups in the order of the collected tests."""

        def _split_scope(self, nodeid):
            file = nodeid.partition("::")[0]
            return group_of(Path(file).name) or file

    config.option.loadscopereorder = False
    return Grouped(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session):
    """Import the test files from another one on in every worker, so that each is compiled by one worker.

    Collection goes through the files in one order. Without compiled files all workers would rewrite the
    assertions of every file, which takes three times as long as the rest of collection.
    """
    worker = getattr(session.config, "workerinput", None)
    if worker is None or session.config.args != session.config.getini("testpaths"):
        return
    files = sorted(TESTS.rglob("test_*.py"))
    sys.path[:0] = dict.fromkeys(str(file.parent) for file in files)
    own, workers = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    first = len(files) * own // workers
    for file in files[first:] + files[:first]:
        with contextlib.suppress(Exception, OutcomeException):  # collection tells what is wrong
            importlib.import_module(file.stem)


def pytest_collection_modifyitems(items):
    """Put the longest groups first."""
    for fixture, group in GROUP_OF_FIXTURE.items():
        others = {item.path.name for item in items if fixture in item.fixturenames} - {*GROUPS[group]}
        assert not others, f"add to the group {group}: {others}"
    place = {name: number for number, name in enumerate(FIRST)}
    items.sort(key=lambda item: place.get(item.path.name, len(FIRST)))


def pytest_collection_finish():
    """Leave what lives until the end out of every collection of garbage."""
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish():
    """Collect the garbage of the last tests; pytest, which collects all of it twice, finds little to do.

    Fixtures of the session, which have millions of objects, are left to the end of the process.
    """
    gc.collect(0)
    gc.freeze()


def described_model(*, hidden=1024, vocabulary=50257, count=8, heads=16, mixer=None, **feed_forward):
    """Equal blocks as a job file describes them: a small GPT unless told otherwise."""
    block = {
        "count": count,
        "mixer": mixer or {"heads": heads},
        "feed_forward": feed_forward or {"ffn_hidden": 4 * hidden},
    }
    return {"hidden": hidden, "vocabulary": vocabulary, "blocks": [block]}


def make_job(**parts):
    """A job from its parts; what is not given is a small GPT on one DGX A100."""
    whole = {
        "model": described_model(),
        "cluster": "dgx-a100:1",
        "stack": "megatron-2022",
        "batch": {"sequence_length": 1024},
        "plan": "dp=8 mbs=1 gbs=16 precision=fp16",
    }
    return job_of(Document("test", whole | parts, {}))


@pytest.fixture(scope="session")
def shared():
    """The folder of raw measurements; tests that need it skip where it is absent."""
    if not (SHARED / "data").is_dir():
        pytest.skip("the raw measurements (../shared/data) are not beside this checkout")
    return SHARED


@pytest.fixture(scope="session")
def published_runs(shared):
    """The table of published runs. `judged("none" | "others" | "catalogue")` predicts each way once."""
    return PublishedTables([shared / "validation" / "published_runs.csv"], together=True)


@pytest.fixture(scope="session")
def development_runs(published_runs):
    """The runs that were used to mend the tool; `judged` as of the published ones, by the same worker."""
    return PublishedTables([REPOSITORY / "tests/lab/validation/held_out_runs.csv"])


@pytest.fixture(scope="session")
def collected_runs(published_runs):
    """The tables of runs that were collected before they were predicted, `judged` as the published ones."""
    from accuracy_pages import COLLECTED

    return [PublishedTables([table]) for table in COLLECTED]


@pytest.fixture(scope="session")
def measured(published_runs, development_runs, collected_runs):
    """What the pages of accuracy are made from; each of its parts is computed once."""
    from accuracy_pages import Measured

    return Measured(published_runs, development_runs, collected_runs)


@pytest.fixture(scope="session")
def measurements(shared):
    """The measured tables of kernels and collectives, read once."""
    return MeasurementFolder(shared / "data", lambda _: None)


def zero_of(name):
    """A ZeRO stage that a stack of the catalogue takes: 0, or 1 where it scatters gradients."""
    return int(catalog.stack(name).gradients.collective == "reduce_scatter")


@pytest.fixture
def chromium():
    """A headless Chromium that consecutive tests share. If none is installed, the tests are skipped."""
    from browser_at_hand import running_browser

    if not BROWSERS:
        BROWSERS.append(BROWSER_ENDS.enter_context(running_browser()))
    return BROWSERS[0]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """End the browser before a test that needs none: its driver runs an event loop in this thread.

    After the last test of a group, collections of garbage no longer visit what its fixtures keep.
    """
    if BROWSERS and "chromium" not in getattr(nextitem, "fixturenames", ()):
        BROWSERS.clear()
        BROWSER_ENDS.close()
    group = group_of(item.path.name)
    if group and nextitem and group_of(nextitem.path.name) != group:
        gc.freeze()


@pytest.fixture
def browser(chromium):
    """The browser of several files; no page of a test stays open."""
    from browser_at_hand import left

    yield chromium
    left(chromium)


@pytest.fixture(scope="session")
def server():
    """Host and port of a running `flopcast ui`: one for all tests of a process."""
    from server_at_hand import served

    with served() as address:
        yield address
