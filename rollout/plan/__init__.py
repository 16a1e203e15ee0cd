"""What the user wrote: plan files in, frozen plans out. Knows no server, no state and no clock."""
