"""One foreign file, and the step of reinforcement learning that its importer creates.

Answers: which engine generates how many answers, and which models process each of them?
Elsewhere: the training job of the step (job_reader.py), the meaning of a program's keys (verl_rl.py,
openrlhf_rl.py, trl_rl.py, nemo_rl.py), the step itself (spec/rl_plan.py).
"""

from flopcast.interop.configs.job_reader import JobReader
from flopcast.library import catalog

ALONE = "flopcast predicts models on separate devices only if generation overlaps with training"


class StepReader(JobReader):
    """The values of a file, and the rollout, the training and the step that they describe."""

    def put_engine(self, base: str, memory: tuple[str, float], tensor: tuple[str, int], *keys: str) -> None:
        """Put an engine into the rollout; `memory` and `tensor` are keys and their defaults."""
        engine = {"base": base, "memory_fraction": self.fraction(*memory)}
        self.put(("rollout", "engine"), engine, *keys)
        self.put(("rollout", "plan", "tensor_parallel"), self.count(*tensor), tensor[0])

    def put_samples(self) -> None:
        """Put the prompts, the answers to each and the passes over them into the step."""
        self.put(("step", "prompts"), self.count("prompts", 1024), "prompts")
        self.put(("step", "samples"), self.count("samples"), "samples")
        self.put_passes("epochs")

    def put_passes(self, key: str) -> None:
        """Put the passes over the answers into the step if there are several."""
        if (epochs := self.count(key)) > 1:
            self.put(("step", "epochs"), epochs, key)

    def note_longest(self, tokens: int, key: str) -> None:
        """Note that every prompt and answer of a rollout is predicted with the greatest allowed length."""
        if not self.options.lengths:
            values = "rollout.traffic='prompt=400 output=300' training.batch.sequence_length=700"
            way = f"state the lengths of your data by values such as {values}"
            self.assume(f"every sequence has {tokens} tokens, the largest possible length; {way}", key)

    def put_scorers(self, key: str, *, reference: bool, rewards: bool) -> None:
        """Put the models that process each answer of a rollout once into a step."""
        further = {"the reference model": reference, "a reward model as large as the trained one": rewards}
        names = ["the log-probabilities of the trained model", *filter(further.get, further)]
        self.put(("step", "scorers"), len(names), key)
        models = ", ".join(names)
        self.assume(f"scoring: the training workers run one forward pass for each of: {models}", key)

    def put_critic(self, estimator: str, critic: str, actor: str) -> None:
        """Put a trained critic, which must be as large as the actor, into a step."""
        sizes = [catalog.known("models", self.text(key)) for key in (critic, actor)]
        if self.has(critic) and sizes[0] != sizes[1]:
            because = "flopcast predicts a critic only if it has the size of the actor"
            self.fault(critic, self.text(actor), because, f"write {self.text(actor)}, or remove {critic}")
        self.put(("step", "critics"), 1, estimator)
        self.assume("the critic is as large as the actor and is trained with the same plan", estimator)
