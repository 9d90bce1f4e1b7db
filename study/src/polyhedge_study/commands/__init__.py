"""What the study adds to the command line of polyhedge: thin, one file a command."""
