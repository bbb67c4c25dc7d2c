"""Runs a workspace's programs in containers of Docker or Podman.

- container: one container, the programs in it, and interactive sessions
- engine: connects to the container engine, and removes containers of dead owners
- executor: executor that runs scripts in containers, through the Docker Engine API
- image: builds and checks the image of the containers
- init: process 1 of a container; starts programs and relays their streams
- init_protocol: connection to process 1 of a container
- selftest: checks in a trial container that the isolation works
- selftest_probe: program of the self-test that runs inside the container
- spec: description of a container and its mounted folders, and how it is created
- sync: copies files to and from a container as tar streams, when folders cannot be mounted
- sync_agent: program inside the container that sends and receives these files
- workspace: workspace of a session, with one container for each skill
"""
