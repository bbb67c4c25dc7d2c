"""Tools that read and change files.

- grep: grep
- grep_worker: matches a pattern against texts, in a process of its own
- list: list_dir
- paths: A path as a model writes it means one file or folder
- read: ead_file
- toolset: the file tools as one set
- write: write_file
"""
