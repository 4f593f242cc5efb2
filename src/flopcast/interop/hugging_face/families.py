"""All supported decoder families of Hugging Face transformers.

Answers: which families are there?
Elsewhere: their tables (earlier_families.py, recent_families.py). A new family is one table there.
"""

from flopcast.interop.hugging_face.earlier_families import EARLIER
from flopcast.interop.hugging_face.family import Family
from flopcast.interop.hugging_face.recent_families import RECENT

FAMILIES: dict[str, Family] = EARLIER | RECENT
