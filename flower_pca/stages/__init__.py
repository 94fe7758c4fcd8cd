"""Stages that every run has: opening, Rayleigh-Ritz, evaluation."""
