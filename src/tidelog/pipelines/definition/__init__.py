"""Pipeline definition: its model, and the parser of pipeline files."""
