"""Embedding tables of a graph that are sharded over ranks: elements, look-ups and messages by hand."""

import numpy as np
import pytest
from conftest import make_job
from graph_cases import graph_of, node, tensor

from flopcast.errors import SpecError
from flopcast.graph.model_of_graph import model_of_graph
from flopcast.layers.tables import fullest_share
from flopcast.library.curves import load_book
from flopcast.operators.messages import AllToAll, IndexExchange, ReduceScatter
from flopcast.prediction import memory_of, predict, programs_of
from flopcast.search.default_plan import choose
from flopcast.spec.checkpoints import Checkpoint
from flopcast.workload.saved_states import saved_states

ROWS, WIDTH, LOOK_UPS, SAMPLES = (4000, 3000, 1000), 32, (4, 2, 1), 2
BATCH, RANKS = 64, 8  # samples of a rank
INDEX_BYTES, HALF_BYTES, FLOAT_BYTES = 8, 2, 4
ELEMENTS = sum(rows * WIDTH for rows in ROWS)
WAYS = ("table", "balanced", "row", "column")
BUSIEST = RANKS * max(LOOK_UPS) / sum(LOOK_UPS)  # vectors of the rank with the first table, over the mean


def model():
    """Three look-ups, joined and multiplied with one matrix."""
    looked = sum(LOOK_UPS)
    tensors = [tensor("joined", SAMPLES, looked * WIDTH), tensor("y", SAMPLES, 16)]
    tensors += [tensor("matrix", looked * WIDTH, 16, parameter=True)]
    nodes = []
    for number, (rows, times) in enumerate(zip(ROWS, LOOK_UPS, strict=True)):
        tensors += [
            tensor(f"table{number}", rows, WIDTH, parameter=True),
            tensor(f"indices{number}", SAMPLES, times, dtype="int64"),
            tensor(f"rows{number}", SAMPLES, times, WIDTH),
        ]
        nodes.append(node("embedding", f"table{number} indices{number}", f"rows{number}"))
    nodes.append(node("concatenate", "rows0 rows1 rows2", "joined"))
    nodes.append(node("matmul", "joined matrix", "y"))
    inputs = " ".join(f"indices{number}" for number in range(len(ROWS)))
    return model_of_graph(graph_of(tensors, nodes, inputs=inputs, samples=SAMPLES))[0]


def job(tables="", samples=BATCH, whole=0, **changes):
    degree = f"ep={RANKS} tables={tables} whole_tables={whole}" if tables else ""
    plan = f"dp={RANKS} {degree} mbs={samples} gbs={samples * RANKS} precision=bf16 optimizer=sgd"
    batch = {"sequence_length": 1}
    return make_job(model=model() | changes, plan=plan, batch=batch, stack="torch-fsdp2")


def items(found, phase):
    return [item for layer in programs_of(found).layers for item in getattr(layer, phase)]


def sent(found, kind, phase="forward"):
    """Bytes of all messages of a kind in one micro-batch."""
    works = [item.work for item in items(found, phase)]
    return sum(work.message_bytes.item() for work in works if type(work) is kind and work.collective)


def test_ranks_hold_all_rows_once_and_a_number_for_each_row():
    for tables in ("balanced", "row", "column"):
        held = programs_of(job(tables)).narrow_parameters["fp32"].item()
        assert held * RANKS == pytest.approx(ELEMENTS + sum(ROWS), rel=1e-12)

    fullest = programs_of(job("table")).narrow_parameters["fp32"].item()
    assert fullest == pytest.approx((ELEMENTS + sum(ROWS)) * 4000 / sum(ROWS), rel=1e-12)


def test_the_gradient_of_a_whole_table_does_not_grow_with_the_batch():
    """Its rows grow: the gradient of each is read and added."""
    moved = [
        sum(
            item.work.work().moved_bytes.item()
            for item in items(job(samples=samples), "backward")
            if item.name.startswith("embedding.") and item.name.endswith(".dgrad")
        )
        for samples in (BATCH, 2 * BATCH, 3 * BATCH)
    ]

    rows = 2 * BATCH * sum(LOOK_UPS) * WIDTH * HALF_BYTES
    assert moved[1] - moved[0] == pytest.approx(rows, rel=1e-9)
    assert moved[2] - moved[1] == pytest.approx(rows, rel=1e-9)
    assert moved[0] - rows >= ELEMENTS * HALF_BYTES


def test_ranks_hold_numbers_of_tables_that_differ_by_at_most_one():
    """With 26 equal look-ups, the fullest of 8 ranks has 4 of them, and of 16 ranks 2."""
    tables = [float(number) for number in range(26)]
    shares = fullest_share(tables, np.array([[8.0], [16.0], [32.0]]), [1.0] * 26)
    assert (26 * shares).ravel().tolist() == pytest.approx([4.0, 2.0, 1.0])


def test_tables_are_packed_no_worse_than_by_the_largest_and_the_mean():
    sizes = [7.0, 6.0, 5.0, 4.0, 3.0, 3.0]
    for ranks in range(1, 9):
        share = fullest_share(sizes, np.array([[float(ranks)]])).item()

        least = max(max(sizes) / sum(sizes), 1.0 / ranks)
        assert least <= share <= least + max(sizes) / sum(sizes)


