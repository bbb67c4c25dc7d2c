"""Containers as workspaces, through the Docker Engine API."""
