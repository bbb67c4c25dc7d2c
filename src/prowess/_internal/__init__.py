"""Helpers that know no word of the domain.

- addresses: the one table of addresses
- archive: nothing an archive says about itself is believed
- digest: the tree digest names a skill's content
- fetch: A download ends, within its time, size and redirects; and the target is then the whole new file, or untouched
- files: only regular files are opened, reads are bounded, and a written file is whole or not there at all
- globs: the one matcher for `*`, `**` and `?`
- json_file: A JSON file of the user's own
- mime: what kind of content a file has
- paths: A path from outside is used only in its resolved form, and only when that form is inside the folder it
  belongs to
- protected_names: names that are never written outside a workspace
- redirects: where each request of a download goes
- state_folder: where a project keeps what its runs leave behind, and that version control does not pick it up
- tar: A tar is read forwards, in small pieces, to its end mark
- text: what a model sees has no characters that a person cannot see, and where in a Markdown text something stands
- tokens: A token count says how it was made
- tracing: spans for whoever traces
- urls: which URLs may be fetched, and what of a URL may be shown
- worker_thread: one thread does what waits for a disk, in the order in which it was asked, so that no event loop ever
  does
"""
