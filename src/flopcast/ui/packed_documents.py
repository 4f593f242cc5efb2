"""Documents in the address of a page.

Answers: how does an address hold a job file?
Elsewhere: the other fields of a request (request_fields.py).
"""

import base64
import binascii
import zlib

from flopcast.errors import spec_error

MOST_DOCUMENT_BYTES = 256 << 10


def packed(text: str) -> str:
    """Return a document compressed for use in an address.

    >>> unpacked(packed("plan: {tp: 8}"))
    'plan: {tp: 8}'
    """
    return base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")


def unpacked(word: str) -> str:
    """Return the document that `packed` compressed.

    Raises
    ------
    SpecError
        The text is not a packed document, or the document is larger than MOST_DOCUMENT_BYTES.
    """
    try:
        unpacking = zlib.decompressobj()
        compressed = base64.urlsafe_b64decode(word + "=" * (-len(word) % 4))
        raw = unpacking.decompress(compressed, MOST_DOCUMENT_BYTES)
        if unpacking.unconsumed_tail or not unpacking.eof:
            raise ValueError
        return raw.decode()
    except (ValueError, binascii.Error, zlib.error):
        most = f"at most {MOST_DOCUMENT_BYTES >> 10} KiB"
        allowed = f"a JSON object, as in a job file, or a document of {most} that the page has compressed"
        fix = 'write "job": {"model": "llama-3-8b", "cluster": "dgx-h100"}, or upload the file again'
        raise spec_error("job", word, allowed, "the server opens no files", fix, "request") from None
