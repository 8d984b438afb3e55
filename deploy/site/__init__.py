"""The documentation as a site, made by MkDocs: ``mkdocs.yml`` is its menu, ``theme`` its styles."""
