"""Options of `format("tidelog")`: their table, their values, and what a query is run with."""
