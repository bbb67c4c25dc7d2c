"""What an event list says. Pure reading: nothing here opens a store.

- audit: whether a record is what was written
- chain: every stored event carries the hash of the one before it, so no line can be changed, lost, moved or repeated
  unseen
- diff: where two records of a run part
- marks: marks that this user's home leaves in a record
- pending: questions that wait for a person
- spans: A run as spans, with the names of OpenTelemetry's GenAI conventions
- summary: A run in a few lines, from its events alone
"""
