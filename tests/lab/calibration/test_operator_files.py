"""What the files of operator times measure, against the table of shapes in the data's own README."""

import numpy as np
from all_cases import all_cases

from flopcast.cli.measurement_folder import SYSTEMS
from flopcast.lab.calibration.operator_files import BROKEN, FILES, kept_rows
from flopcast.lab.samples.columns import read_columns

A100, GH200 = "perlmutter-a100-sxm4-80gb", "vista-gh200"
VOCABULARY_SHARD = {1: 50304, 2: 50432, 4: 50688, 8: 51200, 16: 51200}  # whole table of tp ranks
GRID = {  # rows as (tp, micro_batch, seq_len, hidden, heads, layers), from the grid that was measured
    "tp": [1.0, 2.0, 4.0, 8.0, 16.0, 1.0],
    "micro_batch": [2.0, 4.0, 8.0, 4.0, 8.0, 8.0],
    "seq_len": [1024.0, 2048.0, 1536.0, 4096.0, 5120.0, 3072.0],
    "hidden": [2048.0, 4096.0, 6144.0, 8192.0, 8192.0, 2560.0],
    "heads": [16.0, 32.0, 48.0, 64.0, 64.0, 40.0],
    "layers": [4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
}


def shard(tp):
    """Rows of the embedding table on one rank: the padded vocabulary over tp."""
    return VOCABULARY_SHARD[int(tp)] / tp


def gemm(m, n, k):
    """FLOP, and bytes of three 16-bit matrices."""
    return 2 * m * n * k, 2 * (m * k + k * n + m * n)


def streamed(elements, passes):
    """No FLOP, and some passes over a 16-bit tensor."""
    return 0.0, 2 * passes * elements


README = {  # file → (FLOP, bytes) of a row (tp, b, s, h, a, layers): the column "shape" of the README
    "linear_qkv": lambda t, b, s, h, a, _: gemm(b * s, 3 * h / t, h),
    "linear_attn_out": lambda t, b, s, h, a, _: gemm(b * s, h, h / t),
    "linear_mlp_up": lambda t, b, s, h, a, _: gemm(b * s, 4 * h / t, h),
    "linear_mlp_down": lambda t, b, s, h, a, _: gemm(b * s, h, 4 * h / t),
    "linear_lm_head": lambda t, b, s, h, a, _: gemm(b * s, shard(t), h),
    "attn_scores_baddbmm": lambda t, b, s, h, a, _: tuple(b * (a // t) * x for x in gemm(s, s, h // a)),
    "attn_context_bmm": lambda t, b, s, h, a, _: tuple(b * (a // t) * x for x in gemm(s, h // a, s)),
    "flash_attention": lambda t, b, s, h, a, _: (4 * b * (a / t) * s**2 * (h // a), 8 * b * s * h / t),
    "mask_fill": lambda t, b, s, h, a, _: streamed(b * (a // t) * s**2, 2),
    "softmax": lambda t, b, s, h, a, _: streamed(b * (a // t) * s**2, 2),
    "scaled_upper_triang_masked_softmax": lambda t, b, s, h, a, _: streamed(b * (a // t) * s**2, 2),
    "layernorm": lambda t, b, s, h, a, _: streamed(b * s * h, 2),
    "gelu": lambda t, b, s, h, a, _: streamed(4 * b * s * h / t, 2),
    "residual_add": lambda t, b, s, h, a, _: streamed(b * s * h, 3),
    "embedding": lambda t, b, s, h, a, _: streamed(b * s * h, 2),
    "parallel_cross_entropy": lambda t, b, s, h, a, _: streamed(b * s * shard(t), 2),
    "optimizer_first_stage": lambda t, b, s, h, a, n: (0.0, 14 * (n * 12 * h**2 / t + shard(t) * h)),
}
UNFUSED = {"rmsnorm", "rope"}  # chains of kernels: their bytes are a convention of our own


@all_cases("file", README)
def test_a_file_measures_the_work_that_its_readme_says(file):
    columns = {name: np.array(values)[:, None] for name, values in GRID.items()}
    rows = list(zip(*GRID.values(), strict=True))

    work = FILES[file].forward(columns).work()

    flop, moved_bytes = np.array([README[file](*row) for row in rows]).T
    np.testing.assert_allclose(np.broadcast_to(work.flop, (6, 1)).ravel(), flop)
    np.testing.assert_allclose(work.moved_bytes.ravel(), moved_bytes)
    assert work.unit == "fp16"


def test_every_file_is_described_here():
    assert set(README) | UNFUSED == set(FILES)


@all_cases("file", sorted(UNFUSED))
def test_a_chain_of_kernels_moves_more_than_one_kernel_would(file):
    columns = {name: np.array(values)[:, None] for name, values in GRID.items()}

    work = FILES[file].forward(columns).work()

    tensor_bytes = 2 * columns["micro_batch"] * columns["seq_len"] * columns["hidden"]
    assert (work.moved_bytes >= 2 * tensor_bytes / columns["tp"]).all()


@all_cases("file", FILES)
@all_cases("system", SYSTEMS)
def test_every_file_exists_with_the_columns_that_it_needs(shared, system, file):
    columns = read_columns(shared / "data" / "operators" / system / f"{file}.csv").columns
    columns.setdefault("tp", np.ones_like(next(iter(columns.values()))))

    operator = FILES[file].forward({name: values[:, None] for name, values in columns.items()})

    assert FILES[file].seconds in columns
    assert ("bwd_us" in columns) or not FILES[file].measures_backward
    assert operator.work().moved_bytes.shape[0] == len(columns["tp"])
    assert all((coordinate > 0).all() for coordinate in operator.coordinates())


@all_cases(("system", "file", "which"), BROKEN)
def test_what_is_called_broken_exists(shared, system, file, which):
    columns = read_columns(shared / "data" / "operators" / system / f"{file}.csv").columns

    keep = kept_rows(system, file, which, columns)

    column = FILES[file].seconds if which == "forward" else "bwd_us"
    assert keep.shape == columns[column].shape
    assert keep.dtype == bool
    assert not keep.all()


@all_cases(
    ("system", "file", "which", "rows"),
    [  # data/README.md, known defects
        (GH200, "mask_fill", "forward", 630 + 400),  # defect 5: halves and quarters
        (GH200, "softmax", "forward", 365),  # defect 4
        (GH200, "softmax", "backward", 365),
        (A100, "flash_attention", "backward", 1),  # defect 10
    ],
)
def test_as_many_rows_are_left_out_as_the_readme_counts(shared, system, file, which, rows):
    columns = read_columns(shared / "data" / "operators" / system / f"{file}.csv").columns

    keep = kept_rows(system, file, which, columns)

    assert (~keep).sum() == rows


@all_cases(
    ("file", "which"),
    [  # defects 0, 1, 2 and 4
        ("layernorm", "backward"),
        ("flash_attention", "backward"),
        ("optimizer_first_stage", "forward"),
        ("embedding", "forward"),
        ("embedding", "backward"),
    ],
)
def test_no_row_of_a_pass_that_is_wrong_throughout_is_kept(file, which):
    keep = kept_rows(GH200, file, which, {"fwd_us": np.ones(5), "bwd_us": np.ones(5)})

    assert keep.tolist() == [False] * 5


@all_cases(("system", "file", "which"), BROKEN)
def test_every_defect_names_its_number_in_the_readme(system, file, which):
    _, why = BROKEN[system, file, which]

    assert why.startswith("defect ")
    assert why.removeprefix("defect ").partition(":")[0].isdigit()
    assert system in SYSTEMS
    assert file in FILES
    assert which in ("forward", "backward")


def test_files_without_a_defect_keep_every_row():
    columns = {"fwd_us": np.arange(1.0, 5.0), "bwd_us": np.arange(1.0, 5.0)}

    assert kept_rows(GH200, "gelu", "forward", columns).all()
    assert kept_rows("elsewhere", "flash_attention", "backward", columns).all()


def test_a_copy_of_the_forward_is_not_taken_for_a_measured_backward():
    """data/README.md: `bwd_us` of residual_add is a copy of `fwd_us`."""
    assert not FILES["residual_add"].measures_backward
