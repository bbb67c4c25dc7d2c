"""What is kept: the event log of each session, and the files that runs saved.

- chain               the links between events, and who may append the next one
- memory, sqlite      event logs
- artifacts           saved files, in a folder or in memory
- objects             saved files in a bucket: S3, Google Cloud, Azure
"""
