"""Reports of an eval run, as files.

- junit: JUnit XML for a build server. markdown: a short summary for a pull request
- write: writes a report of any kind: these, JSON, and report.html filled with the document
"""
