"""State to words: one view for screens and scripts, and its text. Pure; knows no terminal, store or server."""
