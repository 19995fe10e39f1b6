"""Collective communication with proved algorithms."""
