"""What answers: adapters to providers, and the models that need none. Each is a `Model` and nothing else.

- model_info: what tokens cost, by the prices that a person configured
- registry: A model is named as `provider:name`, and its provider is imported only when it is named
- replay: A recorded run is a cassette
- script_file: A script in a file is a JSON or YAML list of replies; whatever the file holds, nothing worse than a
  ConfigError comes of it, with the file, the line and the entry
- scripted: A model that says what was written down for it
"""
