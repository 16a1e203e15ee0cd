"""The judge: formulae against oracles, hygiene, verdicts."""
