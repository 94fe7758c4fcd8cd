"""The foundation of the package: errors, checks, linear algebra and files. These modules do not depend on runs."""
