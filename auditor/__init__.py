"""Audit whether a speculative draft head changes what its target model says."""

__version__ = "0.1.0"
