"""The job: a frozen object that holds all inputs of the prediction of a training step."""

from typing import Any, ClassVar

from pydantic import ConfigDict

from flopcast.spec.batch import Batch
from flopcast.spec.checkpoints import CheckpointField
from flopcast.spec.cluster import Cluster
from flopcast.spec.loader import LoaderField
from flopcast.spec.model import Model
from flopcast.spec.plan import Plan
from flopcast.spec.run_length import RunLength
from flopcast.spec.site import Site
from flopcast.spec.stack import Stack
from flopcast.strict_model import StrictModel, nameable
from flopcast.units import Number


def _as_in_a_file(schema: dict[str, Any]) -> None:
    """Change the schema to that of a job file: parts may be names, and the model an exported graph."""
    from flopcast.spec.graph_file import GraphFile

    nameable("model", "cluster", "plan", "stack", "site")(schema)
    schema["properties"]["model"]["anyOf"].append(GraphFile.model_json_schema())


class Job(StrictModel):
    """Everything that a prediction of a training step needs: model, cluster, plan, stack and batch.

    flopcast checks each part separately, and then checks whether the parts are compatible
    (`spec.checks.check`).

    Attributes
    ----------
    model : Model
        The model that is trained.
    cluster : Cluster
        The cluster on which the model is trained.
    plan : Plan
        How the work of a step is divided over devices and micro-batches.
    stack : Stack
        The training framework.
    batch : Batch
        The sequences of a step and their lengths.
    site : Site
        Calibration factors that were measured on this cluster. By default, those of the catalogue.
    run : RunLength or None
        Length of the whole training run. If given, reports also state the time and cost of the run.
    checkpoint : Checkpoint or None
        How the run saves checkpoints. The text "lazy file_system every=100" is a short form. By default,
        `cluster.reliability` states how long a checkpoint takes.
    loader : Loader or None
        How samples are loaded. The text "decode=9ms:8,copy=602kB@link" is a short form. By default,
        flopcast assumes that training never waits for samples.
    assumptions : tuple of str
        Values that the user did not give, and that flopcast chose. Reports list them.

    Examples
    --------
    >>> sorted(name for name, field in Job.model_fields.items() if not field.is_required())
    ['assumptions', 'checkpoint', 'loader', 'run', 'site']
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra=_as_in_a_file)

    model: Model
    cluster: Cluster
    plan: Plan
    stack: Stack
    batch: Batch
    site: Site = Site()
    run: RunLength | None = None
    checkpoint: CheckpointField = None
    loader: LoaderField = None
    assumptions: tuple[str, ...] = ()

    @property
    def batch_unit(self) -> str:
        """Return the unit of the batch: tokens, or the samples of an exported graph."""
        return "tokens" if self.model.vocabulary else "samples"

    @property
    def step_tokens(self) -> float:
        """Return the number of tokens of one step over all peers, including padding."""
        return self.plan.step_sequences * self.sequence_tokens

    @property
    def sequence_tokens(self) -> float:
        """Return the mean number of tokens of a sequence, including the encoder's tokens."""
        return self.batch.mean_sequence_tokens + self.batch.source_tokens * self.model.has_encoder

    @property
    def run_tokens(self) -> Number | None:
        """Return the number of tokens of the whole run, including padding; None if it is not known."""
        return None if self.run is None else self.run.total_tokens(self.sequence_tokens)

    @property
    def fine_tunes(self) -> bool:
        """Return whether the job is a fine-tune: it trains adapters, or states a number of samples.

        A job whose length is a number of tokens counts as pretraining.
        """
        samples = None if self.run is None else self.run.samples
        return self.model.adapters is not None or samples is not None

    @property
    def flop_note(self) -> str:
        """Return a note on how reports count the FLOP of masked attention; "" for exported graphs."""
        return ", with masked attention scores counted as FLOP" if self.batch_unit == "tokens" else ""

    @property
    def batch_text(self) -> str:
        """Return the sequence lengths of the batch as text; "" for exported graphs."""
        text = self.batch.text()
        return text if self.batch_unit == "tokens" else text.replace("seq=1", "batch of samples", 1)

    @property
    def has_open_length(self) -> bool:
        """Return whether the job is pretraining of unknown length, whose cost is stated for 1e12 tokens.

        For exported graphs, reports state only the cost of a step, because runs have no usual number of
        samples.
        """
        return not self.fine_tunes and self.run_tokens is None and self.batch_unit == "tokens"

    @property
    def by_kind(self) -> tuple[tuple[float, "Job"], ...]:
        """Return, for each kind of micro-batch, a job with only this kind, and the share of this kind.

        The FLOP of the job are the mean over these jobs, weighted by share.
        """
        pairs = zip(self.batch.shares, self.batch.kinds, strict=True)
        alone = {"shared_by": 1, "distribution": None}
        return tuple(
            (share, self.model_copy(update={"batch": kind.model_copy(update=alone)}))
            for share, kind in pairs
        )

    @property
    def software(self) -> Stack:
        """Return the stack, adapted to the job's devices, some of which transpose 8-bit operands."""
        transposes = self.cluster.node.device.one_narrow_layout
        return self.stack.with_part("narrow", transposes=transposes)
