"""The core of the package. It needs only numpy and scipy, and does not know Flower."""
