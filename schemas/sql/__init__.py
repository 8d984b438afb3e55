"""SQL text: splits it into tokens as the servers do, and classifies statements."""
