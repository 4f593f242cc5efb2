"""Site files: what a machine was measured to sustain, as the YAML that --site reads.

Answers: how is a site written, by every command that makes one?
Elsewhere: the noun (spec/site.py), its factors (lab/measure/site.py, lab/validation/from_run.py), reading
(cli/options.py).
"""

import yaml

from flopcast.spec.site import Site


def site_text(site: Site) -> str:
    """Return a site as YAML: plain numbers, factors in order, without defaults."""
    data = site.model_dump(mode="json", exclude_defaults=True)
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100, default_flow_style=None)
