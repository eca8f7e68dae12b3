//! What is cold is weighed by what it costs: a plan is warm when reading the rest ahead gains nothing.
