"""Read rows from files and other sources (`sources`), and deal them out to clients (`partition`)."""
