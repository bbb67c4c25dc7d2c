"""The same workspace in a container of Docker or Podman.

- container: one container, with process 1 of ours in it, in which programs are run one after the other or side by
  side
- engine: which container engine there is, how it is asked, and whose containers are left in it
- executor: scripts in containers, through the Docker Engine API; Podman's socket speaks it, too
- image: the image that containers are made of
- init: process 1 of a container
- init_protocol: the line to process 1 of a container
- selftest: A container is believed after it was tried
- selftest_probe: run inside a container by its self-test, as a program like any other
- spec: what a container is made of, and how the engine is asked for one
- sync: files go to a container and come back as tar streams, where the engine cannot see the folders of this machine
- sync_agent: run inside a container, where its folders are not those of the host
- workspace: A session's workspace whose programs run in containers
"""
