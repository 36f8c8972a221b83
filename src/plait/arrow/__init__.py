"""The Arrow engine: rows in, staged files and their status out, in bounded memory."""
