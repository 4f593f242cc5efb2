"""Steps that once fell as latency rose, and that overlap once made longer than its absence."""

from flopcast import job, predict

SMALL = {
    "model": "llama-2-7b",
    "cluster": "dgx-b200",
    "gpus": 16,
    "stack": "megatron-bridge",
    "seq": 1024,
    "plan": "dp=2 tp=2 cp=2 pp=2 mbs=2 gbs=8 zero=1 precision=fp16",
}
EXPERTS = {
    "model": "mixtral-8x7b",
    "cluster": "perlmutter",
    "gpus": 256,
    "stack": "composer-llm-foundry",
    "seq": 1024,
    "plan": "dp=8 tp=8 ep=4 pp=4 mbs=1 gbs=8 sp precision=bf16",
}


def step_s(words, *changes):
    return predict(job(**words, changes=list(changes))).step_time_s


def test_a_step_is_no_shorter_the_longer_the_latency_of_either_tier():
    for tier in (0, 1):
        steps = [step_s(SMALL, f"cluster.tiers.{tier}.latency_s={us} us") for us in (1, 5, 20, 50, 200)]

        assert steps == sorted(steps)
        assert (steps[-1] > steps[0]) == (tier == 1)  # inside a node, a measured curve holds it


def test_kernels_that_share_with_messages_lose_less_than_without_any_overlap():
    alone = step_s(EXPERTS, "stack.gradients.overlap=false")
    steps = [step_s(EXPERTS, f"stack.contention.kernel_share={share}") for share in (0, 0.5, 1)]

    assert steps == sorted(steps)
    assert steps[-1] <= alone
