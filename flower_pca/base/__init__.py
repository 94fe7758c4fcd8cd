"""The foundation of the package: errors, checks, linear algebra and files. These modules know nothing about runs."""
