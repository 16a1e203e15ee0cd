"""Verbs: one small file each, imported only when used. Parses, wires and prints; decides nothing about a rollout."""
