"""Noise on the data before any training: as Kang et al. publish it, and as reports that are proven to protect."""
