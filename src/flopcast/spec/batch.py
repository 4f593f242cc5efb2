"""The batch: how long the sequences are, the documents in them, and whether micro-batches differ.

Answers: how many tokens does a sequence have, how many pairs of tokens does attention compute, and which
kind is each micro-batch of a step?
Elsewhere: the numbers of sequences of a micro-batch and of a step (plan.py, `micro_batch` and
`global_batch`).
"""

from collections.abc import Mapping
from typing import Annotated

import numpy as np
from pydantic import AliasChoices, BeforeValidator, Field, TypeAdapter, model_validator

from flopcast.dtypes import Counts
from flopcast.layers.images import Image, Images, images_text
from flopcast.quantities import parse_length
from flopcast.spec.length_distribution import LengthDistribution
from flopcast.strict_model import StrictModel


def _length(value: object) -> object:
    """Return the tokens that a text means; everything else unchanged."""
    return parse_length(value) if isinstance(value, str) else value


Length = Annotated[int, BeforeValidator(_length), Field(ge=1)]


def _listed(value: object) -> object:
    """Return the entries of a text "4k,4k"; everything else unchanged."""
    return tuple(value.split(",")) if isinstance(value, str) else value


Documents = Annotated[tuple[Length, ...], BeforeValidator(_listed)]
Rows = tuple[int, ...]  # which of the kinds each micro-batch of a step is, first to last


class MicroBatch(StrictModel):
    """One micro-batch of a step, or several equal consecutive ones.

    Attributes
    ----------
    sequence_length : int, optional
        Number of tokens of each sequence of the micro-batch (short name: seq). By default, the sum of its
        documents or, without documents, the length that the batch states. The number of sequences is the
        plan's `micro_batch`.
    documents : tuple of int
        Number of tokens of each document of a packed sequence, as in Batch.
    shared_by : int
        Number of neighbouring data-parallel ranks over which each sequence of this micro-batch is divided,
        like context parallelism of this micro-batch only. All of these ranks must list the micro-batch.
    offloads : bool
        Whether the plan's `offload` setting for activations applies to the micro-batch.
    images : tuple of Image or None
        Images of each sequence of the micro-batch. By default, those of the batch.
    count : int
        Number of consecutive micro-batches of this kind.
    """

    sequence_length: Length | None = Field(
        default=None, validation_alias=AliasChoices("sequence_length", "seq")
    )
    documents: Documents = ()
    shared_by: int = Field(default=1, ge=1)
    offloads: bool = True
    images: Images | None = None
    count: int = Field(default=1, ge=1)


class RankBatch(StrictModel):
    """One or several data-parallel ranks that run the same micro-batches in a step.

    Attributes
    ----------
    micro_batches : tuple of MicroBatch
        Micro-batches that each of these ranks runs, in order.
    count : int
        Number of data-parallel ranks that run these micro-batches.
    """

    micro_batches: tuple[MicroBatch, ...] = Field(min_length=1)
    count: int = Field(default=1, ge=1)


