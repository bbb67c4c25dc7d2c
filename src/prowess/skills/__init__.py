"""Skills on disk: a SKILL.md becomes a catalog entry and a loaded skill. Needs PyYAML and nothing else.

- catalog: the catalog
- catalog_budget: which skills the model is shown, within a budget of tokens; and nothing is left out without a word
- discover: discover
- entry_reader: one SKILL.md on disk becomes an Entry
- front_matter: front matter is read strictly, else repaired narrowly, else salvaged line by line; and which of the
  three is never hidden
- in_memory: skills defined in code are skills
- load: load
- metadata: what the front matter of one skill says, as far as discovery needs it
- nested: SKILL.md files below a skill
- parse: bytes of a SKILL.md become a Head and a body, whatever the bytes are
- reference: the specification's reference library in Python
- render: what a model reads about skills
- requirements: whether what a skill says it needs is there
- roots: where skills are looked for, in order
- scan_cache: what a scan remembers of a root
- scanner: A root becomes entries
- search: search finds skills by the words of their name, keywords and description, and of the beginning of their body
- security_scan: the static security scan
- skill: A skill before and after it is loaded, and where it was looked for
- spelling: names that a misspelt name may mean
- url_root: A root behind a URL is a folder in the cache whose digest is that of the files that lie there now
- validate: what an author should know about a skill beyond its head
- watch: something below the roots changed
"""
