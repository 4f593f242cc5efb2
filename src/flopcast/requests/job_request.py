"""A request for a job as a user enters it, which is the same for the command line, Python and HTTP.

Answers: which values may a request have?
Elsewhere: the job that a request describes (resolve.py), the files that it names (sources.py), which
words are files (words.py), settings of a search (search_request.py).
"""

from pathlib import Path

from flopcast.files.yaml_text import Document
from flopcast.library import catalog
from flopcast.records import Record


class JobSource(Record, eq=False):
    """The document of a job, the number of devices in the file, and whether the file holds the model of
    the request.
    """

    document: Document
    devices: int | None = None
    has_model: bool = False


class JobRequest(Record, eq=False):
    """The values that a user entered; None or empty for values that were not entered.

    Parameters
    ----------
    files : paths of the files that together describe the job, in order; a model name is also allowed
    changes : "KEY=VALUE", applied in order to the values of the files and of the other fields
    source : a document that was already read; no file is then opened, and names are never paths
    model, cluster, plan, stack : names, paths, or mappings as in a job file
    gpus : devices of the cluster to use
    offload : states that are placed outside the devices, as in a plan; replaces those of the plan
    seq : tokens of a sequence
    images : images of each sequence, "2x1024x768", or as in a job file
    lora, qlora : rank of adapters, over frozen weights of 16 or of 4 bits
    tokens, samples, epochs : length of the whole run, as in spec/run_length.py
    checkpoint : checkpoint settings, "lazy file_system every=100", or a mapping as in a job file
    loader : input pipeline, "decode=9ms:8,copy=602kB@link", or a mapping as in a job file
    site : path of a site file
    slow : devices, hosts and links that are slower than the others; replaces those of the site
    power_limit : power limit of each device, "500 W"; replaces that of the site
    price : of a device
    kind : format of the first file
    size : symbolic sizes of an exported graph, "NAME=NUMBER"
    autocast : whether an exported graph runs under PyTorch's automatic mixed precision
    batch : samples, or sequences, of one step; replaces the global batch of the plan
    inference : whether a step is only a forward pass
    arg, env : arguments and environment variables of a launch script: "1=8", "NNODES=4"
    engine : name of a serving engine, or a mapping as in a job file; the request then serves
    traffic, slo : the served requests and their latency limits, as texts or mappings
    """

    files: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    source: JobSource | None = None
    model: object = None
    cluster: object = None
    gpus: object = None
    plan: object = None
    stack: object = None
    offload: object = None
    seq: object = None
    images: object = None
    lora: object = None
    qlora: object = None
    tokens: object = None
    samples: object = None
    epochs: object = None
    checkpoint: object = None
    loader: object = None
    site: Path | None = None
    slow: object = None
    power_limit: object = None
    price: object = None
    kind: str | None = None
    size: tuple[str, ...] = ()
    autocast: bool = False
    batch: object = None
    inference: bool = False
    arg: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    engine: object = None
    traffic: object = None
    slo: object = None

    @property
    def devices(self) -> int | None:
        """Return the number of devices that the request states, directly or as nodes of a cluster."""
        if isinstance(self.gpus, int):
            return self.gpus
        name, nodes = self._cluster_words()
        known = nodes.isdecimal() and catalog.known("clusters", name)
        return int(nodes) * catalog.cluster(name).node.devices if known else None

    @property
    def whole_cluster(self) -> int | None:
        """Return the size of a cluster that is named without a number, if the request states no number
        of devices.
        """
        name, nodes = self._cluster_words()
        known = self.devices is None and not nodes and catalog.known("clusters", name)
        return catalog.cluster(name).num_devices if known else None

    def _cluster_words(self) -> tuple[str, str]:
        """Return the name of the cluster and its number of nodes; a change names it last."""
        changed = [change[8:] for change in self.changes if change.startswith("cluster=")]
        name, _, nodes = str([self.cluster, *changed][-1]).partition(":")
        return name, nodes
