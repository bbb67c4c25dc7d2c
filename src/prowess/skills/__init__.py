"""Skills on disk, without anything that runs: parse, validate, find, search, plan, render. Needs PyYAML, no more.

- head, fields, front_matter, parse    bytes to what an author said, and what was wrong with it
- findings, validate, scan, reference  what a person should know; one registry of codes
- roots, index, nested, read, url_root folders and addresses to entries
- entry, model, spelling               Entry and Skill; Catalog: which one is meant, and who may have it
- catalog_plan, prompt, search, text   what a model is shown
- memory, watch, requirements          skills in code, reloading, what a machine lacks
"""
