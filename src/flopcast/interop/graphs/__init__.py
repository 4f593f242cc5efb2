"""Readers of exported models: files whose graph is data, which no code runs."""
