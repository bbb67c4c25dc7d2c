"""What is kept: the event log of each session, and the files that runs saved.

- chain                       the links between events, and who may append the next one
- memory, sqlite, postgres    event logs; migrations has their tables
- runs                        a log around a log, with a folder for each run; run_summary is what is in run.json
- artifacts                   saved files, in a folder or in memory
- objects                     saved files in a bucket: S3, Google Cloud, Azure
"""
