"""Builds the image for containers with the engine of this machine."""

from __future__ import annotations

from collections.abc import Callable

from prowess.workspace.container.engine import connect
from prowess.workspace.container.image import DEFAULT_IMAGE, ImageInfo, build_image


def build_container_image(
    *,
    tag: str = DEFAULT_IMAGE,
    base: str | None = None,
    offline: bool = False,
    on_line: Callable[[str], None] | None = None,
) -> ImageInfo:
    """Builds the image from `base`, else from the Dockerfile, else (and with `offline`) from this machine's packages.
    `on_line` is told each step."""
    engine = connect()
    try:
        return build_image(engine.client, tag=tag, base=base, offline=offline, on_line=on_line)
    finally:
        engine.close()
