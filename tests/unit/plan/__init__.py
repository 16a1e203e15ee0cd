"""Plans: reading, refusing, rendering."""
