"""Clients: HTTP alone, bounded and unable to leak a key."""
