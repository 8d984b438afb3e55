"""Views: what a target set or a subscriber gets of a set topic. Pure values; docs/views.md describes the language."""
