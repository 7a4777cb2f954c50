"""What the search and the training must know about classification or detection."""
