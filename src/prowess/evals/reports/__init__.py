"""Reports of an eval run, as files.

- write: writes a report of any kind: JSON, JUnit XML, and report.html filled with the document
- markdown: a short summary for a pull request
"""
