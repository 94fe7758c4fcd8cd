"""Where rows come from (`sources`), and how a simulation deals them out (`partition`)."""
