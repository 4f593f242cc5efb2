"""Site files: the measured rates of a machine, as the YAML that --site reads.

Answers: how do all commands that create a site write it?
Elsewhere: the data type (spec/site.py), its factors (lab/measure/site.py, lab/validation/from_run.py),
reading (cli/options.py).
"""

import yaml

from flopcast.spec.site import Site


def site_text(site: Site) -> str:
    """Return a site as YAML, with plain numbers and ordered factors, and without default values."""
    data = site.model_dump(mode="json", exclude_defaults=True)
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100, default_flow_style=None)
