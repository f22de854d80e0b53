"""What operators of all kinds share: checks, fused activations, broadcasting, views. May import `arithmetic`."""
