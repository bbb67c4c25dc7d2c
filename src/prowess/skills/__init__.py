"""Skills on disk: parses SKILL.md files, builds the catalog and loads skills. Needs only PyYAML.

- catalog: every skill found; resolves a name to a skill and decides who may use it
- discover: reads roots into a Catalog; reloads it
- entry_reader: reads the head of one SKILL.md into an Entry
- file_list: files of a skill's folder, the difference of two lists of files, and their JSON
- front_matter: reads front matter: strict YAML, then a narrow repair, then salvage
- head: values of the front matter that discovery needs
- in_memory: skills defined in code
- load: loads a skill: body, file list, digest; reads its docs and resources
- locked_names: names of the skills in a skills.lock, and skills that were renamed when they were installed
- metadata: reads the fields of the front matter into values and notes
- nested: finds SKILL.md files below a skill
- parse: splits a SKILL.md into head and body
- reference: the specification's reference library in Python
- render: text that a model reads about skills: the catalog, a loaded skill, a doc
- requirements: checks that the programs, variables and versions a skill needs are present
- roots: places where skills are looked for, in order
- scan_cache: the file in which a scan remembers the skills of a root
- scanner: walks a root and finds its skills
- search: full-text search over the catalog
- security_scan: static scan for dangerous commands, secrets and hidden instructions
- skill: values: an Entry (found), a Skill (loaded), a Root
- spelling: suggests names for a misspelt name
- template: the text of a new skill, and its lines that an author has to change
- url_root: downloads a root from a URL into the cache
- validate: checks a skill's body, references and scripts for its author
- watch: watches the roots for changes
- yaml_mapping: reads one YAML mapping strictly
"""
