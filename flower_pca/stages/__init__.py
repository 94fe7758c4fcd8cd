"""The stages that algorithms share, such as opening, Rayleigh-Ritz step and evaluation."""
