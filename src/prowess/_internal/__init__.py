"""Helpers without any domain knowledge: paths, files, downloads, archives, text.

- addresses: table of IP address ranges: public, private, this machine, never allowed
- archive: unpacks zip and tar archives within limits
- digest: computes the tree digest, which names a skill's content
- fetch: downloads a URL into a file within limits of time, size and redirects
- files: opens regular files only, with bounded reads and atomic writes
- folder_swap: replaces several folders and files at once, and completes what was cut off
- globs: matches `*`, `**` and `?` in bounded time
- json_file: reads and writes a JSON file in the user's folder, under a lock
- mime: guesses the MIME type of a file
- paths: joins a relative path to a root and refuses paths that leave it
- portable_names: refuses file names that are not one file on every system
- protected_names: names that are never written outside a workspace, such as `.git`
- redirects: resolves and checks the address of each request of a download
- state_folder: folder for the data of a project's runs, and its `.gitignore`
- tar: reads a tar as a stream, in constant memory
- text: removes invisible characters, finds lines and code blocks in Markdown, cuts text to one line
- tokens: counts tokens, by an estimate or exactly
- tracing: opens OpenTelemetry spans, if OpenTelemetry is installed
- unpack: unpacks a download that is an archive or one SKILL.md
- urls: decides which URLs may be fetched, and hides the secrets of a URL in messages
- worker_thread: runs blocking disk work in one thread, in order
"""
