"""Does the judge keep its bounds, how soon does it see a regression, and what does a window cost? `python -m benchmarks.judge [--quick]`.

worlds, queues: traffic with known truth. rules: the threshold rules of other controllers. lockstep: rollouts through `rollout.analysis`.
experiments: which rollouts are run. published: the figures to be met. tables: both side by side, and the bars. speed: milliseconds, memory.
"""
