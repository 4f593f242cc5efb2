"""The serving job: everything that a prediction of serving needs, as one frozen object."""

import math
from typing import ClassVar

from pydantic import ConfigDict, PrivateAttr

from flopcast.spec.cluster import Cluster
from flopcast.spec.deployment import Deployment, Pool
from flopcast.spec.engine import Engine
from flopcast.spec.iteration_cost import TIMED_WITH_OTHERS, IterationCost
from flopcast.spec.kernel_overlap import LADDER, Overlap
from flopcast.spec.model import Model
from flopcast.spec.site import Site
from flopcast.spec.streaming import HostComputes
from flopcast.spec.traffic import Slo, Traffic
from flopcast.strict_model import StrictModel, nameable


class ServingJob(StrictModel):
    """Everything that a prediction of serving needs: model, cluster, engine, deployment and traffic.

    Attributes
    ----------
    model : Model
        The model that is served.
    cluster : Cluster
        The cluster on which the model is served.
    engine : Engine
        The serving software.
    plan : Deployment
        How the model is divided over devices, and the number formats of weights and KV cache.
    traffic : Traffic
        The requests that are served.
    slo : Slo
        The latency limits of requests.
    site : Site
        Calibration factors that were measured on this cluster. By default, factors of the catalogue.
    assumptions : tuple of str
        Values that were not given and that flopcast chose. Reports list them.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(
        json_schema_extra=nameable("model", "cluster", "engine")
    )

    model: Model
    cluster: Cluster
    engine: Engine
    plan: Deployment
    traffic: Traffic
    slo: Slo = Slo()
    site: Site = Site()
    assumptions: tuple[str, ...] = ()
    _shares: int = PrivateAttr(default=0)  # of the open requests, in a pool; 0: one for each engine

    @property
    def replicas(self) -> int:
        """Return the number of instances that share the traffic.

        By default, it is the largest number that fits on the cluster.

        A prefill pool and a decode pool together count as one instance.
        """
        if self.plan.pools:
            return 1
        return self.plan.replicas or max(self.cluster.num_devices // self.plan.devices, 1)

    def of(self, pool: Pool) -> "ServingJob":
        """Return the job with only the instances of one pool."""
        return self.model_copy(update={"plan": self.plan.of(pool)})

    @property
    def kinds(self) -> tuple["ServingJob", ...]:
        """Return the jobs of the prefill and the decode pool, or the job itself if it has no pools."""
        alone = [self.of(pool) for pool in self.plan.pools]
        for each in alone:
            each._shares = self.engines
        return tuple(alone) or (self,)

    @property
    def passes_in_flight(self) -> int:
        """Return the number of passes in flight: at most one for each pipeline stage and open request."""
        stages, opened = self.plan.pipeline_parallel, self.traffic.concurrency
        groups = self.replicas * self.plan.data_parallel
        return stages if opened is None else min(stages, -(-opened // groups))

    @property
    def engines(self) -> int:
        """Return the number of groups of sequences that run separate forward passes.

        It is the number of instances × data-parallel groups × passes in flight. With two pools, it is the
        number of equal parts into which both pools can be divided.
        """
        if self.plan.pools:
            return math.gcd(*(self.of(pool).engines for pool in self.plan.pools))
        return self.replicas * self.plan.data_parallel * self.passes_in_flight

    @property
    def busy_engines(self) -> int:
        """Return the number of engines that have requests, at most the number of open requests."""
        return (
            self.engines
            if self.traffic.concurrency is None
            else min(self.engines, self.traffic.concurrency)
        )

    @property
    def busy_replicas(self) -> int:
        """Return the number of instances that have requests, at most the number of open requests."""
        return min(self.replicas, self.traffic.concurrency or self.replicas)

    @property
    def overlap(self) -> Overlap | None:
        """Return the overlap of kernels in a pass, which comes from the engine or from ladder residuals."""
        return LADDER if self.plan.residual == "ladder" else self.engine.overlap

    @property
    def scales_experts(self) -> bool:
        """Return whether a fitted ratio scales the benchmark times of expert kernels.

        The ratio applies only if the benchmark also contained other kernels.
        """
        return self.plan.format_of_experts in TIMED_WITH_OTHERS

    @property
    def iteration(self) -> IterationCost:
        """Return the time model of iterations for the plan's number formats.

        Without CUDA graphs, kernels do not overlap, and the launch time includes the launches of attention.
        """
        cost = self.engine.iteration
        experts = cost.expert_ratio if self.scales_experts else 1.0
        sequence_s = cost.sequence_s + cost.streamed_s / self.engine.stream_interval
        eager = {"overlap_s": 0.0, "decode_layer_s": 0.0} if self.engine.launch_s else {}
        return cost.model_copy(update={"expert_ratio": experts, "sequence_s": sequence_s, **eager})

    @property
    def image_tokens(self) -> int:
        """Return the tokens that the images of a request add to its prompt."""
        return self.model.vision.tokens(self.traffic.images) if self.model.vision else 0

    @property
    def image_token_share(self) -> float:
        """Return the mean number of images per prompt token."""
        prompt = self.traffic.prompt_tokens
        return 1.0 / (self.image_tokens + prompt.mean) if self.image_tokens and prompt else 0.0

    @property
    def host_computes(self) -> HostComputes:
        """Return the work of the host's CPU: the deployment's choice, or the engine's default."""
        streaming = self.engine.streaming
        if streaming is None or not self.plan.streams:
            return "nothing"
        return self.plan.host_computes or streaming.host_computes[0]

    @property
    def node_devices(self) -> int:
        """Return the number of serving devices on one node, which share its host and its drives."""
        return min(self.devices, self.cluster.node.devices)

    @property
    def adapter_slots(self) -> int:
        """Return the number of adapters that an instance holds in memory; 0 without adapters."""
        plan = self.plan
        return 0 if plan.adapter_rank is None else plan.adapter_slots or self.engine.adapter_slots

    @property
    def computed_tokens(self) -> int:
        """Return the number of tokens that a pass computes for a decoding sequence: 1 plus drafted
        tokens."""
        return 1 if self.plan.drafting is None else self.plan.drafting.computed_tokens

    @property
    def most_sequences(self) -> int:
        """Return the number of sequences of the largest pass, at most the number of open requests.

        The limit of an engine applies to the sum over all passes in flight. The engines of a pool share its
        open requests, possibly unequally.
        """
        limit, opened = self.plan.max_sequences or self.engine.max_sequences, self.traffic.concurrency
        stated = -(-limit // self.passes_in_flight)
        return stated if opened is None else min(stated, -(-opened // (self._shares or self.engines)))

    @property
    def devices(self) -> int:
        """Return the number of devices of all instances."""
        return self.replicas * self.plan.devices

    @property
    def machine(self) -> str:
        """Return the number of devices with their name: "8 × h100-sxm5-80gb", or "2 of 8 × ..."."""
        used, there = self.devices, self.cluster.num_devices
        count = f"{used} of {there}" if used < there else str(used)
        return f"{count} × {self.cluster.node.device.name}"

    @property
    def leading_assumptions(self) -> list[str]:
        """Return the assumptions for the first lines of a report: a plan that leaves devices idle."""
        few = self.devices < self.cluster.num_devices
        return [text for text in self.assumptions if few and text.startswith("plan ")]
