"""Tools that load, read and search skills.

- docs: skill_list_docs and skill_select_docs
- load: skill_load
- loaded: the skills in use, the docs that are selected of each, and what of them the model can see now
- read: skill_read
- search: skill_search
- state: how a session's state says which skills are in use and which of their docs are selected; how their texts are
  called
"""
