"""The core: numpy and scipy only. Nothing here knows Flower."""
