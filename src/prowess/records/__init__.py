"""Reads and checks the events of a run. No module here opens a store.

- audit: checks that a stored session, run or copy is unchanged
- call_text: tool calls as one line of text
- chain: links stored events by hashes, and verifies the links
- diff: finds the first difference between two records of a run
- marks: HMACs of earlier releases, which prove that this home wrote a record in a project folder
- pending: finds questions that wait for a person's answer
- sessions: lists the sessions of a store, whoever owns them
- spans: turns a run's events into OpenTelemetry spans
- story: a session as a story, run by run
- summary: sums up a run from its events, for run.json
- trajectory: reads the events of runs into one trajectory: calls, loaded skills, usage, answer
- timeline: texts about events, for the live view, a timeline and a story; a run as a timeline
"""
