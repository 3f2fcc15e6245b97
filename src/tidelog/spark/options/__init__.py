"""Options of `format("tidelog")`: table of options, parsing, and the settings of a query."""
