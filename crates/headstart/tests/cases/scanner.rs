//! Beside an on-access scanner a start with headstart is not scanned more than one without.
