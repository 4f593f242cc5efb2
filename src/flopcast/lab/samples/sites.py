"""Site files: what a machine was measured to sustain, as the YAML that --site reads.

Answers: how is a site written, by every command that makes one?
Elsewhere: the noun (spec/site.py), its factors (lab/measure/site.py, lab/validation/from_run.py), reading
(cli/options.py).
"""

from pathlib import Path

import yaml

from flopcast.errors import spec_error
from flopcast.files.atomic_write import write_whole
from flopcast.spec.site import Site


def site_text(site: Site) -> str:
    """Return a site as YAML: plain numbers, factors in order, without defaults."""
    data = site.model_dump(mode="json", exclude_defaults=True)
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100, default_flow_style=None)


def write_site(path: Path, site: Site, option: str = "--site") -> None:
    """Write a site file; `option` is the name that faults use.

    Raises
    ------
    SpecError
        The file cannot be written.
    """
    try:
        write_whole(path, site_text(site))
    except OSError as error:
        allowed, because = "a file that may be written", error.strerror or str(error)
        raise spec_error(option, str(path), allowed, because, "give another place") from None
