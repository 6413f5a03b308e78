"""What was spent: periods, and reports by tenant, workflow, agent or tool. Pure, but for the port that adds up."""
