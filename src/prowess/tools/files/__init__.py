"""Tools that read and change files.

- grep: the grep tool
- grep_worker: the script of the separate process that matches the pattern
- list: the list_dir tool
- paths: resolving paths that a model writes, for reading and for writing
- read: the read_file tool
- replace: writing a whole file atomically, and the diff that a person is asked about
- write: the write_file and delete_file tools
"""
