"""Other people's trainers, one module each; a module needs its trainer installed when imported."""
