"""The core of the package. It requires only numpy and scipy, and does not use Flower."""