def test_small_tables_that_are_whole_send_nothing_and_have_gradients_like_other_weights():
    """The smallest of three tables, with one look-up of a sample."""
    shared = ELEMENTS - ROWS[2] * WIDTH
    for tables in WAYS:
        found = job(tables, whole=ROWS[2] * WIDTH)
        programs, all_shared = programs_of(found), programs_of(job(tables))
        busiest = RANKS * LOOK_UPS[0] / sum(LOOK_UPS[:2]) if tables == "table" else 1.0
        vectors = BATCH * sum(LOOK_UPS[:2]) * WIDTH * HALF_BYTES * busiest
        kept = programs.trained_parameters - all_shared.trained_parameters

        assert kept.item() == ROWS[2] * WIDTH
        if tables == "table":
            fullest = ROWS[0] * (WIDTH + 1)
            assert programs.narrow_parameters["fp32"].item() == pytest.approx(fullest)
        else:
            assert programs.narrow_parameters["fp32"].item() * RANKS == pytest.approx(
                shared + sum(ROWS[:2])
            )
        assert sent(found, AllToAll) + sent(found, ReduceScatter) / RANKS == pytest.approx(vectors)
        degree = RANKS if tables == "column" else busiest
        indices = BATCH * sum(LOOK_UPS[:2]) * INDEX_BYTES
        assert sent(found, IndexExchange) == pytest.approx(indices * degree)


def test_whole_tables_without_shared_ones_are_an_error():
    with pytest.raises(SpecError, match="remove whole_tables"):
        predict(make_job(plan="dp=8 mbs=1 gbs=8 whole_tables=100"), load_book())


def test_vectors_of_all_samples_travel_forward_and_their_gradients_back():
    vectors = BATCH * sum(LOOK_UPS) * WIDTH * HALF_BYTES
    for tables, busiest in (("table", BUSIEST), ("balanced", 1.0), ("column", 1.0)):
        found = job(tables)
        assert sent(found, AllToAll) == pytest.approx(vectors * busiest)
        assert sent(found, AllToAll, "backward") == pytest.approx(vectors * busiest)
    rows = job("row")
    assert sent(rows, ReduceScatter) == vectors * RANKS  # partial sums of the samples of all ranks
    assert sent(rows, AllToAll) == 0


def test_indices_travel_to_the_ranks_that_hold_their_rows_and_have_no_gradient():
    """A row, or a whole table, is on one rank; all ranks have columns of a row."""
    for tables, ranks in (("table", BUSIEST), ("balanced", 1), ("row", 1), ("column", RANKS)):
        found = job(tables)

        indices = BATCH * sum(LOOK_UPS) * INDEX_BYTES
        assert sent(found, IndexExchange) == pytest.approx(indices * ranks)
        assert sent(found, IndexExchange, "backward") == 0


def test_only_rows_that_were_looked_up_are_updated():
    """Rows in fp32 are read forward, and read and written backward; vectors move once a pass.

    Vectors of tables and columns are also copied: read and written once more.
    """
    mean = BATCH * sum(LOOK_UPS) * WIDTH
    indices = BATCH * sum(LOOK_UPS)
    counts = (
        ("table", BUSIEST, 3 * mean * BUSIEST, indices * BUSIEST),
        ("balanced", 1, mean, indices),
        ("column", 1, 3 * mean, indices * RANKS),
        ("row", 1, mean * RANKS, indices),
    )
    for tables, busiest, written, indices_read in counts:
        rows = mean * busiest
        moved = {
            phase: sum(
                item.work.work().moved_bytes.item()
                for item in items(job(tables), phase)
                if item.name.startswith("embedding.") and hasattr(item.work, "family")
            )
            for phase in ("forward", "backward")
        }
        vectors_bytes = written * HALF_BYTES + indices_read * INDEX_BYTES
        assert moved["forward"] == pytest.approx(rows * FLOAT_BYTES + vectors_bytes, rel=1e-9)
        assert moved["backward"] == pytest.approx(2 * rows * FLOAT_BYTES + vectors_bytes, rel=1e-9)


def test_sharded_tables_have_no_gradients_and_take_less_memory_and_time():
    whole = job()
    book = load_book(whole.cluster)
    for tables in WAYS:
        found = job(tables)

        trained = programs_of(found).trained_parameters.item()
        assert trained == sum(LOOK_UPS) * WIDTH * 16  # the matrix
        assert memory_of(found).allocated_bytes < memory_of(whole).allocated_bytes
        assert predict(found, book).breakdown["ep_communication"] > 0.0


def test_a_chosen_plan_shards_tables_only_if_no_device_holds_all_of_them(monkeypatch):
    book = load_book(job().cluster)
    most_rows = job().cluster.node.device.memory_bytes / WIDTH / FLOAT_BYTES
    for rows, tables in ((ROWS, ""), ((int(0.6 * most_rows),) * len(ROWS), "balanced")):
        monkeypatch.setitem(globals(), "ROWS", rows)

        chosen = choose(job(), {"global_batch": BATCH * RANKS}, book).plan

        assert chosen.tables == tables
        assert chosen.expert_parallel == (RANKS if tables else 1)


def test_a_checkpoint_holds_the_tables_of_every_rank_once():
    for tables in ("row", "column"):
        checkpoint, programs = Checkpoint(), programs_of(job(tables))

        saved = saved_states(programs, checkpoint, node_ranks=8).written_bytes.sum()

        matrix = sum(LOOK_UPS) * WIDTH * 16
        assert saved == pytest.approx(FLOAT_BYTES * (ELEMENTS + sum(ROWS)) + 6 * matrix, rel=0.01)
