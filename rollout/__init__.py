"""Progressive rollouts of self-hosted models on GPUStack and LiteLLM."""

__version__ = "0.1.0"
