"""Fakes that ship with the product: a simulated engine, simulated nodes and an in-process GPUStack for demo and tests.

This room never takes part in a real rollout and imports no step, store or engine code.
"""
