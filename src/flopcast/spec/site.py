"""The site: what this particular machine really sustains, laid over the cluster's description.

Answers: which factors differ here, by how much, and how sure is that? A factor is named as in a
report ("host", "gemm_level[a100-sxm4-80gb]"); `ratio` multiplies its time.
Precedence: site > cluster > device > relative.
"""

from pydantic import BaseModel, ConfigDict, Field

from flopcast.spec.model import Source


class SiteFactor(BaseModel):
    """One named factor as measured here."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    ratio: float = Field(gt=0, description="time here / time without the site file")
    log_sigma_factor: float | None = Field(default=None, ge=0)


class Site(BaseModel):
    """A named set of factors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = "none"
    factors: tuple[SiteFactor, ...] = ()
    source: tuple[Source, ...] = ()
