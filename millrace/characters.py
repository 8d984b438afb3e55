"""The ASCII codes of characters that kernels of both halves read and write."""

SPACE, QUOTE, APOSTROPHE, PLUS, COMMA, MINUS, POINT, ZERO, NINE, COLON = b" \"'+,-.09:"
BACKSLASH, OPENING_BRACKET, CLOSING_BRACKET, CLOSING_BRACE = b"\\[]}"
