"""Stores for events and artifacts: in memory, SQLite, PostgreSQL, folders and buckets.

- artifact_content: shared code of artifact stores: names on disk, chunks of content, errors
- artifacts: artifact store in a folder
- bucket: client for a bucket of S3, Google Cloud or Azure
- foreign_copy: copies a foreign session database, and checks the copy
- foreign_sqlite: reads session databases that somebody else wrote
- memory: event log and artifact store in memory
- migrations: tables of the event log in SQLite and PostgreSQL, with version numbers
- object_artifacts: artifact store in a bucket
- own_stores: SQLite files that this home made
- postgres: event log in PostgreSQL
- postgres_pool: connections to a PostgreSQL database, with retries
- postgres_queries: SQL statements of the PostgreSQL event log
- run_folders: copies each run that has ended into a folder with events.jsonl and run.json
- sqlite: event log in a SQLite file
- sqlite_queries: SQL statements of the SQLite event log
"""
