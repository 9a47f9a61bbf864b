"""A cluster that runs already, whoever deployed it: nothing of it is started, stopped or wiped."""