class Batch(StrictModel):
    """The sequences of a training step. All have the same length, or each micro-batch is listed.

    Attributes
    ----------
    sequence_length : int
        Number of tokens of each sequence, padding included (short name: seq); 32k is 32,768. If
        micro-batches differ, this is the length of the longest sequence. By default, the sum of the
        `documents`.
    documents : tuple of int
        Number of tokens of each document in a packed sequence, if tokens attend only to their own document.
        The cost of attention is then proportional to Σ length² instead of sequence_length². The lengths
        must add up to sequence_length. Therefore, list padding as a document, too.
    packed : bool
        Whether sequences are packed. flopcast sets this field to true if `documents` are given. Do not set
        it without `documents`.
    micro_batches : tuple of MicroBatch
        The micro-batches of a step in order. Set this field if micro-batches differ, and if all
        data-parallel ranks run the same list of micro-batches. By default, all micro-batches are equal.
    ranks : tuple of RankBatch
        The micro-batches of each data-parallel rank. Set this field if the ranks run different
        micro-batches, or different numbers of micro-batches. A step ends when the slowest rank has
        finished.
    shared_by : int
        Number of neighbouring data-parallel ranks over which each sequence is divided; 1 means that each
        rank has whole sequences. If you list micro-batches, set `shared_by` in each of them instead.
    offloads : bool
        Whether the plan's `offload` setting for activations applies to this batch.
    source_length : int or None
        Number of tokens of each sequence that the encoder reads, for encoder-decoder models. By default
        `sequence_length`, which is the length of the decoder's sequences.
    images : tuple of Image
        Images of each sequence, for a model with a vision tower: a list, or a text such as
        "2x1024x768+1x336x336" (two images of 1024 × 768 pixels, and one image of 336 × 336 pixels). The
        tokens of the images are part of the sequence.
    distribution : LengthDistribution or None
        Distribution of sequence lengths. If you set it instead of `ranks`, flopcast distributes sequences
        of these lengths over ranks and micro-batches.
    forward_only : bool
        Whether the step consists only of a forward pass, as in evaluation or in inference on whole batches.
    """

    sequence_length: Length = Field(validation_alias=AliasChoices("sequence_length", "seq"))
    documents: Documents = ()
    packed: bool = False
    micro_batches: tuple[MicroBatch, ...] = ()
    ranks: tuple[RankBatch, ...] = ()
    shared_by: int = Field(default=1, ge=1)
    offloads: bool = True
    source_length: Length | None = None
    images: Images = ()
    distribution: LengthDistribution | None = None
    forward_only: bool = False

    @property
    def lengths(self) -> tuple[int, ...]:
        """Return the number of tokens of each document in a sequence; one number if nothing is packed."""
        return self.documents or (self.sequence_length,)

    @model_validator(mode="before")
    @classmethod
    def _length_of_documents(cls, given: object) -> object:
        """Return the fields of a batch with the sum of its documents as the length, if it states none."""
        stated = given.keys() & {"sequence_length", "seq"} if isinstance(given, Mapping) else ()
        if not isinstance(given, Mapping) or stated or not given.get("documents"):
            return given
        try:
            length = sum(TypeAdapter(Documents).validate_python(given["documents"]))
        except ValueError:
            length = 1  # only the wrong documents are reported
        return {**given, "sequence_length": length}

    @property
    def mean_document_tokens(self) -> float:
        """Return the mean document length, weighted by tokens: Σ length² / Σ length.

        If all documents had this length, attention would compute as many token pairs as for the given
        documents.
        """
        return sum(length**2 for length in self.lengths) / sum(self.lengths)

    @property
    def listed(self) -> bool:
        """Return whether micro-batches are listed one by one."""
        return bool(self.micro_batches or self.ranks)

    @property
    def lists(self) -> tuple[RankBatch, ...]:
        """Return the listed micro-batches of each class of equal data-parallel ranks; () if none are
        listed.
        """
        return self.ranks or ((RankBatch(micro_batches=self.micro_batches),) if self.micro_batches else ())

    @property
    def kinds(self) -> tuple["Batch", ...]:
        """Return one batch for each kind of micro-batch, in order of first use; all its micro-batches are
        equal.

        If all micro-batches are equal, the result is the batch itself.
        """
        if not self.listed:
            return (self,)
        return tuple(dict.fromkeys(self.of(each) for ranks in self.lists for each in ranks.micro_batches))

    @property
    def rows(self) -> tuple[Rows, ...]:
        """Return the kind of each micro-batch for each class of ranks; () if no micro-batches are
        listed."""
        place = {kind: row for row, kind in enumerate(self.kinds)}
        return tuple(
            tuple(place[self.of(each)] for each in ranks.micro_batches for _ in range(each.count))
            for ranks in self.lists
        )

    @property
    def shares(self) -> tuple[float, ...]:
        """Return the fraction of the sequences of the global batch that each kind has.

        The fractions add up to 1, or to less if ranks share sequences, because each rank lists the whole
        sequence.
        """
        if not self.listed:
            return (1.0 / self.shared_by,)
        counts = [0] * len(self.kinds)
        for ranks, rows in zip(self.lists, self.rows, strict=True):
            for row in rows:
                counts[row] += ranks.count
        pairs = zip(counts, self.kinds, strict=True)
        return tuple(count / sum(counts) / kind.shared_by for count, kind in pairs)

    @property
    def tokens_by_kind(self) -> Counts:
        """Return the number of tokens in a sequence of each kind, shape (kinds, 1)."""
        return np.array([[kind.sequence_length] for kind in self.kinds], dtype=np.float64)

    @property
    def source_tokens(self) -> int:
        """Return the number of tokens in an encoder's sequence; by default, as in a decoder's sequence."""
        return self.source_length or self.sequence_length

    @property
    def source_by_kind(self) -> Counts:
        """Return `source_tokens` of each kind, shape (kinds, 1)."""
        return np.array([[kind.source_tokens] for kind in self.kinds], dtype=np.float64)

    @property
    def images_by_kind(self) -> tuple[tuple[Image, ...], ...]:
        """Return the images in a sequence of each kind; () if there are no images."""
        images = tuple(kind.images for kind in self.kinds)
        return images if any(images) else ()

    @property
    def shared_by_kind(self) -> Counts:
        """Return the number of ranks that share a sequence of each kind, shape (kinds, 1)."""
        return np.array([[kind.shared_by] for kind in self.kinds], dtype=np.float64)

    @property
    def offloads_by_kind(self) -> Counts:
        """Return 1 for kinds whose activations the plan offloads, and 0 for the others, shape (kinds,
        1)."""
        return np.array([[kind.offloads] for kind in self.kinds], dtype=np.float64)

    @property
    def any_shared(self) -> bool:
        """Return whether ranks share sequences without context parallelism."""
        return any(kind.shared_by > 1 for kind in self.kinds)

    @property
    def documents_by_kind(self) -> Counts:
        """Return the number of equal documents that represent a sequence of each kind, shape (kinds, 1)."""
        return np.array([[kind.sequence_length / kind.mean_document_tokens] for kind in self.kinds])

    @property
    def mean_sequence_tokens(self) -> float:
        """Return the mean number of tokens that a rank computes for each of its listed sequences."""
        pairs = zip(self.shares, self.kinds, strict=True)
        return sum(share * kind.sequence_length for share, kind in pairs)

    def of(self, each: MicroBatch) -> "Batch":
        """Return a batch in which all micro-batches equal the given one."""
        length = each.sequence_length or sum(each.documents) or self.sequence_length
        return Batch(
            sequence_length=length,
            documents=each.documents,
            shared_by=each.shared_by,
            offloads=each.offloads,
            forward_only=self.forward_only,
            source_length=self.source_length,
            images=self.images if each.images is None else each.images,
        )

    def place(self, kind: "Batch") -> str:
        """Return the field that describes the first micro-batch of a kind: "batch.micro_batches[0]"."""
        return next(
            f"{prefix}micro_batches[{number}]"
            for prefix, ranks in self.places
            for number, each in enumerate(ranks.micro_batches)
            if self.of(each) == kind
        )

    @property
    def places(self) -> tuple[tuple[str, RankBatch], ...]:
        """Return `lists`, each with the field that contains its micro-batches: "batch." or
        "batch.ranks[1]."."""
        names = [f"batch.ranks[{number}]." for number in range(len(self.ranks))] or ["batch."]
        return tuple(zip(names, self.lists, strict=False))

    def text(self) -> str:
        """Return lengths as text for a report: "seq=4096", and differences between micro-batches.

        >>> Batch(seq=4096, micro_batches=({"seq": 512, "count": 3}, {})).text()
        'seq=512 to 4096 in 2 kinds of micro-batches, 1408 on average'
        """
        if self.listed and len(self.kinds) > 1:
            tokens = [kind.sequence_length for kind in self.kinds]
            span = f"{min(tokens)} to {max(tokens)}" if min(tokens) < max(tokens) else f"{max(tokens)}"
            mean = f"{self.mean_sequence_tokens:.0f} on average"
            return f"seq={span} in {len(self.kinds)} kinds of micro-batches, {mean}"
        (kind,) = self.kinds
        count = len(kind.documents)
        packed = f" in {count} documents of {kind.mean_document_tokens:.0f}" if count > 1 else ""
        shared = f" on {kind.shared_by} ranks" if kind.shared_by > 1 else ""
        alone = ", forward pass alone" if self.forward_only else ""
        source = f" after {kind.source_length} of the encoder" if kind.source_length else ""
        seen = f" with images {images_text(kind.images)}" if kind.images else ""
        return f"seq={kind.sequence_length}{packed}{shared}{source}{seen}{alone}"
