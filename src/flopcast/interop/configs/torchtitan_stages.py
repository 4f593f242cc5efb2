"""torchtitan's pipeline: its schedule, the chunks on each stage, and the blocks of each chunk.

Answers: how many chunks are there, and which blocks does each contain?
Elsewhere: all other settings of a file (torchtitan.py), the check of the division (spec/rules_stages.py).

References
----------
pytorch/torchtitan, torchtitan/distributed/pipeline_parallel.py: `generate_llm_fqn_per_model_part` counts
the embedding and the output as layers, and gives the remaining layers to the first chunks.
"""

import re
from itertools import pairwise

from flopcast.interop.configs.job_reader import JobReader
from flopcast.library import catalog
from flopcast.schedules import SCHEDULES
from flopcast.spec.divisors import dealt

NOT_BUILT = ("interleavedzerobubble", "loopedbfs", "pipelineschedulesingle", "pipelineschedulemulti")
SCHEDULE, SPLITS = "pipeline_parallel_schedule", "pipeline_parallel_split_points"
PER_STAGE = "pipeline_parallel_layers_per_stage"
FIRST, LAST = "pipeline_parallel_first_stage_less_layers", "pipeline_parallel_last_stage_less_layers"
SECTIONS = ("parallelism", "experimental", "training")


def key_of(reader: JobReader, name: str) -> str:
    """Return the key of a degree or a pipeline setting in the newest section that has it."""
    return reader.first(*(f"{section}.{name}" for section in SECTIONS))


def read_stages(reader: JobReader, degree_key: str, stages: int) -> None:
    """Read the schedule, the chunks and the blocks of a plan with several pipeline stages.

    Parameters
    ----------
    reader : JobReader
        Receives the fields of the plan, and the faults.
    degree_key : str
        Key of the pipeline-parallel degree.
    stages : int
        Pipeline-parallel degree, which is the number of stages. With one stage, nothing is read.

    Notes
    -----
    The stages follow from the explicit split of the file. Without one, they follow from the number of
    layers of each stage. If the file states neither, the schedule has its smallest number of chunks. The
    embedding and the head count as layers, with the weights in the file.
    """
    if stages < 2:
        return
    key = key_of(reader, SCHEDULE)
    if str(reader.raw(key)).lower() in NOT_BUILT:
        reader.refuse(key, f"the schedule {reader.raw(key)}", 'write "1F1B" or "Interleaved1F1B"')
        return
    schedule = reader.choice(key, reader.words("schedules"), "1f1b")
    reader.put(("plan", "schedule"), schedule, key)
    fewest = chunks = SCHEDULES[schedule].least_chunks
    layers = _layers(reader)
    if reader.has(points := key_of(reader, SPLITS)):
        _split(reader, points, stages, layers)
        return
    first, last = (reader.count(key_of(reader, name), 1, least=0) for name in (FIRST, LAST))
    whole = (layers or 0) + first + last
    each_key = key_of(reader, PER_STAGE)
    if reader.has(each_key) and layers:
        chunks = -(-whole // reader.count(each_key)) // stages
        if chunks < 1 or (chunks > 1) != (fewest > 1):
            allowed = (
                "a number for which each stage has one chunk, or several chunks if the schedule is looped"
            )
            because = f"{whole} layers (with the embedding and the head) are divided over {stages} stages"
            reader.fault(each_key, allowed, because, "remove it")
            return
    if chunks > 1:
        reader.put(("plan", "virtual_stages"), chunks, each_key, key)
    if layers is None:
        text = "blocks are divided evenly over stages, because the model comes from another file"
        reader.assume(text, degree_key)
    elif stages * chunks > whole:
        allowed = f"at most {whole} chunks"
        reader.fault(degree_key, allowed, "each chunk needs at least one layer", "write 1")
    else:
        held = dealt(layers, stages * chunks, (first, last))
        reader.put(("plan", "stage_layers"), list(held), degree_key)


def _layers(reader: JobReader) -> int | None:
    """Return the number of blocks of the model, if the file names a known one."""
    base = reader.part("model").get("base")
    return None if base is None else catalog.model(str(base)).num_blocks


def _split(reader: JobReader, key: str, stages: int, layers: int | None) -> None:
    """Read chunks that begin at named layers, such as "layers.8"."""
    points = [re.fullmatch(r"layers\.([0-9]{1,4})", point) for point in reader.texts(key)]
    starts = [0, *(int(point[1]) for point in points if point), layers or 0]
    held = [after - before for before, after in pairwise(starts)]
    if not all(points) or layers is None or min(held) < 1 or len(held) % stages:
        allowed = (
            "names of layers in the order of the model, such as layers.8, that divide the model into a "
            f"number of chunks that is a multiple of {stages}"
        )
        reader.fault(key, allowed, "each name is the first layer of a chunk", "remove it")
        return
    if len(held) > stages:
        reader.put(("plan", "virtual_stages"), len(held) // stages, key)
    reader.put(("plan", "stage_layers"), held, key)
