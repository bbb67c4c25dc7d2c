"""Models that answer requests: adapters to providers, and models that need no provider.

- model_info: costs of tokens and of replies, and context windows of well-known models
- registry: makes a model from `provider:name`, and imports a provider only when it is named
- replay: plays back the replies of a recorded run
- scripted: the model that plays a script, for tests and examples
"""
