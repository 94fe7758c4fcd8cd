"""Read rows from files and other sources (`sources`), and distribute them over clients (`partition`)."""
