"""The structure of a table as its rows were logged: table maps, column types, character sets."""
