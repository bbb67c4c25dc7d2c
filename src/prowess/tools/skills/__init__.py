"""Tools that load, read and search skills.

- docs: the skill_list_docs and skill_select_docs tools
- load: the skill_load tool
- loaded: the skills in use, their selected docs, and the texts in view
- read: the skill_read tool, which reads a file, a section or lines
- search: the skill_search tool
- state: keys of the session state for loaded skills and selected docs, and refs of their texts
- unload: the skill_unload tool
"""
