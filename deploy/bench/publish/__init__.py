"""Figures of publish tasks."""
