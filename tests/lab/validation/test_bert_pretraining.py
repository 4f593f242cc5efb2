"""Published rates of the pre-training of BERT-large on V100 and A100 (collected_bert.csv).

The stack is `xla`, the nearest to TensorFlow with XLA. Only 20 of 128 and 80 of 512 positions are predicted
(`max_predictions_per_seq`), so the head has that share of the vocabulary. The first predictions were blind:
errors of 36 to 47 % in fp32, and of -23 to -48 % in mixed precision.

In mixed precision, the script waits in each micro-batch until all gradients were found to be finite, and
then starts another run of the session (TensorFlow/LanguageModeling/BERT/optimization.py). In fp32, it
checks nothing.
"""

import csv
from pathlib import Path
from statistics import median

import pytest

from flopcast import job, predict
from flopcast.library import catalog

PREDICTED = {128: 20, 512: 80}  # of the positions of a sequence
LARGEST_ACCUMULATION = 64  # further micro-batches only hide the update more


def bert(tokens):
    """BERT-large, whose head works on the predicted positions only."""
    model = catalog.model("bert-340m")
    return model.model_copy(update={"vocabulary": model.vocabulary * PREDICTED[tokens] // tokens})


SESSION_S = {"dgx-2": 79e-3, "dgx-a100-40gb": 87e-3}  # of a micro-batch, fitted to one cluster each


def steps(precision, session_s=0.0):
    """Predicted and published seconds of a micro-batch, by cluster, devices and length."""
    text = Path(__file__).with_name("collected_bert.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(line for line in text.splitlines() if not line.startswith("#")):
        if row["precision"] != precision:
            continue
        tokens, devices, batch = (
            int(row[name]) for name in ("sequence_tokens", "devices", "batch_per_device")
        )
        micro_batches = min(int(row["accumulation"]), LARGEST_ACCUMULATION)
        batch_of_step = batch * devices * micro_batches
        cluster = row["cluster"].removesuffix("-40gb")
        changes = [f"stack.optimizer.step_host_s={1e-3 + micro_batches * session_s}s"]
        if cluster != row["cluster"]:
            changes += ["cluster.groups[0].node.device=a100-sxm4-40gb"]
        form = "fp32" if precision == "fp32" else "fp16"
        plan = f"dp={devices} mbs={batch} gbs={batch_of_step} precision={form}"
        options = {"cluster": cluster, "gpus": devices, "seq": tokens, "stack": "xla", "changes": changes}
        step_s = predict(job(model=bert(tokens), plan=plan, **options)).clean_step_time_s
        published_s = batch * devices / float(row["sequences_per_s"])
        yield (row["cluster"], devices, tokens), (step_s / micro_batches, published_s)


def errors(found):
    """Predicted over published times, minus 1."""
    return {key: predicted_s / published_s - 1 for key, (predicted_s, published_s) in found}


def test_fp32_products_of_v100_have_their_own_measured_rate():
    """With the mean ratio of eight devices, the errors are 36 to 47 %."""
    found = errors(steps("fp32"))

    assert len(found) == 7
    assert all(0 < error < 0.17 for error in found.values()), found


@pytest.fixture(scope="module")
def kernels():
    """Times without those of sessions."""
    return dict(steps("mixed"))


def test_the_same_time_is_missing_on_v100_and_a100_and_for_both_lengths(kernels):
    """The unexplained time of a micro-batch is 65 to 103 ms; its kernels take 104 to 251 ms."""
    assert len(kernels) == 19
    for cluster, fitted_s in SESSION_S.items():
        missing = [
            published_s - kernels_s
            for (name, *_), (kernels_s, published_s) in kernels.items()
            if name == cluster
        ]
        assert median(missing) == pytest.approx(fitted_s, abs=1e-3)
        assert 0.064 < min(missing) < max(missing) < 0.104


def test_mixed_precision_with_a_session_that_was_fitted_to_the_other_cluster():
    """Median 3.3 %; the largest errors belong to 128 and 256 devices."""
    found = {}
    for cluster, other in (("dgx-2", "dgx-a100-40gb"), ("dgx-a100-40gb", "dgx-2")):
        both = errors(steps("mixed", SESSION_S[other]))
        found |= {key: error for key, error in both.items() if key[0] == cluster}

    assert len(found) == 19
    assert median(map(abs, found.values())) < 0.05
    assert max(map(abs, found.values())) < 0.12


def test_the_scaling_over_nodes_is_near_the_published_one(kernels):
    found = errors(kernels.items())
    for tokens in (128, 512):
        near, far = (1 + found["dgx-a100-40gb", devices, tokens] for devices in (8, 256))
        assert 0.87 < far / near < 1.0, tokens
