"""Measured rates of the memory outside the devices: rows of `tiers.csv`, and the changes to a cluster
that they cause.

Answers: what does a row contain, and which fields of a cluster does it set?
Elsewhere: how they are measured (tier_run.py), the fields (spec/memory_tiers.py), files
(lab/samples/packs.py).
"""

from collections.abc import Iterable, Mapping
from statistics import median

from flopcast.lab.measure.sample_pack import check_columns, repetitions_of_row, times_of_row
from flopcast.records import Record
from flopcast.units import show

TIER_COLUMNS = ("device", "kind", "folder", "size_bytes", "repetitions_us", "median_us")
PINNED = ("pinned_to_device", "pinned_to_host")
PAGEABLE = ("pageable_to_device", "pageable_to_host")
COPIES = (*PINNED, *PAGEABLE)
HOST_UPDATE = "host_update"
STORAGE = ("storage_write", "storage_read")
TIER_KINDS = (*COPIES, HOST_UPDATE, *STORAGE)


class TierSample(Record):
    """Bytes that were copied to or from memory outside the device, and the seconds of each repetition.

    `kind` is one of TIER_KINDS. A "host_update" counts 28 bytes for each parameter of AdamW. `folder` is
    the folder of storage rows, and empty for the others.
    """

    device: str
    kind: str
    size_bytes: int
    repetitions_us: tuple[float, ...]
    folder: str = ""

    @property
    def key(self) -> str:
        """Return the kind and folder, which identify what a resumed pack already holds."""
        return tier_key(self.kind, self.folder)

    @property
    def bytes_per_s(self) -> float:
        """Return the bytes divided by the median seconds.

        >>> TierSample(device="d", kind=HOST_UPDATE, size_bytes=28, repetitions_us=(2.0,)).bytes_per_s
        14000000.0
        """
        return self.size_bytes / (median(self.repetitions_us) * 1e-6)


def tier_key(kind: str, folder: str = "") -> str:
    """Return the key of a row: `tier|host_update|`."""
    return f"tier|{kind}|{folder}"


def tier_row(sample: TierSample) -> dict[str, str]:
    """Return a sample as the text of a row, in the order of TIER_COLUMNS."""
    return {
        "device": sample.device,
        "kind": sample.kind,
        "folder": sample.folder,
        "size_bytes": str(sample.size_bytes),
        **times_of_row(sample.repetitions_us),
    }


def tier_of(row: Mapping[str, str], device: str) -> TierSample:
    """Return the sample in a row.

    Raises
    ------
    ValueError
        The row is broken. The message states which rows are valid.
    """
    check_columns(row, TIER_COLUMNS, device)
    if row["kind"] not in TIER_KINDS:
        raise ValueError(f"one of {', '.join(TIER_KINDS)} in the column kind, not {row['kind']!r}")
    if not row["size_bytes"].isdecimal() or int(row["size_bytes"]) == 0:
        raise ValueError(f"a whole number above 0 in the column size_bytes, not {row['size_bytes']!r}")
    return TierSample(
        device=device,
        kind=row["kind"],
        folder=row["folder"],
        size_bytes=int(row["size_bytes"]),
        repetitions_us=repetitions_of_row(row),
    )


def node_changes(samples: Iterable[TierSample], device: str) -> dict[str, dict[str, str]]:
    """Return the changes to a cluster's node that follow from the samples, as a job file writes them.

    For copies, the slower direction counts. Of several folders, the last one counts.

    Parameters
    ----------
    device : str
        Name of the device in the catalogue, on which the rate of pinned copies is based.
    """
    rates = {sample.kind: sample.bytes_per_s for sample in samples}
    fields: dict[str, dict[str, tuple[str, ...]]] = {
        "device": {"host_bytes_per_s": PINNED},
        "memory": {"optimizer_bytes_per_s": (HOST_UPDATE,), "pageable_bytes_per_s": PAGEABLE},
        "nvme": {"read_bytes_per_s": STORAGE[1:], "write_bytes_per_s": STORAGE[:1]},
    }
    changes = {
        part: {
            name: show(min(rates[kind] for kind in kinds), "B/s")
            for name, kinds in names.items()
            if all(kind in rates for kind in kinds)
        }
        for part, names in fields.items()
    }
    if changes["device"]:
        changes["device"] = {"base": device, **changes["device"]}
    return {part: found for part, found in changes.items() if found}
