"""Reads the marks that earlier code put on events, to tell whether this home wrote a record in a project folder.

A mark is an HMAC. Its key lies only in `<state_dir>/record-key.json`. It covers the store, the session, the run, the
event and the hash of the event before, so it is valid for one history in one place.
"""

from __future__ import annotations

import hmac
import json
import os
from hashlib import sha256

from prowess._internal.files import UserFile
from prowess.core.events import ApprovalAnswered, ApprovalAsked, Envelope, RunStarted

SCHEMA = "prowess.record-key/1"
_KEY_BYTES = 32


class Marks:
    """Marks of one home in one store. `place` is the file or the address of the store."""

    def __init__(self, state_dir: str, place: str) -> None:
        self._file = UserFile(state_dir, "record-key", SCHEMA)
        if os.path.isabs(place):
            place = os.path.realpath(place)
        self._place = place
        self._key: bytes | None = None

    def fits(self, envelope: Envelope) -> bool:
        """True if this home wrote the event, in this store and after this history. The chain is not checked here."""
        mark = getattr(envelope.event, "mark", None)
        prev = envelope.prev
        self._key = self._key or _find_key(self._file)
        if self._key is None or mark is None or prev is None:
            return False
        ours = self._compute(self._key, envelope, prev)
        return hmac.compare_digest(mark.encode(), ours.encode())

    def _compute(self, key: bytes, envelope: Envelope, prev: str) -> str:
        event = envelope.event
        said: tuple[object, ...] = ()
        if isinstance(event, RunStarted):
            said = (None,) if event.resume_arguments is None else event.resume_arguments
        elif isinstance(event, ApprovalAsked):
            said = (event.call_id, event.capability)
        elif isinstance(event, ApprovalAnswered):
            said = (event.call_id, event.capability, event.answer, event.later)
        owner = (envelope.tenant, envelope.app, envelope.user)
        place = (self._place, *owner, envelope.session, envelope.run, prev)
        text = json.dumps([*place, event.type, *said])
        return hmac.new(key, text.encode("ascii"), sha256).hexdigest()


def _find_key(file: UserFile) -> bytes | None:
    try:
        written = file.read()["key"]
        key = bytes.fromhex(written)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    if len(key) != _KEY_BYTES:
        return None
    return key
