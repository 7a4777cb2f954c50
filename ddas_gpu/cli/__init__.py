"""The shell around all commands: flags, devices, exit codes."""
