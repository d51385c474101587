"""`diagnose`: where the step time and the memory of a distributed training job went, and why."""

__version__ = "0.1.0"
