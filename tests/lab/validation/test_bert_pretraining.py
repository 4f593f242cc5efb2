"""Published rates of the pre-training of BERT-large on V100 and A100 (collected_bert.csv).

The stack is `xla`, the nearest to TensorFlow with XLA. Only 20 of 128 and 80 of 512 positions are predicted
(`max_predictions_per_seq`), so the head has that share of the vocabulary. The first predictions were blind:
errors of 36 to 47 % in fp32, and of -23 to -48 % in mixed precision.
"""

import csv
from pathlib import Path

from flopcast import job, predict
from flopcast.library import catalog

PREDICTED = {128: 20, 512: 80}  # of the positions of a sequence
LARGEST_ACCUMULATION = 64  # further micro-batches only hide the update more


def bert(tokens):
    """BERT-large, whose head works on the predicted positions only."""
    model = catalog.model("bert-340m")
    return model.model_copy(update={"vocabulary": model.vocabulary * PREDICTED[tokens] // tokens})


def errors(precision):
    """Predicted over published step times, minus 1, by cluster, devices and length."""
    text = Path(__file__).with_name("collected_bert.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(line for line in text.splitlines() if not line.startswith("#")):
        if row["precision"] != precision:
            continue
        tokens, devices, batch = (
            int(row[name]) for name in ("sequence_tokens", "devices", "batch_per_device")
        )
        batch_of_step = batch * devices * min(int(row["accumulation"]), LARGEST_ACCUMULATION)
        cluster, changes = row["cluster"].removesuffix("-40gb"), []
        if cluster != row["cluster"]:
            changes = ["cluster.groups[0].node.device=a100-sxm4-40gb"]
        form = "fp32" if precision == "fp32" else "fp16"
        plan = f"dp={devices} mbs={batch} gbs={batch_of_step} precision={form}"
        options = {"cluster": cluster, "gpus": devices, "seq": tokens, "stack": "xla", "changes": changes}
        step_s = predict(job(model=bert(tokens), plan=plan, **options)).clean_step_time_s
        yield (row["cluster"], devices, tokens), step_s * float(row["sequences_per_s"]) / batch_of_step - 1


def test_fp32_products_of_v100_have_their_own_measured_rate():
    """With the mean ratio of eight devices, the errors are 36 to 47 %."""
    found = dict(errors("fp32"))

    assert len(found) == 7
    assert all(0 < error < 0.17 for error in found.values()), found


def test_mixed_precision_of_tensorflow_takes_longer_than_predicted():
    """The cause is open; the scaling over nodes is near the published one."""
    found = dict(errors("mixed"))

    assert len(found) == 19
    assert all(-0.49 < error < -0.22 for error in found.values()), found
    for tokens in (128, 512):
        near, far = (1 + found["dgx-a100-40gb", devices, tokens] for devices in (8, 256))
        assert 0.87 < far / near < 1.0, tokens
