"""The job: everything that a prediction needs, in one frozen noun."""

from pydantic import ConfigDict

from flopcast.spec.batch import Batch
from flopcast.spec.cluster import Cluster
from flopcast.spec.model import Model
from flopcast.spec.plan import Plan
from flopcast.spec.run_length import RunLength
from flopcast.spec.site import Site
from flopcast.spec.stack import Stack
from flopcast.strict_model import StrictModel, nameable
from flopcast.units import Number


class Job(StrictModel):
    """Model × cluster × plan × stack (× site), on one batch.

    Each noun is valid by itself; `spec.checks.check` decides whether they go together.
    `run` is the length of the whole run, if it is known: a report then states its days and cost.
    `assumptions` are the values that were missing and filled in: a report repeats them.

    Examples
    --------
    >>> sorted(name for name, field in Job.model_fields.items() if not field.is_required())
    ['assumptions', 'run', 'site']
    """

    model_config = ConfigDict(json_schema_extra=nameable("model", "cluster", "plan", "stack", "site"))

    model: Model
    cluster: Cluster
    plan: Plan
    stack: Stack
    batch: Batch
    site: Site = Site()
    run: RunLength | None = None
    assumptions: tuple[str, ...] = ()

    @property
    def step_tokens(self) -> float:
        """Return tokens of one step, including padding: of all sequences of the global batch."""
        return self.plan.global_batch * self.batch.mean_sequence_tokens

    @property
    def run_tokens(self) -> Number | None:
        """Return the tokens of the whole run, including padding; None if its length is not known."""
        return None if self.run is None else self.run.total_tokens(self.batch)

    @property
    def fine_tunes(self) -> bool:
        """Return whether a trained model is tuned: adapters are trained, or a data set of samples is given.

        Pretraining is stated in tokens.
        """
        samples = None if self.run is None else self.run.samples
        return self.model.adapters is not None or samples is not None

    @property
    def has_open_length(self) -> bool:
        """Return whether the job is pretraining of unknown length: its costs are those of 1e12 tokens."""
        return not self.fine_tunes and self.run_tokens is None

    @property
    def by_kind(self) -> tuple[tuple[float, "Job"], ...]:
        """Return the job as if all its micro-batches were of one kind, once for each kind, with its share.

        What adds up over sequences, as FLOP do, is the mean of these by share.
        """
        pairs = zip(self.batch.shares, self.batch.kinds, strict=True)
        return tuple((share, self.model_copy(update={"batch": kind})) for share, kind in pairs)

    @property
    def software(self) -> Stack:
        """Return the stack as it runs on the job's devices: 8-bit operands are transposed if need be."""
        transposes = self.cluster.node.device.one_narrow_layout
        narrow = self.stack.narrow.model_copy(update={"transposes": transposes})
        return self.stack.model_copy(update={"narrow": narrow})
