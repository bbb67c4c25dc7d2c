"""Some network for a box: a proxy inside it, served from outside."""
