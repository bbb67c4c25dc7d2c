"""Values, events and ports: what everybody shares and nobody implements.

- catalog_values: the nouns of the library
- events: A run is the list of its events
- findings: every finding has one entry here
- ports: what the spine needs from the outside world, as protocols; it never names an implementation
- storage_values: the nouns of what is kept
- values: the nouns that travel
"""
