"""One rung of the ladder: write the weight, see that it stuck, watch, judge. Pure; used by the steps `canary` and `shift`."""
