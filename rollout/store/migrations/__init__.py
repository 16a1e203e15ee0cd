"""The schema's history. A released revision is never edited; `migrate.KNOWN` lists them in order."""
