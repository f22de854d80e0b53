"""Code shared by all kinds of operators: checks, fused activations, broadcasting, views. May import `arithmetic`."""
