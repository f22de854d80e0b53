"""Where and when a model's operators run: stages that compute a few rows at a time, and the memory that they need."""
