"""Draws, exact laws, training and the records they leave."""
