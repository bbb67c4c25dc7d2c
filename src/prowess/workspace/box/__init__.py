"""Boxes around programs, believed after they were tried."""
