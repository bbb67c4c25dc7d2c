"""Where events and artifacts are kept.

- artifact_content: what stores of artifacts have in common
- artifacts: A version of a saved file is whole or not there, its number is given once, and nothing is ever written
  over
- bucket: A bucket of S3, Google Cloud or Azure
- memory: what is kept for as long as the process lives
- migrations: the tables of a session store, numbered from the first release on, in SQLite and in PostgreSQL
- object_artifacts: in a bucket, too, a version is whole or not there, its number is given once, and nothing is ever
  written over
- postgres: an event log in PostgreSQL
- postgres_pool: connections to one PostgreSQL database
- postgres_queries: what is asked of the tables in PostgreSQL
- run_folders: every run is also a folder `<timestamp>-<run>/`
- sqlite: an event log in one SQLite file
- sqlite_queries: what is asked of the tables in SQLite
"""
