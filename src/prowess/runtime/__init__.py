"""The composition root and what every surface shares.

- api: the front door
- check: check
- config: config is read once, at the surface
- config_file: one config file becomes checked settings, or a ConfigError that names the file, the line and what was
  wanted
- factories: the half of the composition root that runs things
- policy_files: which policy is in force
- runtime: the composition root
- settings: every setting there is
"""
